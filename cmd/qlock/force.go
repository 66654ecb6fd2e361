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
		Usage:     "take a hold away from its holder, who may not know it yet",
		ArgsUsage: "NAME",
		Description: "Who waits is granted the lock at once, unless the hold has a lock-delay. The old\n" +
			"holder is told, but what it is doing goes on until it listens: only fencing tokens\n" +
			"keep it off the resource. qlock revoke asks first.\n\n" +
			"Exit codes: 0 done, 77 that token does not hold the lock, 69 no serving leader, 64 usage.",
		Flags: slices.Concat(namedHoldFlags(), reasonFlags(), []cli.Flag{
			&cli.BoolFlag{Name: "dry-run", DisableDefaultText: true, Usage: "say what would happen and change nothing"},
		}),
		Action: func(c *cli.Context) error {
			if err := checkTarget(c, example); err != nil {
				return err
			}
			reason, operator, err := reasonOf(c)
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
				answer, err := svc.ForceRelease(ctx, &wire.ForceRelease{HoldId: t.holdID, Token: t.token, Reason: reason, Operator: operator})
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
	fmt.Fprintf(w, "  held for %s, heartbeat %s\n", millis(t.holder.GetHeldForMs()), ago(t.holder.HeartbeatAgeMs))
	queue := t.lock.GetQueue()
	switch delay := t.holder.GetLockDelayMs(); {
	case delay > 0:
		fmt.Fprintf(w, "  its lock-delay would keep it closed for %s\n", ttl(delay))
	case len(queue) == 0:
		fmt.Fprintln(w, "  nobody waits for it")
	default:
		fmt.Fprintf(w, "  %s waits first, of %d\n", owner(queue[0].GetClient(), queue[0].GetSessionId()), t.lock.GetQueueLength())
	}
}

// without returns the names except one.
func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}
