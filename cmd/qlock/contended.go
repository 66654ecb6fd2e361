package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// contentionOrders are the values of --by.
var contentionOrders = map[string]wire.ListContendedRequest_Order{
	"queue":  wire.ListContendedRequest_QUEUE_LENGTH,
	"oldest": wire.ListContendedRequest_OLDEST_WAIT,
}

// maxContended is the most locks that the cluster lists.
const maxContended = 1_000

// contendedVerb lists the locks that are waited for.
func contendedVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "contended",
		Usage: "list the locks that are waited for, the most contended first",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "by", Value: "queue", Usage: "`ORDER`: queue for the most waiters first, oldest for the longest wait first"},
			&cli.StringFlag{Name: "prefix", Usage: "only locks whose names start with `PREFIX`"},
			&cli.UintFlag{Name: "limit", Value: 20, Usage: "list at most `N` locks, 1 to 1000"},
		},
		Action: func(c *cli.Context) error {
			req, err := contendedRequest(c)
			if err != nil {
				return err
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				answer, err := svc.ListContended(ctx, req)
				if err != nil {
					return err
				}
				return show(c, one{answer}, func(w io.Writer) { writeContended(w, req.GetPrefix(), answer) })
			})
		},
	}
}

func contendedRequest(c *cli.Context) (*wire.ListContendedRequest, error) {
	if len(arguments(c)) > 0 {
		return nil, usagef("contended takes no arguments, but --prefix, as in qlock contended --prefix orders/")
	}
	order, ok := contentionOrders[c.String("by")]
	if !ok {
		return nil, usagef("--by is %q: give queue or oldest", c.String("by"))
	}
	limit := c.Uint("limit")
	if limit < 1 || limit > maxContended {
		return nil, usagef("--limit is %d: give 1 to %d", limit, maxContended)
	}
	prefix := c.String("prefix")
	return &wire.ListContendedRequest{Prefix: prefix, Order: order, Limit: uint32(limit)}, checkText("--prefix", prefix)
}

// writeContended writes the table for people.
func writeContended(w io.Writer, prefix string, answer *wire.ListContendedResponse) {
	if answer.GetContended() == 0 {
		below := ""
		if prefix != "" {
			below = " under " + printable(prefix)
		}
		fmt.Fprintf(w, "nobody waits for a lock%s\n", below)
		return
	}
	t := newTable("NAME", "WAITING", "LONGEST", "WAITER", "HELD FOR", "HEARTBEAT", "HELD BY")
	for _, l := range answer.GetLocks() {
		cells := []string{printable(l.GetName()), fmt.Sprint(l.GetQueueLength()), millis(l.GetOldest().GetWaitingMs()), who(l.GetOldest())}
		t.row(append(cells, heldBy(l)...)...)
	}
	t.write(w)
	if n := uint64(len(answer.GetLocks())); n < answer.GetContended() {
		fmt.Fprintf(w, "and %d more\n", answer.GetContended()-n)
	}
}

// heldBy describes one holder of a contended lock, and how many others there are.
func heldBy(l *wire.ContendedLock) []string {
	h := l.GetHolder()
	if h == nil {
		return []string{"-", "-", "nobody"}
	}
	by := who(h)
	if l.GetHolderCount() > 1 {
		by += fmt.Sprintf(" and %d more", l.GetHolderCount()-1)
	}
	return []string{millis(h.GetHeldForMs()), heartbeat(h), by}
}
