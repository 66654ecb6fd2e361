package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxExplained is how many waiters are explained unless one session is selected.
const maxExplained = 10

// whyVerb answers "why am I waiting?".
func whyVerb(dial dialer) *cli.Command {
	return &cli.Command{
		Name:      "why",
		Usage:     "explain why requests wait for a lock",
		ArgsUsage: "NAME",
		Description: "Shows for each waiter: who is ahead, the lock's holders and whether they are alive, the\n" +
			"other locks that the request waits for, and whether it is deadlocked.",
		Flags: []cli.Flag{
			&cli.Uint64Flag{Name: "session", DefaultText: "the first ten", Usage: "only the session with this `ID`"},
		},
		Action: func(c *cli.Context) error {
			args := arguments(c)
			if len(args) != 1 {
				return usagef("why takes one lock's name, as in qlock why orders/42")
			}
			if err := checkName(args[0]); err != nil {
				return err
			}
			return ask(c, dial, defaultTimeout, func(ctx context.Context, svc service) error {
				r, err := reasonsFor(ctx, svc, args[0])
				if err != nil {
					return err
				}
				return show(c, r, func(w io.Writer) { r.write(w, c.Uint64("session")) })
			})
		},
	}
}

// reasons holds everything that explains the waits for one lock.
type reasons struct {
	lock      *wire.GetLockResponse
	others    map[string]*wire.GetLockResponse // the other locks of acquires of several locks
	deadlocks []*wire.Deadlock                 // those that a waiter is part of
}

// reasonsFor reads the reasons. The reads are not from a single moment.
func reasonsFor(ctx context.Context, svc service, name string) (*reasons, error) {
	r := &reasons{others: map[string]*wire.GetLockResponse{}}
	var err error
	r.lock, err = svc.GetLock(ctx, &wire.GetLockRequest{Name: name})
	if errors.Is(err, client.ErrNotFound) {
		return nil, noLock(name)
	}
	if err != nil {
		return nil, err
	}
	for _, q := range r.lock.GetQueue()[:min(maxExplained, len(r.lock.GetQueue()))] {
		for _, other := range without(q.GetLocks(), name) {
			if r.others[other] != nil {
				continue
			}
			lock, err := svc.GetLock(ctx, &wire.GetLockRequest{Name: other})
			if err != nil && !errors.Is(err, client.ErrNotFound) {
				return nil, err
			}
			r.others[other] = lock
		}
	}
	answer, err := svc.ListDeadlocks(ctx, &wire.ListDeadlocksRequest{})
	for _, d := range answer.GetDeadlocks() {
		if slices.ContainsFunc(d.GetCycle(), func(s *wire.DeadlockStep) bool { return s.GetLock() == name }) {
			r.deadlocks = append(r.deadlocks, d)
		}
	}
	return r, err
}

// MarshalJSON encodes the lock as show does, with the deadlocks added.
func (r *reasons) MarshalJSON() ([]byte, error) {
	deadlocks, err := list[*wire.Deadlock]{"deadlocks", r.deadlocks}.MarshalJSON()
	if err != nil {
		return nil, err
	}
	extra := map[string]any{}
	if err := json.Unmarshal(deadlocks, &extra); err != nil {
		return nil, err
	}
	return with{r.lock, extra}.MarshalJSON()
}

// write explains the waits to people, for all waiters or for those of one session.
func (r *reasons) write(w io.Writer, session uint64) {
	fmt.Fprintln(w, printable(r.lock.GetName())+kindOf(r.lock))
	writeHolders(w, r.lock)
	shown := 0
	for i, q := range r.lock.GetQueue() {
		if session != 0 && q.GetSessionId() != session || session == 0 && shown == maxExplained {
			continue
		}
		shown++
		r.writeWait(w, i, q)
	}
	switch length := r.lock.GetQueueLength(); {
	case length == 0:
		fmt.Fprintln(w, "nobody waits")
	case shown == 0:
		fmt.Fprintf(w, "session %d does not wait for it\n", session)
	case session == 0 && length > uint64(shown):
		fmt.Fprintf(w, "and %d more\n", length-uint64(shown))
	}
	if len(r.deadlocks) > 0 {
		fmt.Fprintln(w, "it never ends by itself:")
		writeDeadlocks(w, r.deadlocks)
	}
}

// writeWait explains one place in the queue.
func (r *reasons) writeWait(w io.Writer, at int, q *wire.WaiterInfo) {
	until := ", gives up " + waitLeft(q)
	if q.GetWaitForever() {
		until = " without bound"
	}
	fmt.Fprintf(w, "%d. %s wants it %s, waiting for %s%s\n", q.GetPosition(), who(q),
		wants(q), millis(q.GetWaitingMs()), until)
	for _, reason := range r.reasons(at, q) {
		fmt.Fprintf(w, "   %s\n", reason)
	}
}

// reasons returns why a request still waits.
func (r *reasons) reasons(at int, q *wire.WaiterInfo) []string {
	var why []string
	queue := r.lock.GetQueue()
	if r.lock.GetOrder() == wire.Order_UNFAIR {
		if n := r.lock.GetQueueLength(); n > 1 {
			why = append(why, fmt.Sprintf("when it comes free, one of %d is drawn", n))
		}
		at = 0
	}
	switch {
	case q.GetUpgrade():
		why = append(why, "waits for the other holders to go; all others wait for it")
	case at == 0:
		why = append(why, blockers(r.lock, q)...)
	default:
		ahead := queue[at-1]
		why = append(why, fmt.Sprintf("waits behind %s, %d ahead", who(ahead), q.GetPosition()-1))
	}
	for _, name := range without(q.GetLocks(), r.lock.GetName()) {
		why = append(why, r.also(name, q))
	}
	return why
}

// blockers describes what keeps the first waiter in a queue waiting.
func blockers(lock *wire.GetLockResponse, q *wire.WaiterInfo) []string {
	var why []string
	free := lock.GetLimit() - min(lock.GetLimit(), lock.GetPermitsUsed())
	if lock.GetLimit() > 0 && q.GetPermits() > free {
		why = append(why, fmt.Sprintf("wants %s, and %d are free", count(q.GetPermits(), "permit"), free))
	}
	for _, h := range lock.GetHolders() {
		if lock.GetLimit() == 0 && (q.GetMode() != wire.Mode_SHARED || h.GetMode() != wire.Mode_SHARED) {
			why = append(why, fmt.Sprintf("waits for %s to release it, %s", who(h), liveness(h)))
			why = append(why, whyCached(h)...)
		}
	}
	for _, d := range lock.GetDelays() {
		why = append(why, fmt.Sprintf("waits for the lock-delay to end, in %s", left(d.RemainingMs)))
	}
	return why
}

// whyCached explains that a session keeps the lock although it may not use it.
func whyCached(h *wire.HolderInfo) []string {
	switch {
	case h.GetTokens() == 0:
		return nil
	case h.GetRecalled():
		return []string{"the holder keeps the lock cached, and was asked to give it back as soon as it is not in use"}
	}
	return []string{"the holder keeps the lock cached, and is about to be asked to give it back"}
}

// also describes the wait for another lock of the same acquire.
func (r *reasons) also(name string, q *wire.WaiterInfo) string {
	text := "also wants " + printable(name)
	lock := r.others[name]
	at := slices.IndexFunc(lock.GetQueue(), func(o *wire.WaiterInfo) bool { return o.GetWaitId() == q.GetWaitId() })
	switch {
	case at > 0:
		return fmt.Sprintf("%s, with %d ahead", text, at)
	case at == 0 && len(lock.GetHolders()) > 0:
		h := lock.GetHolders()[0]
		return fmt.Sprintf("%s, held by %s", text, who(h))
	case at == 0 && len(lock.GetDelays()) > 0:
		return text + ", closed by a lock-delay"
	case at == 0:
		return text + ", where it is next"
	}
	return text
}
