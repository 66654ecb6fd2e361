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
		Usage:     "list the locks and their holders",
		ArgsUsage: "[PREFIX]",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "elections", Usage: "list only locks that are held exclusively with a value, as by leaders"},
		},
		Action: func(c *cli.Context) error {
			args := arguments(c)
			if len(args) > 1 {
				return usagef("locks takes at most one prefix, as in qlock locks orders/")
			}
			prefix := strings.Join(args, "")
			if err := checkText("the prefix", prefix); err != nil {
				return err
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				locks, err := allLocks(ctx, svc, &wire.ListLocksRequest{Prefix: prefix, Elections: c.Bool("elections")})
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

// allLocks joins the pages of the list.
func allLocks(ctx context.Context, svc lockLister, req *wire.ListLocksRequest) ([]*wire.LockInfo, error) {
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

// writeLocks writes the table for people.
func writeLocks(w io.Writer, prefix string, locks []*wire.LockInfo) {
	if len(locks) == 0 {
		if prefix == "" {
			fmt.Fprintln(w, "no locks")
		} else {
			fmt.Fprintf(w, "no locks under %s\n", printable(prefix))
		}
		return
	}
	t := newTable("NAME", "MODE", "TOKEN", "HELD FOR", "HEARTBEAT", "WAITING", "HELD BY")
	for _, l := range locks {
		name, waiting := printable(l.GetName()), fmt.Sprint(l.GetQueueLength())
		for _, h := range l.GetHolders() {
			t.row(name, shareOf(l, h), fmt.Sprint(h.GetToken()), millis(h.GetHeldForMs()),
				heartbeat(h), waiting, who(h))
		}
		for _, d := range l.GetDelays() {
			t.row(name, share(l, d.GetMode(), d.GetPermits()), "-", "-", "-", waiting, "nobody: lock-delay for "+left(d.RemainingMs))
		}
		if more := int64(l.GetHolderCount()) - int64(len(l.GetHolders())); more > 0 {
			t.row(name, "-", "-", "-", "-", waiting, fmt.Sprintf("and %d more", more))
		}
		if len(l.GetHolders())+len(l.GetDelays()) == 0 {
			t.row(name, "-", "-", "-", "-", waiting, "nobody")
		}
	}
	t.write(w)
}

// shareOf is share for a hold, which may be cached.
func shareOf(l *wire.LockInfo, h *wire.HolderInfo) string {
	if h.GetTokens() > 0 {
		return howHeld(h)
	}
	return share(l, h.GetMode(), h.GetPermits())
}

// share describes how a hold holds a lock, and how many permits of a semaphore.
func share(l *wire.LockInfo, mode wire.Mode, permits uint64) string {
	if mode == wire.Mode_PERMITS {
		return fmt.Sprintf("%d of %d permits", permits, l.GetLimit())
	}
	return modeOf(mode, permits)
}
