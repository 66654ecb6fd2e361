package bench

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// schedule determines when operations are due; the next free worker takes each. In an open loop it does not
// depend on how long operations take: after a stall the workers find overdue operations, one after the
// other.
type schedule struct {
	mu    sync.Mutex
	until time.Time            // nothing is due from then on
	due   time.Time            // the next operation of an open loop
	gap   func() time.Duration // from due to the operation after it; nil in a closed loop
}

func newSchedule(p *Plan, begin, until time.Time) *schedule {
	s := &schedule{until: until, due: begin}
	if p.Rate > 0 {
		s.gap = gaps(p)
	}
	return s
}

// gaps returns a function that returns the gaps between the operations of an open loop. Even gaps are
// computed from the start, so that rounding errors do not accumulate.
func gaps(p *Plan) func() time.Duration {
	mean := float64(time.Second) / p.Rate
	if p.Random {
		random := rand.New(rand.NewPCG(p.Seed, 0))
		return func() time.Duration { return time.Duration(random.ExpFloat64() * mean) }
	}
	var number, before float64
	return func() time.Duration {
		number++
		gap := time.Duration(number*mean) - time.Duration(before*mean)
		before = number
		return gap
	}
}

// take returns when the next operation is due for a worker that has been free since the given time. That
// may be in the past or the future. ok is false if no operation is left.
func (s *schedule) take(free time.Time) (due time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gap == nil {
		return free, free.Before(s.until)
	}
	if due = s.due; !due.Before(s.until) {
		return due, false
	}
	s.due = due.Add(s.gap())
	return due, true
}

// cut ends the schedule at that time if it would end later.
func (s *schedule) cut(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.Before(s.until) {
		s.until = at
	}
}

// left calls each for every operation of an open loop that has not begun.
func (s *schedule) left(each func(due time.Time)) {
	if s.gap == nil {
		return
	}
	for due, ok := s.take(time.Time{}); ok; due, ok = s.take(time.Time{}) {
		each(due)
	}
}

// alarm wakes one worker at a time.
type alarm interface {
	// sleep returns true at the given time, or false as soon as ctx ends if that is earlier.
	sleep(ctx context.Context, at time.Time) bool
	close()
}

// timer is the alarm of Go's runtime, which may be a millisecond late.
type timer struct{}

func (timer) sleep(ctx context.Context, at time.Time) bool {
	d := time.Until(at)
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (timer) close() {}
