package main

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// revokeVerb asks a holder to release its hold.
func revokeVerb(dial dialer) *cli.Command {
	const example = "qlock revoke orders/42 --token 4611686018427387921 --reason \"deploy\" --grace 30s"
	return &cli.Command{
		Name:      "revoke",
		Usage:     "ask a holder to release its lock; with --grace, force it after that time",
		ArgsUsage: "NAME",
		Description: "A command under qlock run gets TERM. Other programs are notified through the SDK.\n\n" +
			"Exit codes: 0 revoked, 77 the lock is not held with that token, 69 no serving leader, 64 usage.",
		Flags: slices.Concat(namedHoldFlags(), reasonFlags(), []cli.Flag{
			&cli.DurationFlag{Name: "grace", DefaultText: "only ask", Usage: "force the release after `DURATION`"},
		}),
		Action: func(c *cli.Context) error {
			if err := checkTarget(c, example); err != nil {
				return err
			}
			grace := c.Duration("grace")
			if c.IsSet("grace") && (grace < time.Millisecond || grace > math.MaxInt32*time.Millisecond) {
				return usagef("--grace %v is no time that a holder can be given; leave it out to ask only", grace)
			}
			by, err := reasonOf(c)
			if err != nil {
				return err
			}
			return ask(c, dial, openTimeout, func(ctx context.Context, svc service) error {
				t, err := targetOf(ctx, c, svc)
				if err != nil {
					return err
				}
				answer, err := svc.Revoke(ctx, &wire.Revoke{HoldId: t.holdID, Token: t.token, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket,
					GraceMs: uint32(grace / time.Millisecond)})
				then := "it may keep it"
				if grace > 0 {
					then = "in " + ttl(uint32(grace/time.Millisecond)) + " it is taken away"
				}
				return done(c, one{answer}, t.notHeld(err), "asked %s for %s back; %s", t.who(), printable(t.name), then)
			})
		},
	}
}
