package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	lineName   = "line"
	lineLength = 5
	pinned     = 2
)

// line is a queue of waiters behind a hold that lasts as long as the load, along with other such holds. None
// of them may lose its hold or place, whatever the faults.
type line struct {
	*actor
	sessions []*client.Session
	pinned   []*hold // the first is the one that the line waits for
	places   []uint64
	served   chan uint64
}

// Line is complete when Start returns. Check examines it during the load.
var Line = Part{lineName, func(r *Run) {
	l := &line{served: make(chan uint64, lineLength)}
	stands := make(chan struct{})
	r.start(lineName, func(a *actor) {
		defer close(stands)
		l.actor = a
		a.must("line up", l.form())
	})
	<-stands
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, l)
}}

// form acquires the holds and enqueues the waiters, one after the other.
func (l *line) form() error {
	c := l.Run.client(lineName)
	for range 3 {
		s, err := l.open(l.ctx, c, l.opts.TTL, true)
		if err != nil {
			return err
		}
		l.sessions = append(l.sessions, s)
	}
	for i := range 1 + pinned {
		h, err := l.lock(l.ctx, l.sessions[i%len(l.sessions)], lock(lineName, i))
		if err != nil {
			return err
		}
		l.pinned = append(l.pinned, h)
	}
	for i := range lineLength {
		l.start("waiting in line", func(a *actor) { a.must("wait", l.wait(a, l.sessions[(i+1)%len(l.sessions)])) })
		if !l.within(l.opts.TTL, func() bool { l.places = l.queue(); return len(l.places) == i+1 }) {
			return fmt.Errorf("%d of %d wait", len(l.places), i+1)
		}
	}
	return nil
}

func (l *line) wait(a *actor, s *client.Session) error {
	h, err := a.lock(a.ctx, s, lock(lineName, 0))
	if err != nil {
		return err
	}
	l.served <- h.ID()
	return a.briefly(h, nil)
}

// queue returns the waiters, in order.
func (l *line) queue() (ids []uint64) {
	ctx, cancel := context.WithTimeout(l.ctx, 2*l.opts.TTL)
	defer cancel()
	found, err := wirecall.Of(l.reader).GetLock(ctx, &wire.GetLockRequest{Name: lock(lineName, 0)})
	l.must("read the line", err)
	for _, w := range found.GetQueue() {
		ids = append(ids, w.GetWaitId())
	}
	return ids
}

// check compares the line with its initial state.
func (l *line) check(when string) {
	if now := l.queue(); !slices.Equal(now, l.places) {
		l.fault("after %s the line is %v, it was %v", when, now, l.places)
	}
	for _, h := range l.pinned {
		if h.Context().Err() != nil {
			l.fault("after %s %s is lost: %v", when, h.Name(), context.Cause(h.Context()))
		}
	}
}

// release lets the waiters proceed.
func (l *line) release() { l.must("release the head of the line", l.pinned[0].release()) }

// leave compares the order in which the waiters were served with their places, and ends the rest.
func (l *line) leave() {
	close(l.served)
	var served []uint64
	for id := range l.served {
		served = append(served, id)
	}
	if !slices.Equal(served, l.places) {
		l.fault("in line were %v, they were served as %v", l.places, served)
	}
	for _, h := range l.pinned[1:] {
		l.must("release "+h.Name(), h.release())
	}
	for _, s := range l.sessions {
		l.must("close a session", s.Close(l.ctx))
	}
}

// within waits for a condition.
func (r *Run) within(limit time.Duration, ok func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for begin := r.env.Log.Now(); !ok(); <-tick.C {
		if r.env.Log.Now()-begin > limit {
			return false
		}
	}
	return true
}
