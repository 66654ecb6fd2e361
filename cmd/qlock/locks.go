package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// locksVerb lists locks that are held or waited for.
func locksVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "locks",
		Usage:     "list the locks that exist, with their holders",
		ArgsUsage: "[PREFIX]",
		Action: func(c *cli.Context) error {
			args := arguments(c)
			if len(args) > 1 {
				return usagef("locks takes at most one prefix, as in qlock locks orders/")
			}
			prefix := strings.Join(args, "")
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				locks, err := allLocks(ctx, svc, &wire.ListLocksRequest{Prefix: prefix})
				if err != nil {
					return err
				}
				return show(c, list[*wire.LockInfo]{"locks", locks}, func(w io.Writer) {
					writeLocks(w, prefix, locks)
				})
			})
		},
	}
}

// allLocks joins the pages of a listing.
func allLocks(ctx context.Context, svc service, req *wire.ListLocksRequest) ([]*wire.LockInfo, error) {
	var all []*wire.LockInfo
	for {
		page, err := svc.ListLocks(ctx, req)
		if err != nil {
			return nil, err
		}
		all = append(all, page.GetLocks()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return all, nil
		}
	}
}

// writeLocks is the table for people.
func writeLocks(w io.Writer, prefix string, locks []*wire.LockInfo) {
	if len(locks) == 0 {
		if prefix == "" {
			fmt.Fprintln(w, "no locks")
		} else {
			fmt.Fprintf(w, "no locks under %s\n", printable(prefix))
		}
		return
	}
	t := newTable("NAME", "TOKEN", "HELD FOR", "HEARTBEAT", "WAITING", "HELD BY")
	for _, l := range locks {
		waiting := fmt.Sprint(l.GetQueueLength())
		if len(l.GetHolders()) == 0 {
			t.row(printable(l.GetName()), "-", "-", "-", waiting, "nobody")
		}
		for _, h := range l.GetHolders() {
			t.row(printable(l.GetName()), fmt.Sprint(h.GetToken()), millis(h.GetHeldForMs()),
				ago(h.HeartbeatAgeMs), waiting, owner(h.GetClient(), h.GetSessionId()))
		}
	}
	t.write(w)
}
