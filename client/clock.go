package client

import (
	"sync"
	"time"
)

// Clock measures the time that decides whether a session is alive. Now must include suspended time and must
// never go back. Only differences of its values are used.
type Clock interface {
	Now() time.Duration
	// AfterFunc calls f in a new goroutine once Now has advanced by d. It may be late, but never early.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a pending call of AfterFunc.
type Timer interface {
	// Stop reports whether it prevented the call.
	Stop() bool
}

// RuntimeClock returns a Clock based on Go's monotonic clock. On most systems that clock stops while the
// machine is suspended. Use it in tests and on systems without a better clock.
func RuntimeClock() Clock { return &runtimeClock{start: time.Now()} }

type runtimeClock struct{ start time.Time }

// Now returns the time since the clock was created.
func (c *runtimeClock) Now() time.Duration { return time.Since(c.start) }

// AfterFunc calls time.AfterFunc.
func (c *runtimeClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// moment is a mutex that reads the clock at most once while it is held, since reading the clock can be
// expensive. Everything decided under it is decided for that time.
type moment struct {
	sync.Mutex
	clock Clock
	at    time.Duration // 0 until the clock is read
}

// now returns the time of the first call since the mutex was locked.
func (m *moment) now() time.Duration {
	if m.at == 0 {
		m.at = m.clock.Now()
	}
	return m.at
}

// Unlock forgets the time and releases the mutex.
func (m *moment) Unlock() {
	m.at = 0
	m.Mutex.Unlock()
}
