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

// Check says, in the middle of things, whether anybody lost a hold or a place who must
// not. The cluster has to answer within twice the TTL.
func (r *Run) Check(when string) {
	for _, l := range r.lines {
		l.check(when)
	}
}

// Bound is how long after healing everybody has an answer: whoever died has expired by
// then.
func (r *Run) Bound() time.Duration { return 2*r.opts.TTL + 10*time.Second }

// Finish ends the load once every fault has: everybody is answered within Bound, nothing
// is held but what somebody knows of, then nothing at all, and all sessions end. What is
// not so is a fault in the log. It closes every client.
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

// Abandon ends the load as it is, whatever still waits. It may be called again.
func (r *Run) Abandon() {
	r.end()
	r.cancel()
	r.closeClients()
	r.acting.Wait()
	r.closeClients() // of those who had just begun
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

// pinned are the holds that are known of.
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

// nothingBut waits until no other holds are left than those that are known.
func (r *Run) nothingBut(known []string) {
	var found []string
	if !r.within(2*r.opts.TTL, func() bool { found = r.held(); return slices.Equal(found, known) }) {
		r.fault("held silently: found %v, known are %v", found, known)
	}
}

// held lists all holds and waits of the load.
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

// ask reads for everybody.
func ask[Q, A any](r *Run, what string, read func(context.Context, Q) (A, error), q Q) A {
	ctx, cancel := context.WithTimeout(context.Background(), 2*r.opts.TTL)
	defer cancel()
	answer, err := read(ctx, q)
	if err != nil {
		r.fault("%s: %v", what, err)
	}
	return answer
}
