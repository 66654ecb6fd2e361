package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// forceVerb takes a hold away.
func forceVerb(dial dialer) *cli.Command {
	const example = "qlock force-release orders/42 --token 4611686018427387921 --reason \"host is on fire\""
	return &cli.Command{
		Name:      "force-release",
		Usage:     "end a hold without its holder's consent",
		ArgsUsage: "NAME",
		Description: "The next waiter is granted the lock immediately, unless the hold has a lock-delay. The\n" +
			"holder is notified but may continue for a while: only fencing tokens protect the\n" +
			"resource. qlock revoke asks the holder first.\n\n" +
			"Exit codes: 0 done, 77 the lock is not held with that token, 69 no serving leader, 64 usage.",
		Flags: slices.Concat(namedHoldFlags(), reasonFlags(), []cli.Flag{
			&cli.BoolFlag{Name: "dry-run", DisableDefaultText: true, Usage: "print what would happen, without changing anything"},
		}),
		Action: func(c *cli.Context) error {
			if err := checkTarget(c, example); err != nil {
				return err
			}
			by, err := reasonOf(c)
			if err != nil && !c.Bool("dry-run") {
				return err
			}
			return ask(c, dial, openTimeout, func(ctx context.Context, svc service) error {
				t, err := targetOf(ctx, c, svc)
				if err != nil {
					return err
				}
				if c.Bool("dry-run") {
					return show(c, with{t.lock, map[string]any{"dryRun": true}}, t.writeDryRun)
				}
				answer, err := svc.ForceRelease(ctx, &wire.ForceRelease{HoldId: t.holdID, Token: t.token, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
				return done(c, one{answer}, t.notHeld(err), "took %s away from %s", printable(t.name), t.who())
			})
		},
	}
}

// writeDryRun describes what a forced release would do.
func (t target) writeDryRun(w io.Writer) {
	fmt.Fprintf(w, "would take %s away from %s, token %d\n", printable(t.name), t.who(), t.token)
	if t.holder == nil {
		return
	}
	if locks := t.holder.GetLocks(); len(locks) > 1 {
		fmt.Fprintf(w, "  and with it %s: one hold\n", nameList(without(locks, t.name)))
	}
	fmt.Fprintf(w, "  held for %s, %s\n", millis(t.holder.GetHeldForMs()), liveness(t.holder))
	if text := cached(t.holder); text != "" {
		fmt.Fprintf(w, "  %s\n", text)
	}
	queue := t.lock.GetQueue()
	switch delay := t.holder.GetLockDelayMs(); {
	case delay > 0:
		fmt.Fprintf(w, "  its lock-delay would keep it closed for %s\n", ttl(delay))
	case len(queue) == 0:
		fmt.Fprintln(w, "  nobody waits for it")
	default:
		fmt.Fprintf(w, "  %s waits first, of %d\n", who(queue[0]), t.lock.GetQueueLength())
	}
}

// without returns the names except one.
func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}
