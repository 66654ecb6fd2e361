package expiry

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// deadlinesOf returns the deadlines of that many sessions.
func deadlinesOf(b *testing.B, sessions int) *Deadlines {
	d := newDeadlines(func(uint64, ending, func(*wire.Result)) bool { return true })
	d.Start(1, fsm.New(1))
	for i := range sessions {
		d.Observe(opened(uint64(i+1), 10*time.Second))
	}
	return d
}

// BenchmarkDeadlines measures operations on deadlines when there are that many sessions.
func BenchmarkDeadlines(b *testing.B) {
	for _, sessions := range []int{100, 100_000} {
		b.Run(fmt.Sprint("touch/sessions=", sessions), func(b *testing.B) {
			d := deadlinesOf(b, sessions)
			now := time.Now()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				d.Touch(uint64(i%sessions)+1, now.Add(time.Duration(i)))
			}
		})
		b.Run(fmt.Sprint("begin-end/sessions=", sessions), func(b *testing.B) {
			d := deadlinesOf(b, sessions)
			wait := []*wire.Event{
				{Type: wire.Event_QUEUED, HoldId: 1 << 40, Generation: 1, WaitMs: 5_000},
				{Type: wire.Event_GRANTED, HoldId: 1 << 40, Waited: true},
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				d.Observe(wait)
			}
		})
		b.Run(fmt.Sprint("pass/sessions=", sessions), func(b *testing.B) {
			benchmarkPass(b, sessions)
		})
	}
}

// benchmarkPass measures a deadline that comes up for a session with signs of life.
func benchmarkPass(b *testing.B, sessions int) {
	d := deadlinesOf(b, sessions)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		first := d.heap[0]
		now := first.at
		d.Touch(first.id, now)
		if _, due, _, _ := d.pop(now); len(due) > 0 {
			b.Fatal("a session that was heard of is due")
		}
	}
}
