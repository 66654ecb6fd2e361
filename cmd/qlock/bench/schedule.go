package bench

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// schedule says when operations are due, to whichever worker asks next. That of an open
// loop does not know how long operations take: after a stall workers find theirs overdue,
// one after the other.
type schedule struct {
	mu    sync.Mutex
	until time.Time            // nothing is due from then on
	due   time.Time            // the next operation of an open loop
	gap   func() time.Duration // to the one after it; nil in a closed loop
}

func newSchedule(p *Plan, begin, until time.Time) *schedule {
	s := &schedule{until: until, due: begin}
	if p.Rate > 0 {
		s.gap = gaps(p)
	}
	return s
}

// gaps are those between the operations of an open loop. Even ones are counted from the
// beginning, so that rounding does not add up.
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

// take is the time at which the next operation of a caller is due that is free since then,
// which may be over or yet to come; ok is false if there is none left.
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

// cut ends the schedule at that time, if it would go on longer.
func (s *schedule) cut(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.Before(s.until) {
		s.until = at
	}
}

// left calls each for every operation that an open loop still had to begin.
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
	// sleep returns true when it is at, or false as soon as ctx ends before.
	sleep(ctx context.Context, at time.Time) bool
	close()
}

// timer is the alarm of Go's runtime, which may ring a millisecond late.
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
