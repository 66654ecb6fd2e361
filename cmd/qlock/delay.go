package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// skipDelayVerb ends a lock-delay.
func skipDelayVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:        "skip-delay",
		Usage:       "end a lock-delay; make sure that the former holder has stopped",
		ArgsUsage:   "NAME",
		Description: "Exit codes: 0 done, 66 the lock has no lock-delay, 69 no serving leader, 64 usage.",
		Flags: append(reasonFlags(),
			&cli.Uint64Flag{Name: "hold", DefaultText: "all", Usage: "only the delay of the hold with this `ID`"}),
		Action: func(c *cli.Context) error {
			args := arguments(c)
			if len(args) != 1 {
				return usagef("skip-delay takes one lock's name, as in qlock skip-delay orders/42 --reason \"that host is off\"")
			}
			if err := checkName(args[0]); err != nil {
				return err
			}
			by, err := reasonOf(c)
			if err != nil {
				return err
			}
			return ask(c, dial, openTimeout, func(ctx context.Context, svc service) error {
				answer, err := svc.SkipDelay(ctx, &wire.SkipDelay{Name: args[0], HoldId: c.Uint64("hold"), Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
				if errors.Is(err, client.ErrNotFound) {
					return failf(exitNoSuch, "no lock-delay keeps %s closed", printable(args[0]))
				}
				return done(c, one{answer}, err, "skipped the lock-delay of %s", printable(args[0]))
			})
		},
	}
}
