package virtual_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

// counts are what a run did; one that did too little proves nothing.
type counts struct {
	clusters, operations, grants, timeouts, cancels, expiries, leaders, repeated, entries int
}

func (n *counts) add(o counts) {
	n.clusters += o.clusters
	n.operations += o.operations
	n.grants += o.grants
	n.timeouts += o.timeouts
	n.cancels += o.cancels
	n.expiries += o.expiries
	n.leaders += o.leaders
	n.repeated += o.repeated
	n.entries += o.entries
}

func (n counts) String() string {
	return fmt.Sprintf("%d clusters, %d operations, %d grants, %d time-outs, %d cancelled waits, %d sessions expired, %d leader changes, %d requests repeated, %d log entries",
		n.clusters, n.operations, n.grants, n.timeouts, n.cancels, n.expiries, n.leaders, n.repeated, n.entries)
}

// ledger is what the clients' users saw, in one time line.
type ledger struct {
	c *cluster

	mu       sync.Mutex
	holds    []*held
	sessions []*life
	counts   counts
	faults   []string
}

// held is one hold as its user saw it.
type held struct {
	lock                         string
	session, id, token, revision uint64
	asked, granted               time.Duration
	// ended is when its context was cancelled, never if it was not yet.
	ended time.Duration
	// released says that the unlock was acknowledged.
	released bool
}

// life is one session as its user saw it.
type life struct {
	id     uint64
	ttl    time.Duration
	steady bool // its client was never cut off
	lost   time.Duration
	why    error
}

const never = time.Duration(1<<63 - 1)

func newLedger(c *cluster) *ledger { return &ledger{c: c} }

func (l *ledger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, fmt.Sprintf("%v: ", l.c.now())+fmt.Sprintf(format, args...))
}

// open opens a session and follows it to its end.
func (l *ledger) open(ctx context.Context, cl *client.Client, name string, ttl time.Duration, steady bool) (*client.Session, error) {
	s, err := cl.NewSession(ctx, client.SessionOptions{TTL: ttl, Name: name})
	if err != nil {
		return nil, err
	}
	entry := &life{id: s.ID(), ttl: s.TTL(), steady: steady, lost: never}
	l.mu.Lock()
	l.sessions = append(l.sessions, entry)
	l.mu.Unlock()
	go func() {
		<-s.Lost()
		at, why := l.c.now(), s.Err()
		l.mu.Lock()
		entry.lost, entry.why = at, why
		l.mu.Unlock()
	}()
	return s, nil
}

// locking makes one call for a lock and books what comes of it.
func (l *ledger) locking(s *client.Session, name string, call func() (*client.Hold, error)) (*client.Hold, *held, error) {
	asked := l.c.now()
	h, err := call()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.operations++
	switch {
	case errors.Is(err, client.ErrTimeout):
		l.counts.timeouts++
	case errors.Is(err, context.DeadlineExceeded):
		l.counts.cancels++
	}
	if err != nil {
		return nil, nil, err
	}
	l.counts.grants++
	entry := &held{lock: name, session: s.ID(), id: h.ID(), token: h.Token(), revision: h.Revision(), asked: asked, granted: l.c.now(), ended: never}
	l.holds = append(l.holds, entry)
	context.AfterFunc(h.Context(), func() {
		at := l.c.now()
		l.mu.Lock()
		entry.ended = at
		l.mu.Unlock()
	})
	return h, entry, nil
}

// unlock gives a hold back and books that it was acknowledged.
func (l *ledger) unlock(h *client.Hold, entry *held) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := h.Unlock(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.operations++
	entry.released = err == nil
	return err
}

// check judges what the users saw by itself.
func (l *ledger) check() (faults []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	faults = slices.Clone(l.faults)
	locks := map[string][]*held{}
	for _, h := range l.holds {
		locks[h.lock] = append(locks[h.lock], h)
	}
	for name, holds := range locks {
		slices.SortFunc(holds, func(a, b *held) int { return cmp.Compare(a.token, b.token) })
		for i, h := range holds[1:] {
			if before := holds[i]; h.granted < before.ended {
				faults = append(faults, fmt.Sprintf("%s: token %d granted at %v while token %d was held from %v to %v", name, h.token, h.granted, before.token, before.granted, before.ended))
			}
		}
	}
	return append(faults, l.checkOrder()...)
}

// checkOrder compares revisions with tokens and with real time: what was asked for after
// something else had been granted has a higher revision.
func (l *ledger) checkOrder() (faults []string) {
	byRevision := slices.SortedFunc(slices.Values(l.holds), func(a, b *held) int { return cmp.Compare(a.revision, b.revision) })
	token := uint64(0)
	for _, h := range byRevision {
		if h.token <= token {
			faults = append(faults, fmt.Sprintf("token %d at revision %d follows token %d", h.token, h.revision, token))
		}
		token = h.token
	}
	byAsked := slices.SortedFunc(slices.Values(l.holds), func(a, b *held) int { return cmp.Compare(a.asked, b.asked) })
	byGranted := slices.SortedFunc(slices.Values(l.holds), func(a, b *held) int { return cmp.Compare(a.granted, b.granted) })
	seen, next := uint64(0), 0
	for _, h := range byAsked {
		for ; byGranted[next].granted < h.asked; next++ {
			seen = max(seen, byGranted[next].revision)
		}
		if h.revision <= seen {
			faults = append(faults, fmt.Sprintf("%s: revision %d, asked for at %v, follows revision %d", h.lock, h.revision, h.asked, seen))
		}
	}
	return faults
}
