package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/test/scrape"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func grantsAndReleases() []*wire.Event {
	return []*wire.Event{{Type: wire.Event_GRANTED}, {Type: wire.Event_RELEASED}}
}

// TestClaimsAreMeasured verifies which events begin and end a wait and a hold. Each step is an entry, a second after the
// one before. The numbers of claims and tokens up to 10 are from before the leadership.
func TestClaimsAreMeasured(t *testing.T) {
	queued := func(id uint64) *wire.Event { return &wire.Event{Type: wire.Event_QUEUED, HoldId: id} }
	granted := func(id, token uint64, waited bool) *wire.Event {
		return &wire.Event{Type: wire.Event_GRANTED, HoldId: id, Token: token, Waited: waited}
	}
	ended := func(how wire.Event_Type, token uint64) *wire.Event { return &wire.Event{Type: how, Token: token} }
	upgrade := func(e *wire.Event) *wire.Event {
		e.Upgrade = true
		return e
	}
	nothing := &wire.Event{Type: wire.Event_SESSION_ATTACHED}
	for name, c := range map[string]struct {
		entries      []*wire.Event
		waits, holds uint64
		waited, held float64
	}{
		"an immediate grant":       {[]*wire.Event{granted(11, 11, false), nothing, ended(wire.Event_RELEASED, 11)}, 0, 1, 0, 2},
		"a wait":                   {[]*wire.Event{queued(11), nothing, nothing, granted(11, 11, true), ended(wire.Event_RELEASED, 11)}, 1, 1, 3, 1},
		"an expiry":                {[]*wire.Event{granted(11, 11, false), ended(wire.Event_EXPIRED, 11)}, 0, 1, 0, 1},
		"a forced end":             {[]*wire.Event{granted(11, 11, false), ended(wire.Event_FORCED, 11)}, 0, 1, 0, 1},
		"a cancelled wait":         {[]*wire.Event{queued(11), {Type: wire.Event_CANCELLED, HoldId: 11}}, 0, 0, 0, 0},
		"a wait from before":       {[]*wire.Event{queued(11), granted(9, 11, true)}, 0, 0, 0, 0},
		"a hold from before":       {[]*wire.Event{granted(11, 11, false), ended(wire.Event_RELEASED, 9)}, 0, 0, 0, 0},
		"two in turn":              {[]*wire.Event{queued(11), queued(12), granted(11, 11, true), granted(12, 12, true), ended(wire.Event_RELEASED, 12), ended(wire.Event_RELEASED, 11)}, 2, 2, 4, 4},
		"a hold until its upgrade": {[]*wire.Event{granted(11, 11, false), upgrade(queued(11)), nothing, upgrade(granted(11, 12, true)), ended(wire.Event_RELEASED, 12)}, 0, 1, 0, 1},
		"an upgrade beside a wait": {[]*wire.Event{queued(12), upgrade(queued(11)), nothing, granted(12, 11, true)}, 1, 0, 3, 0},
	} {
		claims, registry := newClaims(), prometheus.NewRegistry()
		registry.MustRegister(claims.waits, claims.holds)
		claims.follow([]*wire.Event{queued(5), granted(5, 5, true), ended(wire.Event_RELEASED, 5)}, time.Now()) // it does not lead
		claims.begin(10, 10)
		for i, e := range c.entries {
			claims.follow([]*wire.Event{e}, claims.began.Add(time.Duration(i)*time.Second))
		}
		got := scrape.Histograms(t, registry)
		waits, holds := got["wait_seconds"], got["hold_seconds"]
		if waits.GetSampleCount() != c.waits || waits.GetSampleSum() != c.waited || holds.GetSampleCount() != c.holds || holds.GetSampleSum() != c.held {
			t.Errorf("%s: %d waits of %v s, %d holds of %v s, want %+v", name, waits.GetSampleCount(), waits.GetSampleSum(), holds.GetSampleCount(), holds.GetSampleSum(), c)
		}
		if waits.Schema == nil || holds.Schema == nil {
			t.Errorf("%s: the histograms are not native", name)
		}
	}
}

// TestHoldsOfLargeEntriesAreSampled verifies that of many holds that end at once, one in eight is measured.
func TestHoldsOfLargeEntriesAreSampled(t *testing.T) {
	claims, registry := newClaims(), prometheus.NewRegistry()
	registry.MustRegister(claims.waits, claims.holds)
	claims.begin(0, 0)
	for _, n := range []uint64{16, 80} {
		var grants, ends []*wire.Event
		for token := range n {
			grants = append(grants, &wire.Event{Type: wire.Event_GRANTED, Token: 1_000*n + token})
			ends = append(ends, &wire.Event{Type: wire.Event_RELEASED, Token: 1_000*n + token})
		}
		claims.follow(grants, claims.began.Add(time.Duration(n)*time.Second))
		claims.follow(ends, claims.began.Add(time.Duration(n+2)*time.Second))
	}
	if h := scrape.Histograms(t, registry)["hold_seconds"]; h.GetSampleCount() != 16+10 || h.GetSampleSum() != 2*(16+10) {
		t.Errorf("%d holds of %v s were measured", h.GetSampleCount(), h.GetSampleSum())
	}
}
