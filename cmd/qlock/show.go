package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// showVerb answers "why am I waiting?".
func showVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show one lock: who holds it, since when, and the queue in order",
		ArgsUsage: "NAME",
		Action: func(c *cli.Context) error {
			args := arguments(c)
			if len(args) != 1 {
				return usagef("show takes one lock's name, as in qlock show orders/42")
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				lock, err := svc.GetLock(ctx, &wire.GetLockRequest{Name: args[0]})
				if errors.Is(err, client.ErrNotFound) {
					return failf(exitNoSuch, "no lock %s: nobody holds it or waits for it", printable(args[0]))
				}
				if err != nil {
					return err
				}
				return show(c, one{lock}, func(w io.Writer) { writeLock(w, lock) })
			})
		},
	}
}

// writeLock is one lock for people.
func writeLock(w io.Writer, lock *wire.GetLockResponse) {
	fmt.Fprintln(w, printable(lock.GetName()))
	if len(lock.GetHolders()) == 0 {
		fmt.Fprintln(w, "held by nobody")
	}
	for _, h := range lock.GetHolders() {
		writeHolder(w, h)
	}
	writeQueue(w, lock)
}

func writeHolder(w io.Writer, h *wire.HolderInfo) {
	fmt.Fprintf(w, "held by %s, heartbeat %s\n", owner(h.GetClient(), h.GetSessionId()), ago(h.HeartbeatAgeMs))
	fmt.Fprintf(w, "  for %s, token %d, session %d\n", millis(h.GetHeldForMs()), h.GetToken(), h.GetSessionId())
	if addr := h.GetClient().GetAddress(); addr != "" {
		fmt.Fprintf(w, "  from %s\n", printable(addr))
	}
	if text := labels(h.GetClient()); text != "" {
		fmt.Fprintf(w, "  labels %s\n", text)
	}
	if len(h.GetValue()) > 0 {
		fmt.Fprintf(w, "  value %s\n", printable(string(h.GetValue())))
	}
}

func writeQueue(w io.Writer, lock *wire.GetLockResponse) {
	if len(lock.GetQueue()) == 0 {
		fmt.Fprintln(w, "nobody waits")
		return
	}
	t := newTable("QUEUE", "WAITING", "GIVES UP", "HEARTBEAT", "WAITER")
	for _, q := range lock.GetQueue() {
		t.row(fmt.Sprint(q.GetPosition()), millis(q.GetWaitingMs()), patience(q),
			ago(q.HeartbeatAgeMs), owner(q.GetClient(), q.GetSessionId()))
	}
	t.write(w)
	if more := lock.GetQueueLength() - uint64(len(lock.GetQueue())); lock.GetQueueLength() > uint64(len(lock.GetQueue())) {
		fmt.Fprintf(w, "and %d more\n", more)
	}
}

// patience is how much longer a waiter waits.
func patience(q *wire.WaiterInfo) string {
	if q.GetWaitForever() {
		return "never"
	}
	return "in " + millis(uint64(max(0, int64(q.GetWaitMs())-int64(q.GetWaitingMs()))))
}
