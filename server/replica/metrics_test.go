package replica_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/test/scrape"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestWhatBecomesOfHoldsIsCounted(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 1)
		registry := prometheus.NewRegistry()
		c.nodes["n1"].cfg.Registry = registry
		c.startAll()
		n := c.waitForReports()
		s, other := c.openSession("a", 5*time.Minute), c.openSession("b", 5*time.Second)
		held := c.expect(n.do(acquire(s, 1, "a", &wire.Acquire{Notify: true})), wire.Status_GRANTED)
		c.expect(n.do(acquire(other, 1, "a", &wire.Acquire{WaitForever: true})), wire.Status_QUEUED)
		c.expect(n.do(releaseCommand(s, 2, held)), wire.Status_OK)
		c.expect(n.do(acquire(s, 3, "b", shared(&wire.Acquire{MaxHoldMs: 1000}))), wire.Status_GRANTED)
		c.expect(n.do(acquire(s, 4, "c", &wire.Acquire{Locks: []*wire.LockRequest{{Limit: 4, Permits: 2}}})), wire.Status_GRANTED)
		held = c.expect(n.do(acquire(s, 5, "d", &wire.Acquire{})), wire.Status_GRANTED)
		c.expect(n.do(revokeCommand(held, "please", 0)), wire.Status_OK)
		c.expect(n.do(forceCommand(held, "now")), wire.Status_OK)
		c.eventually("the other session is gone", func() bool { return !n.lives(other) })
		w := n.watch(&wire.WatchRequest{}, nil)
		c.eventually("it watches", func() bool { return w.last() != nil })
		gone := n.watch(&wire.WatchRequest{AfterRevision: 1, Lineage: "another"}, nil)
		<-gone.ended
		got := scrape.Values(t, registry)
		for key, want := range map[string]float64{
			"commands_total force_release OK": 1,
			"grants_total exclusive false":    2,
			"grants_total exclusive true":     1,
			"grants_total shared false":       1,
			"grants_total permits false":      1,
			"hold_ends_total released":        1,
			"hold_ends_total max_hold":        1,
			"hold_ends_total forced":          1,
			"hold_ends_total session_expired": 1,
			"expiries_total hold":             1,
			"expiries_total session":          1,
			"hold_notices_total wanted":       1,
			"hold_notices_total revoked":      1,
			"watches":                         1,
			"watch_ends_total compacted":      1,
		} {
			if got[key] != want {
				t.Errorf("%s is %v, want %v", key, got[key], want)
			}
		}
		if got["is_leader"] != 1 || got["term"] < 1 || got["commit_index"] < 10 {
			t.Errorf("the leader shows %v, term %v, committed %v", got["is_leader"], got["term"], got["commit_index"])
		}
		if got["event_log_events"] < 10 {
			t.Errorf("%v events in the event log", got["event_log_events"])
		}
		w.end(t)
	})
}
