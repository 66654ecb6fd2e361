package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// resizeVerb changes the limit of a semaphore.
func resizeVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "resize",
		Usage:     "change the limit of a semaphore that is in use",
		ArgsUsage: "NAME LIMIT",
		Description: "Holds remain. If fewer permits remain than are held, nothing is granted until enough are\n" +
			"released. All users of the semaphore must give the new limit from now on.\n\n" +
			"Exit codes: 0 done, 66 no such semaphore is in use, 69 no serving leader, 64 usage,\n" +
			"70 a request waits for more than the new limit.",
		Flags: reasonFlags(),
		Action: func(c *cli.Context) error {
			args := arguments(c)
			if len(args) != 2 {
				return usagef("resize takes a semaphore's name and its new limit, as in qlock resize workers 20 --reason \"more hosts\"")
			}
			limit, err := strconv.ParseUint(args[1], 10, 64)
			if err != nil || limit == 0 {
				return usagef("limit %q is no positive number", args[1])
			}
			if err := checkName(args[0]); err != nil {
				return err
			}
			by, err := reasonOf(c)
			if err != nil {
				return err
			}
			return ask(c, dial, openTimeout, func(ctx context.Context, svc service) error {
				answer, err := svc.Resize(ctx, &wire.Resize{Name: args[0], Limit: limit, Reason: by.Reason, Operator: by.Operator, Ticket: by.Ticket})
				if errors.Is(err, client.ErrNotFound) {
					return failf(exitNoSuch, "no semaphore %s is in use; the first who acquires it says its limit", printable(args[0]))
				}
				return done(c, one{answer}, err, "%s has %s now", printable(args[0]), count(limit, "permit"))
			})
		},
	}
}
