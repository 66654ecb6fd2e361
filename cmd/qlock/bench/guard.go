package bench

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrBroken is returned when a lock was held by two who must not hold it together, or a
// fencing token did not rise.
var ErrBroken = errors.New("the lock broke its promise")

// guard looks on at one lock. It knows only this program's holders.
type guard struct {
	mu      sync.Mutex
	readers int
	writer  bool
	token   uint64    // of the last writer
	freed   time.Time // when the last holder began to unlock; zero once somebody was granted
}

// enter takes note of a grant. It returns how long nobody had the lock, if there was
// somebody before.
func (g *guard) enter(shared bool, token uint64, at time.Time) (handOver time.Duration, handed bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.writer || g.readers > 0 && !shared:
		err = fmt.Errorf("%w: granted with token %d while %d readers or a writer held it", ErrBroken, token, g.readers)
	case !shared && token <= g.token:
		err = fmt.Errorf("%w: token %d after token %d", ErrBroken, token, g.token)
	}
	if shared {
		g.readers++
	} else {
		g.writer, g.token = true, max(g.token, token)
	}
	handOver, handed = at.Sub(g.freed), !g.freed.IsZero()
	g.freed = time.Time{}
	return handOver, handed, err
}

// leave comes before the unlock is sent.
func (g *guard) leave(shared bool, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if shared {
		g.readers--
	} else {
		g.writer = false
	}
	g.freed = at
}
