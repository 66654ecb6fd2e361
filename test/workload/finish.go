package workload

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Check verifies, during the load, that no actor of a line has lost its hold or place. The cluster has to
// answer within twice the TTL.
func (r *Run) Check(when string) {
	for _, l := range r.lines {
		l.check(when)
	}
}

// Bound is how long after healing every request must be answered. Sessions of dead clients have expired by
// then.
func (r *Run) Bound() time.Duration { return 2*r.opts.TTL + 10*time.Second }

// Finish ends the load after all faults have been healed. It verifies that every request is answered within
// Bound, that only known holds remain, then none, and that all sessions end. Violations are recorded as
// faults in the log. It closes every client.
func (r *Run) Finish() Counts {
	r.conclude()
	r.Abandon()
	return r.did
}

func (r *Run) conclude() {
	r.end()
	for _, l := range r.lines {
		l.release()
	}
	if !r.answered() {
		return
	}
	r.nothingBut(r.pinned())
	for _, l := range r.lines {
		l.leave()
	}
	for _, check := range r.atEnd {
		check()
	}
	r.nobodyLeft()
}

// Abandon ends the load as it is, whatever is still waiting. It may be called repeatedly.
func (r *Run) Abandon() {
	r.end()
	r.cancel()
	r.closeClients()
	r.acting.Wait()
	r.closeClients() // of actors that had just started
	r.following.Wait()
}

func (r *Run) closeClients() {
	r.mu.Lock()
	clients := slices.Clone(r.clients)
	r.mu.Unlock()
	for _, c := range clients {
		_ = c.Close()
	}
}

// answered waits until every actor has finished.
func (r *Run) answered() bool {
	done := make(chan struct{})
	go func() { r.acting.Wait(); close(done) }()
	bound := time.NewTimer(r.Bound())
	defer bound.Stop()
	select {
	case <-done:
		return true
	case <-bound.C:
	}
	r.mu.Lock()
	busy := maps.Clone(r.busy)
	r.mu.Unlock()
	r.fault("not answered %v after healing: %v", r.Bound(), busy)
	return false
}

// pinned returns the known holds.
func (r *Run) pinned() (known []string) {
	for _, l := range r.lines {
		for _, h := range l.pinned[1:] {
			known = append(known, held(h.Name(), h.ID(), h.Token()))
		}
	}
	return known
}

func held(lock string, id, token uint64) string {
	return fmt.Sprintf("%s by %d with token %d", lock, id, token)
}

// nothingBut waits until only the known holds remain.
func (r *Run) nothingBut(known []string) {
	var found []string
	if !r.within(2*r.opts.TTL, func() bool { found = r.held(); return slices.Equal(found, known) }) {
		r.fault("held silently: found %v, known are %v", found, known)
	}
}

// held returns all holds and waits of the load.
func (r *Run) held() (found []string) {
	all := ask(r, "list locks", r.reader.ListLocks, &wire.ListLocksRequest{Prefix: Prefix})
	for _, l := range all.GetLocks() {
		for _, h := range l.GetHolders() {
			found = append(found, held(l.GetName(), h.GetHoldId(), h.GetToken()))
		}
		for _, w := range l.GetQueue() {
			found = append(found, fmt.Sprintf("%s awaited by %d", l.GetName(), w.GetWaitId()))
		}
	}
	return found
}

// nobodyLeft waits until no session of the load is left.
func (r *Run) nobodyLeft() {
	var left []string
	if !r.within(2*r.opts.TTL, func() bool { left = r.sessions(); return len(left) == 0 }) {
		r.fault("sessions that never ended: %v", left)
	}
}

func (r *Run) sessions() (left []string) {
	all := ask(r, "list sessions", r.reader.ListSessions, &wire.ListSessionsRequest{PageSize: 1000})
	for _, s := range all.GetSessions() {
		if name := s.GetClient().GetName(); strings.HasPrefix(name, Prefix) {
			left = append(left, fmt.Sprintf("%d (%s)", s.GetSessionId(), name))
		}
	}
	return left
}

// ask makes a read for the checks.
func ask[Q, A any](r *Run, what string, read func(context.Context, Q) (A, error), q Q) A {
	ctx, cancel := context.WithTimeout(context.Background(), 2*r.opts.TTL)
	defer cancel()
	answer, err := read(ctx, q)
	if err != nil {
		r.fault("%s: %v", what, err)
	}
	return answer
}
