package keys

import (
	"context"
	"sync"
)

// acquires are the acquires in progress on this node, and their releases, by the hash of their secret. Each ends the one
// before it: it repeats it on another link, or its client has gone. It waits until that has ended, because a release
// that overtakes its acquire would leave the lock behind.
type acquires struct {
	mu   sync.Mutex
	last map[string]*acquire // guarded by mu
}

// acquire is one of them.
type acquire struct {
	// turn is closed when the one before has ended.
	turn <-chan struct{}
	ctx  context.Context
	stop context.CancelFunc
	done chan struct{}
}

func newAcquires() *acquires { return &acquires{last: map[string]*acquire{}} }

// begin registers another acquire or release.
func (a *acquires) begin(ctx context.Context, secret string) *acquire {
	one := &acquire{turn: ended, done: make(chan struct{})}
	one.ctx, one.stop = context.WithCancel(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if before := a.last[secret]; before != nil {
		before.stop()
		one.turn = before.done
	}
	a.last[secret] = one
	return one
}

var ended = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (a *acquires) end(secret string, one *acquire) {
	one.stop()
	close(one.done)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last[secret] == one {
		delete(a.last, secret)
	}
}
