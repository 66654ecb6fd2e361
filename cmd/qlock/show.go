package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// showVerb shows the current state of a lock.
func showVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show a lock: its holders, since when, and its queue",
		ArgsUsage: "NAME",
		Action: func(c *cli.Context) error {
			args := arguments(c)
			if len(args) != 1 {
				return usagef("show takes one lock's name, as in qlock show orders/42")
			}
			if err := checkName(args[0]); err != nil {
				return err
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				lock, err := svc.GetLock(ctx, &wire.GetLockRequest{Name: args[0]})
				if errors.Is(err, client.ErrNotFound) {
					return noLock(args[0])
				}
				if err != nil {
					return err
				}
				return show(c, one{lock}, func(w io.Writer) { writeLock(w, lock) })
			})
		},
	}
}

// noLock returns the error for a lock that does not exist.
func noLock(name string) error {
	return failf(exitNoSuch, "no lock %s: nobody holds it or waits for it", printable(name))
}

// writeLock writes one lock for people.
func writeLock(w io.Writer, lock *wire.GetLockResponse) {
	fmt.Fprintln(w, printable(lock.GetName())+kindOf(lock))
	writeHolders(w, lock)
	writeQueue(w, lock)
}

// writeHolders writes the holders of the lock, and what a lock-delay keeps closed.
func writeHolders(w io.Writer, lock *wire.GetLockResponse) {
	if len(lock.GetHolders())+len(lock.GetDelays()) == 0 {
		fmt.Fprintln(w, "held by nobody")
	}
	for _, h := range lock.GetHolders() {
		writeHolder(w, lock.GetName(), h)
	}
	if more := int64(lock.GetHolderCount()) - int64(len(lock.GetHolders())); more > 0 {
		fmt.Fprintf(w, "and by %d more\n", more)
	}
	for _, d := range lock.GetDelays() {
		fmt.Fprintf(w, "closed (%s) for another %s: session %d lost it, hold %d, lock-delay %s\n",
			modeOf(d.GetMode(), d.GetPermits()), left(d.RemainingMs), d.GetSessionId(), d.GetHoldId(), ttl(d.GetLockDelayMs()))
	}
}

// writeHolder writes one hold: a line about the holder, a line about the hold, and any further properties.
func writeHolder(w io.Writer, name string, h *wire.HolderInfo) {
	how := "held by "
	if h.GetMode() == wire.Mode_SHARED || h.GetMode() == wire.Mode_PERMITS {
		how = "held (" + modeOf(h.GetMode(), h.GetPermits()) + ") by "
	}
	fmt.Fprintf(w, "%s%s, %s\n", how, who(h), liveness(h))
	fmt.Fprintf(w, "  for %s, token %d, session %d\n", millis(h.GetHeldForMs()), h.GetToken(), h.GetSessionId())
	if text := cached(h); text != "" {
		fmt.Fprintf(w, "  %s, kept unused for at most %s\n", text, ttl(h.GetMaxIdleMs()))
	}
	if h.GetCount() > 1 {
		fmt.Fprintf(w, "  acquired %d times\n", h.GetCount())
	}
	if locks := without(h.GetLocks(), name); len(locks) > 0 {
		fmt.Fprintf(w, "  together with %s\n", nameList(locks))
	}
	if r := h.GetRevocation(); r != nil {
		grace := ""
		if r.GetGraceMs() > 0 {
			grace = " within " + ttl(r.GetGraceMs())
		}
		fmt.Fprintf(w, "  an operator wants it back%s: %s\n", grace, printable(r.GetReason()))
	}
	if h.RemainingHoldMs != nil {
		fmt.Fprintf(w, "  ends in %s at the latest%s\n", millis(h.GetRemainingHoldMs()), maxHold(h.GetMaxHoldMs()))
	} else if h.GetMaxHoldMs() > 0 {
		fmt.Fprintf(w, "  max-hold %s\n", ttl(h.GetMaxHoldMs()))
	}
	if h.GetLockDelayMs() > 0 {
		fmt.Fprintf(w, "  lock-delay %s\n", ttl(h.GetLockDelayMs()))
	}
	writeAbout(w, h)
}

// writeAbout writes the holder's description of itself.
func writeAbout(w io.Writer, h *wire.HolderInfo) {
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

func maxHold(ms uint32) string {
	if ms == 0 {
		return ""
	}
	return ", max-hold " + ttl(ms)
}

// writeQueue writes the queue in order. It shows what a waiter requests only if the requests differ.
func writeQueue(w io.Writer, lock *wire.GetLockResponse) {
	if len(lock.GetQueue()) == 0 {
		fmt.Fprintln(w, "nobody waits")
		return
	}
	plain := !slices.ContainsFunc(lock.GetQueue(), func(q *wire.WaiterInfo) bool { return wants(q) != "exclusively" })
	heads := []string{"QUEUE", "WAITING", "GIVES UP", "HEARTBEAT"}
	if !plain {
		heads = append(heads, "WANTS IT")
	}
	t := newTable(append(heads, "WAITER")...)
	for _, q := range lock.GetQueue() {
		cells := []string{fmt.Sprint(q.GetPosition()), millis(q.GetWaitingMs()), waitLeft(q), ago(q.HeartbeatAgeMs)}
		if !plain {
			cells = append(cells, wants(q))
		}
		t.row(append(cells, who(q))...)
	}
	t.write(w)
	if more := lock.GetQueueLength() - uint64(len(lock.GetQueue())); lock.GetQueueLength() > uint64(len(lock.GetQueue())) {
		fmt.Fprintf(w, "and %d more\n", more)
	}
}
