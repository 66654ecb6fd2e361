package samples

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// running runs a sampler of a node with these totals until the test ends. The clock of the bubble is then between two
// samples.
func running(t *testing.T, totals *atomic.Pointer[fsm.Totals]) *Sampler {
	t.Helper()
	s := New(func() fsm.Totals { return *totals.Load() })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	synctest.Wait() // until its ticker runs
	time.Sleep(Interval / 2)
	return s
}

// idle is running for a node without anything.
func idle(t *testing.T) *Sampler {
	t.Helper()
	var none atomic.Pointer[fsm.Totals]
	none.Store(&fsm.Totals{})
	return running(t, &none)
}

// TestSamples verifies what a sample contains: the totals of its moment, and what happened since the sample before.
func TestSamples(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var totals atomic.Pointer[fsm.Totals]
		totals.Store(&fsm.Totals{Sessions: 1, Locks: 2, Holds: 3, Waiters: 4})
		began := time.Now()
		s := running(t, &totals)
		if got := s.List(); len(got) != 0 {
			t.Errorf("before the first interval has passed: %v", got)
		}
		s.Applied([]*wire.Event{
			{Type: wire.Event_GRANTED}, {Type: wire.Event_GRANTED, Waited: true}, {Type: wire.Event_RELEASED}, {Type: wire.Event_SESSION_EXPIRED},
		})
		s.Applied([]*wire.Event{{Type: wire.Event_EXPIRED}, {Type: wire.Event_EXPIRED}, {Type: wire.Event_GRANTED}, {Type: wire.Event_SESSION_CLOSED}})
		for _, ms := range []time.Duration{1, 2, 9} {
			s.DiskSyncs.Observe(ms * time.Millisecond)
			s.Commits.Observe(10 * ms * time.Millisecond)
		}
		time.Sleep(Interval)
		totals.Store(&fsm.Totals{Sessions: 5})
		time.Sleep(Interval)
		want := []*wire.Sample{{
			UnixMs: began.Add(Interval).UnixMilli(), Sessions: 1, Locks: 2, Holds: 3, Waiters: 4, Grants: 3, Expirations: 3,
			DiskSyncUs: middle(bucket(2_000)), DiskSyncMaxUs: 9_000, CommitUs: middle(bucket(20_000)),
		}, {UnixMs: began.Add(2 * Interval).UnixMilli(), Sessions: 5}}
		got := s.List()
		for i := range want {
			if len(got) != len(want) || !proto.Equal(got[i], want[i]) {
				t.Fatalf("%v, want %v", got, want)
			}
		}
	})
}

// TestTenMinutesAreKept verifies that the oldest sample goes when there are 120.
func TestTenMinutesAreKept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		began := time.Now()
		s := idle(t)
		early := s.List()
		for passed := 1; passed <= 250; passed++ {
			time.Sleep(Interval)
			got := s.List()
			if len(got) != min(passed, 120) {
				t.Fatalf("%d samples after %d intervals", len(got), passed)
			}
			for i, sample := range got {
				if at := began.Add(time.Duration(passed-len(got)+i+1) * Interval); sample.UnixMs != at.UnixMilli() {
					t.Fatalf("after %d intervals, sample %d is of %v", passed, i, time.UnixMilli(sample.UnixMs).Sub(began))
				}
			}
			if passed == 120 {
				early = got
			}
		}
		if early[0].UnixMs != began.Add(Interval).UnixMilli() {
			t.Error("a list that was returned has changed")
		}
	})
}

// TestLastMinute verifies that the medians of the last minute include the present interval and the twelve before it.
func TestLastMinute(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := idle(t)
		want := func(when string, disk, commit uint32) {
			t.Helper()
			if gotDisk, gotCommit := s.DiskSyncUs(), s.CommitUs(); gotDisk != disk || gotCommit != commit {
				t.Errorf("%s: %d and %d µs, want %d and %d", when, gotDisk, gotCommit, disk, commit)
			}
		}
		want("before anything happened", 0, 0)
		s.DiskSyncs.Observe(4 * time.Microsecond)
		want("at once", 4, 0)
		time.Sleep(Interval)
		for range 2 {
			s.DiskSyncs.Observe(9 * time.Microsecond)
		}
		s.Commits.Observe(7 * time.Microsecond)
		want("an interval later", 9, 7)
		time.Sleep(11 * Interval)
		for range 4 {
			s.DiskSyncs.Observe(2 * time.Microsecond)
		}
		want("after twelve intervals", 2, 7) // of 2, 2, 2, 2, 4, 9, 9
		s.DiskSyncs.Observe(11 * time.Microsecond)
		want("and one that is longer", 2, 7) // of 2, 2, 2, 2, 4, 9, 9, 11
		s.DiskSyncs.Observe(11 * time.Microsecond)
		want("and another one", 4, 7) // of 2, 2, 2, 2, 4, 9, 9, 11, 11
		time.Sleep(Interval)
		want("the first interval is gone", 2, 7) // of 2, 2, 2, 2, 9, 9, 11, 11
		time.Sleep(Interval)
		want("the second interval is gone", 2, 0) // of 2, 2, 2, 2, 11, 11
		time.Sleep(11 * Interval)
		want("all are gone", 0, 0)
	})
}

func BenchmarkApplied(b *testing.B) {
	s := New(func() fsm.Totals { return fsm.Totals{} })
	events := make([]*wire.Event, 100)
	for i := range events {
		events[i] = &wire.Event{Type: wire.Event_Type(1 + i%20)}
	}
	b.ReportAllocs()
	for range b.N {
		s.Applied(events)
	}
}
