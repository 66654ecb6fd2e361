package examine

import (
	"sync"
	"time"
)

const (
	// clockInterval is how often the clock is looked at.
	clockInterval = 10 * time.Second
	// kept is how long a step of the clock and a time without a leader count.
	kept = time.Hour
	// leastStep is the shortest step that counts. Corrections of the clock's speed are slower than that.
	leastStep = 100 * time.Millisecond
)

// clock detects when the wall clock is set, by comparing it with the monotonic one.
type clock struct {
	mu    sync.Mutex // guards the fields below
	last  time.Time
	steps []step
}

// step is a time at which the clock was set, or the machine was suspended.
type step struct {
	at time.Time
	by time.Duration
}

func newClock(now time.Time) *clock { return &clock{last: now} }

// look returns the sum of the last hour's steps. now must have a monotonic reading.
func (c *clock) look(now time.Time) (sum time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observe(now, now.Round(0).Sub(c.last.Round(0)), now.Sub(c.last))
	for _, s := range c.steps {
		sum += s.by
	}
	return sum
}

// observe records how far the wall clock and the monotonic clock have advanced.
func (c *clock) observe(now time.Time, wall, monotonic time.Duration) {
	c.last = now
	if by := (wall - monotonic).Abs(); by >= leastStep {
		c.steps = append(c.steps, step{now, by})
	}
	for len(c.steps) > 0 && now.Sub(c.steps[0].at) > kept {
		c.steps = c.steps[1:]
	}
}
