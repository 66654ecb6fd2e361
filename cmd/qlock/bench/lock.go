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

// lock is one lock, and looks on at it. It knows only this program's holders.
type lock struct {
	name string

	mu      sync.Mutex
	readers int
	writer  bool
	token   uint64    // of the last writer
	freed   time.Time // when the last holder began to unlock; zero once somebody was granted
}

// enter takes note of a grant. It returns how long nobody had the lock, if there was
// somebody before.
func (l *lock) enter(shared bool, token uint64, at time.Time) (handOver time.Duration, handed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.writer || l.readers > 0 && !shared:
		err = fmt.Errorf("%w: granted with token %d while %d readers or a writer held it", ErrBroken, token, l.readers)
	case !shared && token <= l.token:
		err = fmt.Errorf("%w: token %d after token %d", ErrBroken, token, l.token)
	}
	if shared {
		l.readers++
	} else {
		l.writer, l.token = true, max(l.token, token)
	}
	handOver, handed = at.Sub(l.freed), !l.freed.IsZero()
	l.freed = time.Time{}
	return handOver, handed, err
}

// leave comes before the unlock is sent.
func (l *lock) leave(shared bool, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if shared {
		l.readers--
	} else {
		l.writer = false
	}
	l.freed = at
}
