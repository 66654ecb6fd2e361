package bench

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrBroken is returned when a lock had two holders that exclude each other, or a fencing token did not
// increase.
var ErrBroken = errors.New("the lock broke its promise")

// lock is one lock and checks its guarantees. It knows only the holders of this program.
type lock struct {
	name string

	mu      sync.Mutex
	readers map[Hold]struct{}
	writer  Hold      // nil if there is none
	token   uint64    // of the last writer
	freed   time.Time // when the last holder began to unlock; zero after the next grant
}

// enter records a grant. It returns for how long the lock was free, if it had a holder before, and
// ErrBroken if the grant violates a guarantee. Holds that have ended by themselves exclude nobody.
func (l *lock) enter(h Hold, shared bool, at time.Time) (handOver time.Duration, handed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.inTheWay(shared); other != nil && lives(h) {
		err = fmt.Errorf("%w: %s is granted with token %d while it is held with token %d", ErrBroken, l.name, h.Token(), other.Token())
	}
	if shared {
		if l.readers == nil {
			l.readers = map[Hold]struct{}{}
		}
		l.readers[h] = struct{}{}
	} else {
		if h.Token() <= l.token && lives(h) {
			err = fmt.Errorf("%w: %s is granted with token %d after token %d", ErrBroken, l.name, h.Token(), l.token)
		}
		l.writer, l.token = h, max(l.token, h.Token())
	}
	handOver, handed = at.Sub(l.freed), !l.freed.IsZero()
	l.freed = time.Time{}
	return handOver, handed, err
}

// inTheWay returns a hold that excludes a new one, or nil.
func (l *lock) inTheWay(shared bool) Hold {
	if l.writer != nil && lives(l.writer) {
		return l.writer
	}
	if !shared {
		for h := range l.readers {
			if lives(h) {
				return h
			}
		}
	}
	return nil
}

func lives(h Hold) bool { return h.Context().Err() == nil }

// leave records the end of a hold. Call it before sending the unlock.
func (l *lock) leave(h Hold, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.readers, h)
	if l.writer == h {
		l.writer = nil
	}
	l.freed = at
}
