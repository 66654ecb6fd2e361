package expiry

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// idleDeadlines returns deadlines that do not decide anything by themselves.
func idleDeadlines() *Deadlines {
	d := newDeadlines(func(uint64, ending, func(*wire.Result)) bool { return true })
	d.Start(7, fsm.New(1))
	return d
}

// TestEventsMoveDeadlines observes an event while there is a deadline of each kind, with id 1, generation 1
// and an hour left. The event starts a new deadline, removes the old one, or does not affect it.
func TestEventsMoveDeadlines(t *testing.T) {
	const hour, second = time.Hour, time.Second
	type left [kinds]time.Duration // for each kind, 0 if there is none
	all := left{hour, hour, hour, hour, hour}
	with := func(of Kind, d time.Duration) left {
		l := all
		l[of] = d
		return l
	}
	for name, c := range map[string]struct {
		event *wire.Event
		want  left
	}{
		"opened":           {&wire.Event{Type: wire.Event_SESSION_OPENED, TtlMs: 1000}, with(Session, second)},
		"attached":         {&wire.Event{Type: wire.Event_SESSION_ATTACHED, TtlMs: 1000}, with(Session, second)},
		"extended lease":   {&wire.Event{Type: wire.Event_SESSION_EXTENDED, TtlMs: 1000}, with(Session, second)},
		"closed":           {&wire.Event{Type: wire.Event_SESSION_CLOSED}, with(Session, 0)},
		"expired session":  {&wire.Event{Type: wire.Event_SESSION_EXPIRED}, with(Session, 0)},
		"queued":           {&wire.Event{Type: wire.Event_QUEUED, WaitMs: 1000}, with(Wait, second)},
		"queued for ever":  {&wire.Event{Type: wire.Event_QUEUED, WaitForever: true}, all},
		"cancelled":        {&wire.Event{Type: wire.Event_CANCELLED}, with(Wait, 0)},
		"granted":          {&wire.Event{Type: wire.Event_GRANTED}, with(Wait, 0)},
		"granted, bounded": {&wire.Event{Type: wire.Event_GRANTED, MaxHoldMs: 1000}, left{hour, 0, second, hour, hour}},
		"upgraded":         {&wire.Event{Type: wire.Event_GRANTED, MaxHoldMs: 1000, Upgrade: true}, with(Wait, 0)},
		"extended":         {&wire.Event{Type: wire.Event_EXTENDED, MaxHoldMs: 1000}, with(Hold, second)},
		"revoked":          {&wire.Event{Type: wire.Event_REVOKED, MaxHoldMs: 1000}, with(Grace, second)},
		"revoked in peace": {&wire.Event{Type: wire.Event_REVOKED}, all},
		"released":         {&wire.Event{Type: wire.Event_RELEASED}, left{hour, hour, 0, 0, hour}},
		"expired":          {&wire.Event{Type: wire.Event_EXPIRED}, left{hour, hour, 0, 0, hour}},
		"forced":           {&wire.Event{Type: wire.Event_FORCED}, left{hour, hour, 0, 0, hour}},
		"delayed":          {&wire.Event{Type: wire.Event_DELAYED, LockDelayMs: 1000}, with(Delay, second)},
		"delay ended":      {&wire.Event{Type: wire.Event_DELAY_ENDED}, with(Delay, 0)},
		"delay in part":    {&wire.Event{Type: wire.Event_DELAY_ENDED, Partial: true}, all},
		"extended, cached": {&wire.Event{Type: wire.Event_EXTENDED}, all},
		"wanted":           {&wire.Event{Type: wire.Event_WANTED}, all},
		"recalled":         {&wire.Event{Type: wire.Event_WANTED, MaxHoldMs: 1000}, with(Hold, second)},
	} {
		bubble.Test(t, func(t *testing.T) {
			d := idleDeadlines()
			for of := range kinds {
				d.add(&deadline{ending: ending{of, 1, 1}, ttl: hour, last: time.Now()})
			}
			c.event.SessionId, c.event.HoldId, c.event.Generation = 1, 1, 2
			d.Observe([]*wire.Event{c.event})
			var got left
			stand := 0
			for of := range kinds {
				e := d.tables[of][1]
				if e == nil {
					continue
				}
				stand++
				got[of] = e.ttl
				if began := e.ttl != hour; began != (e.generation == 2) || d.heap[e.index] != e {
					t.Errorf("%s: kind %d has generation %d", name, of, e.generation)
				}
			}
			if got != c.want || len(d.heap) != stand {
				t.Errorf("%s: %v, want %v; %d in the heap", name, got, c.want, len(d.heap))
			}
		})
	}
}

// TestLeasesAreFixed verifies that only leases are not prolonged by signs of life.
func TestLeasesAreFixed(t *testing.T) {
	for _, c := range []struct {
		event *wire.Event
		want  State
	}{
		{&wire.Event{Type: wire.Event_SESSION_OPENED}, Alive},
		{&wire.Event{Type: wire.Event_SESSION_OPENED, Leased: true}, Leased},
		{&wire.Event{Type: wire.Event_SESSION_ATTACHED}, Alive},
		{&wire.Event{Type: wire.Event_SESSION_EXTENDED}, Leased},
	} {
		d := idleDeadlines()
		c.event.SessionId, c.event.TtlMs = 1, 1000
		d.Observe([]*wire.Event{c.event})
		if got := d.Touch(1, time.Now()); got != c.want {
			t.Errorf("%v, leased %v: %v, want %v", c.event.Type, c.event.Leased, got, c.want)
		}
	}
}

// TestSignsOfLifeOnlyProlong verifies that a sign of life counts from its arrival, that one which arrived
// earlier than another has no effect, and that none moves the end of a lease or of a decided session.
func TestSignsOfLifeOnlyProlong(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d, started := idleDeadlines(), time.Now()
		d.Observe(opened(1, 10*time.Second))
		d.Observe([]*wire.Event{{Type: wire.Event_SESSION_OPENED, SessionId: 2, TtlMs: 10_000, Leased: true}})
		want := func(session uint64, left time.Duration) {
			t.Helper()
			if got, ok := d.Remaining(Session, session); got != left || !ok {
				t.Errorf("session %d has %v left, %v; want %v", session, got, ok, left)
			}
			if age, ok := d.Age(session); age != 10*time.Second-left || !ok {
				t.Errorf("session %d is %v old, %v", session, age, ok)
			}
		}
		time.Sleep(5 * time.Second)
		d.Touch(1, time.Now())
		d.Touch(2, time.Now())
		want(1, 10*time.Second)
		want(2, 5*time.Second)
		d.Touch(1, started.Add(3*time.Second)) // arrived before the last one, processed after it
		want(1, 10*time.Second)
		d.Decide(started.Add(10 * time.Second)) // the lease's end
		if _, bounded := d.Remaining(Session, 2); bounded {
			t.Error("a decided end has time left")
		}
		if s := d.Touch(2, time.Now()); s != Decided {
			t.Errorf("a decided lease is %v", s)
		}
		if s := d.Touch(3, time.Now()); s != Unknown {
			t.Errorf("a session that nobody opened is %v", s)
		}
		if _, known := d.Age(3); known {
			t.Error("it has an age")
		}
		for term, want := range map[uint64]State{6: Inactive, 7: Alive} {
			if got := d.State(term, 1); got != want {
				t.Errorf("under term %d it is %v", term, got)
			}
		}
		d.Stop()
		if s := d.Touch(1, time.Now()); s != Inactive {
			t.Errorf("after the leadership it is %v", s)
		}
		d.Observe(opened(1, time.Second))
		if len(d.heap) != 0 {
			t.Error("a deadline begins without a leadership")
		}
	})
}

// TestAnswersToEnds decides an end and answers it with each status.
func TestAnswersToEnds(t *testing.T) {
	for status, pause := range map[wire.Status_Code]time.Duration{ // 0: not proposed again
		wire.Status_OK: 0, wire.Status_FAILED_PRECONDITION: 0, wire.Status_NOT_FOUND: 0,
		wire.Status_UNAVAILABLE: again, wire.Status_NOT_LEADER: again, wire.Status_UNCERTAIN: again,
		wire.Status_INTERNAL: againSlow,
	} {
		bubble.Test(t, func(t *testing.T) {
			d, k := openDeadlines(t, status)
			d.Observe(opened(1, time.Second))
			time.Sleep(time.Second)
			synctest.Wait()
			d.mu.Lock()
			e := d.tables[Session][1]
			switch {
			case k.count() != 1:
				t.Errorf("%v: decided %d times", status, k.count())
			case pause == 0 && e != nil:
				t.Errorf("%v: it is still there", status)
			case pause != 0 && (e == nil || e.at.Sub(k.at[0]) != pause):
				t.Errorf("%v: not proposed again after %v", status, pause)
			}
			d.mu.Unlock()
		})
	}
}

// TestOtherErrorsAreUnchanged verifies that the result of an end of another term or generation has no effect.
func TestOtherErrorsAreUnchanged(t *testing.T) {
	for name, c := range map[string]struct {
		term    uint64
		of      ending
		decided bool
		same    bool
	}{
		"the very one":     {7, ending{Session, 1, 1}, true, true},
		"another term":     {6, ending{Session, 1, 1}, true, false},
		"another kind":     {7, ending{Wait, 1, 1}, true, false},
		"another session":  {7, ending{Session, 2, 1}, true, false},
		"newer generation": {7, ending{Session, 1, 2}, true, false},
		"not decided":      {7, ending{Session, 1, 1}, false, false},
	} {
		d := idleDeadlines()
		d.Observe(opened(1, time.Second))
		e := d.tables[Session][1]
		e.decided = c.decided
		d.retry(c.term, c.of, time.Hour) // already in the heap, so there is nothing to do
		if d.same(c.term, c.of) == e != c.same || len(d.heap) != 1 {
			t.Errorf("%s: taken for the same: %v; %d in the heap", name, !c.same, len(d.heap))
		}
		if d.applied(c.term, c.of); (d.tables[Session][1] == nil) != c.same {
			t.Errorf("%s: settled: %v", name, !c.same)
		}
	}
}

// TestExtensionAfterAStall checks a timer that is late by less than a stall, by a stall, and by a stall for the
// second time.
func TestExtensionAfterAStall(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d, started := idleDeadlines(), time.Now()
		d.Observe(opened(1, 8*time.Second))
		d.Observe(opened(2, 20*time.Second))
		e := d.tables[Session][1]
		end := started.Add(8 * time.Second)
		d.extendAfterStall(end.Add(stall - 1))
		if e.forgiven || !e.at.Equal(end) {
			t.Error("forgiven without a stall")
		}
		d.extendAfterStall(end.Add(stall))
		if !e.forgiven || !e.at.Equal(end.Add(2*stall)) {
			t.Errorf("after a stall it is due at %v", e.at.Sub(started))
		}
		d.extendAfterStall(end.Add(time.Hour))
		if !e.at.Equal(end.Add(2 * stall)) {
			t.Error("forgiven twice")
		}
		if other := d.tables[Session][2]; !other.forgiven || !other.at.Equal(end.Add(time.Hour+5*time.Second)) {
			t.Errorf("a long stall gives %v", other.at.Sub(started))
		}
		d.Touch(1, end)
		if e.forgiven {
			t.Error("a sign of life does not make it whole")
		}
		e.decided = true
		d.extendAfterStall(end.Add(2 * time.Hour))
		if e.forgiven {
			t.Error("what is decided was forgiven")
		}
		if len(d.heap) != 2 {
			t.Errorf("%d in the heap", len(d.heap))
		}
	})
}
