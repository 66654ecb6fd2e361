package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"
)

// extendVerb restarts a leased hold's time.
func extendVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "extend",
		Usage: "extend a lock acquired with qlock acquire",
		Description: "Restarts the TTL. Extend well before the TTL has passed, and stop the work if the exit\n" +
			"code is not 0.\n\n" +
			"Exit codes: 0 extended, 77 no longer held, 69 no serving leader, 64 usage.",
		Flags: append(leaseFlags(),
			&cli.DurationFlag{Name: "ttl", DefaultText: "as before", Usage: "hold the lock for `DURATION` from now on"}),
		Action: func(c *cli.Context) error {
			l, err := leaseOf(c)
			if err != nil {
				return err
			}
			ttl, err := ttlOf(c)
			if err != nil {
				return err
			}
			return ask(c, dial, openTimeout, func(ctx context.Context, svc service) error {
				if err := svc.ExtendLease(ctx, l.secret, l.hold, ttl); err != nil {
					return leaseError(err)
				}
				recordEnd(c.String("lease-file"), ttl)
				return show(c, fields{heldJSON{fmt.Sprint(l.hold), true}}, func(w io.Writer) { fmt.Fprintln(w, "extended") })
			})
		},
	}
}

// heldJSON is the output of extend and release with -o json.
type heldJSON struct {
	HoldID string `json:"holdId"`
	Held   bool   `json:"held"`
}
