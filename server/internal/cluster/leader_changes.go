package cluster

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// LeaderChanges notifies subscribers of leadership changes. A slow subscriber gets only the latest change. The hint
// includes the term, so every subscriber notices that leadership has changed.
type LeaderChanges struct {
	mu   sync.Mutex
	last *wire.LeaderHint
	subs map[*func(*wire.LeaderHint)]struct{}
	wake chan struct{}
}

// NewLeaderChanges creates a LeaderChanges without a leader.
func NewLeaderChanges() *LeaderChanges {
	return &LeaderChanges{last: &wire.LeaderHint{}, subs: map[*func(*wire.LeaderHint)]struct{}{}, wake: make(chan struct{}, 1)}
}

// Publish records the current leader, and notifies the subscribers if it differs from the previous one.
func (l *LeaderChanges) Publish(hint *wire.LeaderHint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if proto.Equal(hint, l.last) {
		return
	}
	l.last = hint
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run calls the subscribers until ctx ends.
func (l *LeaderChanges) Run(ctx context.Context) {
	for {
		select {
		case <-l.wake:
			hint, subs := l.latest()
			for _, f := range subs {
				(*f)(proto.CloneOf(hint))
			}
		case <-ctx.Done():
			return
		}
	}
}

func (l *LeaderChanges) latest() (*wire.LeaderHint, []*func(*wire.LeaderHint)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	subs := make([]*func(*wire.LeaderHint), 0, len(l.subs))
	for f := range l.subs {
		subs = append(subs, f)
	}
	return l.last, subs
}

// Subscribe calls f for every change, in order, on one goroutine. f must not block; a slow f gets only the latest change.
// Two successive leaderships of one node differ in their term.
func (l *LeaderChanges) Subscribe(f func(*wire.LeaderHint)) (cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subs[&f] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.subs, &f)
	}
}
