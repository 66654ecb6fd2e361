package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
)

// releaseVerb ends a leased hold.
func releaseVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "release",
		Usage: "release a lock acquired with qlock acquire",
		Description: "The --lease-file is removed when the lock is no longer held.\n\n" +
			"Exit codes: 0 released, 77 no longer held, 69 no serving leader, 64 usage.",
		Flags: leaseFlags(),
		Action: func(c *cli.Context) error {
			l, err := leaseOf(c)
			if err != nil {
				return err
			}
			return ask(c, dial, openTimeout, func(ctx context.Context, svc service) error {
				err := svc.ReleaseLease(ctx, l.secret, l.hold)
				if err == nil || errors.Is(err, client.ErrNotHeld) {
					err = errors.Join(leaseError(err), forget(c.String("lease-file")))
				}
				if err != nil {
					return err
				}
				return show(c, fields{heldJSON{fmt.Sprint(l.hold), false}}, func(w io.Writer) { fmt.Fprintln(w, "released") })
			})
		},
	}
}

// leaseError explains an error about a lease that the cluster does not know.
func leaseError(err error) error {
	if errors.Is(err, client.ErrNotHeld) {
		return failf(exitNotHeld, "the lease is over: it was released, its TTL has passed or it was forced away")
	}
	return err
}

// forget removes the file of a lease that has ended.
func forget(file string) error {
	if file == "" || file == "-" {
		return nil
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return failf(exitInternal, "remove the lease: %w", err)
	}
	return nil
}
