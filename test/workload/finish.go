package workload

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/client/admin"
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
	list := func(ctx context.Context) iter.Seq2[admin.Lock, error] { return admin.New(r.reader).Locks(ctx, Prefix) }
	for _, l := range ask(r, "list locks", list) {
		for _, h := range l.Holders {
			found = append(found, held(l.Name, h.HoldID, h.Token))
		}
		for _, w := range l.Queue {
			found = append(found, fmt.Sprintf("%s awaited by %d", l.Name, w.WaitID))
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
	list := func(ctx context.Context) iter.Seq2[admin.Session, error] { return admin.New(r.reader).Sessions(ctx) }
	for _, s := range ask(r, "list sessions", list) {
		if strings.HasPrefix(s.Client.Name, Prefix) {
			left = append(left, fmt.Sprintf("%d (%s)", s.SessionID, s.Client.Name))
		}
	}
	return left
}

// ask reads a list for the checks.
func ask[T any](r *Run, what string, list func(context.Context) iter.Seq2[T, error]) (all []T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*r.opts.TTL)
	defer cancel()
	for item, err := range list(ctx) {
		if err != nil {
			r.fault("%s: %v", what, err)
			break
		}
		all = append(all, item)
	}
	return all
}
