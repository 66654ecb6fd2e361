package expiry

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestIdleHolds verifies what is known of the last use of cached holds: what the session's last heartbeat reported,
// until the hold, the session or the leadership ends.
func TestIdleHolds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := idleDeadlines()
		d.Observe(opened(1, time.Hour))
		d.Observe(opened(2, time.Hour))
		idle := func(ms ...uint64) (all []*wire.IdleHold) {
			for i, ms := range ms {
				all = append(all, &wire.IdleHold{HoldId: uint64(10 + i), IdleMs: ms})
			}
			return all
		}
		const unknown = -1
		want := func(what string, session uint64, want ...time.Duration) {
			t.Helper()
			for i, want := range want {
				got, known := d.IdleFor(session, uint64(10+i))
				if !known {
					got = unknown
				}
				if got != want {
					t.Errorf("%s: hold %d of session %d is idle for %v, want %v", what, 10+i, session, got, want)
				}
			}
		}
		report := func(term, session uint64, want State, idle []*wire.IdleHold) {
			t.Helper()
			if got := d.Report(term, session, idle, time.Now()); got != want {
				t.Errorf("the report is answered with %v, want %v", got, want)
			}
		}
		report(7, 1, Alive, idle(3_000, 0, 1<<63))
		time.Sleep(time.Second)
		want("reported", 1, 4*time.Second, time.Second, time.Second+maxIdleMs*time.Millisecond)
		want("not reported", 2, unknown, unknown)
		report(6, 1, Inactive, idle(1))
		report(7, 3, Unknown, idle(1))
		want("reported in another term", 1, 4*time.Second)
		want("of an unknown session", 3, unknown)
		for i, ended := range []wire.Event_Type{wire.Event_RELEASED, wire.Event_EXPIRED, wire.Event_FORCED} {
			d.Observe([]*wire.Event{{Type: ended, SessionId: 1, HoldId: uint64(10 + i)}})
			if _, known := d.IdleFor(1, uint64(10+i)); known {
				t.Errorf("after %v it is still idle", ended)
			}
		}
		report(7, 1, Alive, idle(1, 2))
		report(7, 1, Alive, idle(5))
		want("omitted", 1, 5*time.Millisecond, unknown)
		report(7, 1, Alive, nil)
		want("in use again", 1, unknown)
		report(7, 1, Alive, idle(1))
		d.Observe([]*wire.Event{{Type: wire.Event_SESSION_CLOSED, SessionId: 1}})
		want("of a closed session", 1, unknown)
		if len(d.used) > 0 {
			t.Errorf("kept after the session has ended: %v", d.used)
		}
		report(7, 2, Alive, idle(1))
		d.Stop()
		want("after the leadership", 2, unknown)
	})
}
