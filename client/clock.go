package client

import (
	"sync"
	"time"
)

// Clock measures the time that decides whether a session lives. Now must run
// through suspend and never go back; only differences of it are used.
type Clock interface {
	Now() time.Duration
	// AfterFunc calls f in its own goroutine once Now has advanced by d. It may be
	// late, never early.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a call that AfterFunc has promised.
type Timer interface {
	// Stop reports whether it prevented the call.
	Stop() bool
}

// RuntimeClock is a Clock on Go's own monotonic clock. On most systems it stands
// still while the machine is suspended; it is for tests and for systems without a
// better one.
func RuntimeClock() Clock { return &runtimeClock{start: time.Now()} }

type runtimeClock struct{ start time.Time }

// Now is the time since the clock was made.
func (c *runtimeClock) Now() time.Duration { return time.Since(c.start) }

// AfterFunc is time.AfterFunc.
func (c *runtimeClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// moment is a mutex under which the clock is looked at once at most, since a look may be
// dear: what is decided under it is decided for the moment of that look.
type moment struct {
	sync.Mutex
	clock Clock
	at    time.Duration // 0 before the look
}

// now is the time of the first look since the mutex was taken.
func (m *moment) now() time.Duration {
	if m.at == 0 {
		m.at = m.clock.Now()
	}
	return m.at
}

// Unlock forgets the time and frees the mutex.
func (m *moment) Unlock() {
	m.at = 0
	m.Mutex.Unlock()
}
