package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// deadlocksVerb lists the owners that wait for each other.
func deadlocksVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:  "deadlocks",
		Usage: "list owners that wait for each other",
		Description: "A request that would cause a deadlock is refused, unless it allows deadlocks. This lists\n" +
			"deadlocks that were allowed, or caused by shrinking a semaphore. To resolve one, end a\n" +
			"session of its cycle, or use qlock force-release.",
		Action: func(c *cli.Context) error {
			if len(arguments(c)) > 0 {
				return usagef("deadlocks takes no arguments")
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				answer, err := svc.ListDeadlocks(ctx, &wire.ListDeadlocksRequest{})
				if err != nil {
					return err
				}
				return show(c, list[*wire.Deadlock]{"deadlocks", answer.GetDeadlocks()}, func(w io.Writer) {
					writeDeadlocks(w, answer.GetDeadlocks())
				})
			})
		},
	}
}

// writeDeadlocks writes the list for people.
func writeDeadlocks(w io.Writer, deadlocks []*wire.Deadlock) {
	if len(deadlocks) == 0 {
		fmt.Fprintln(w, "no deadlocks")
	}
	for i, d := range deadlocks {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s in a circle:\n", count(uint64(len(d.GetCycle())), "owner"))
		for at, step := range d.GetCycle() {
			next := d.GetCycle()[(at+1)%len(d.GetCycle())]
			fmt.Fprintf(w, "  %s waits for %s behind %s\n", stepOwner(step), stepLock(step), stepOwner(next))
		}
	}
}
