package metrics

import (
	"errors"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/test/scrape"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestMetricsOfTwoNodes verifies that registering a metric twice fails and unregisters those registered
// before it.
func TestMetricsOfTwoNodes(t *testing.T) {
	counter := func(name string) prometheus.Collector {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name})
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(counter("taken"))
	m := &Metrics{registry: registry}
	if err := m.register([]prometheus.Collector{counter("free"), counter("taken")}); err == nil {
		t.Error("registered twice")
	}
	if left, err := registry.Gather(); err != nil || len(left) != 1 {
		t.Errorf("%d metrics are left, %v", len(left), err)
	}
}

// TestEventsAreCounted verifies the counters for each event of a hold, a wait and a session, by how it ended.
func TestEventsAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		event *wire.Event
		want  map[string]float64
	}{
		"a session that expired":      {&wire.Event{Type: wire.Event_SESSION_EXPIRED}, map[string]float64{"expiries_total session": 1}},
		"a wait that expired":         {&wire.Event{Type: wire.Event_CANCELLED, Status: wire.Status_TIMEOUT}, map[string]float64{"expiries_total wait": 1}},
		"a wait that was cancelled":   {&wire.Event{Type: wire.Event_CANCELLED, Status: wire.Status_CANCELLED}, map[string]float64{}},
		"a grant":                     {&wire.Event{Type: wire.Event_GRANTED}, map[string]float64{"grants_total exclusive false": 1}},
		"a grant that was waited for": {&wire.Event{Type: wire.Event_GRANTED, Mode: wire.Mode_SHARED, Waited: true}, map[string]float64{"grants_total shared true": 1}},
		"a grant that is cached":      {&wire.Event{Type: wire.Event_GRANTED, Tokens: 64}, map[string]float64{"grants_total exclusive false": 1, "cached_grants_total": 1}},
		"a release":                   {&wire.Event{Type: wire.Event_RELEASED}, map[string]float64{"hold_ends_total released": 1}},
		"the end of a session's":      {&wire.Event{Type: wire.Event_EXPIRED}, map[string]float64{"hold_ends_total session_expired": 1}},
		"the end by time":             {&wire.Event{Type: wire.Event_EXPIRED, Status: wire.Status_TIMEOUT}, map[string]float64{"hold_ends_total max_hold": 1, "expiries_total hold": 1}},
		"the end by force":            {&wire.Event{Type: wire.Event_FORCED}, map[string]float64{"hold_ends_total forced": 1}},
		"a notice":                    {&wire.Event{Type: wire.Event_WANTED}, map[string]float64{"hold_notices_total wanted": 1}},
		"a revocation":                {&wire.Event{Type: wire.Event_REVOKED}, map[string]float64{"hold_notices_total revoked": 1}},
	} {
		registry := prometheus.NewRegistry()
		m := New(nil)
		err := errors.Join(registry.Register(m.expiries), registry.Register(m.grants), registry.Register(m.cachedGrants), registry.Register(m.holdEnds), registry.Register(m.notices))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			m.happened(c.event)
		}
		got := scrape.Values(t, registry)
		maps.DeleteFunc(got, func(_ string, n float64) bool { return n == 0 }) // they exist from the start
		for key, n := range c.want {
			if got[key] != 2*n {
				t.Errorf("%s, twice: %s is %v", name, key, got[key])
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: counted as %v, want %v", name, got, c.want)
		}
	}
}

// TestCommandsAreCounted verifies that commands are counted by operation and status, without a lookup of the
// labels each time.
func TestCommandsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(nil)
	if err := registry.Register(m.commands); err != nil {
		t.Fatal(err)
	}
	attach := &wire.Command{Op: &wire.Command_AttachSession{}}
	m.Answered(attach, wire.Status_OK)
	m.Answered(attach, wire.Status_OK)
	m.Answered(attach, wire.Status_TIMEOUT)
	m.Answered(&wire.Command{}, wire.Status_OK)
	for key, want := range map[string]float64{"attach_session OK": 2, "attach_session TIMEOUT": 1, "none OK": 1} {
		if got := scrape.Values(t, registry)["commands_total "+key]; got != want {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
	grant := &wire.Event{Type: wire.Event_GRANTED}
	m.happened(grant)
	m.happened(grant)
	if len(m.answers) != 3 || len(m.granted) != 6 {
		t.Errorf("%d counters of commands and %d of grants are found by their kind", len(m.answers), len(m.granted))
	}
}

// TestCountersBeginAtZero verifies that the first event of each kind is an increase, for labels with few values.
func TestCountersBeginAtZero(t *testing.T) {
	registry := prometheus.NewRegistry()
	if err := New(registry).Register(); err != nil {
		t.Fatal(err)
	}
	got := scrape.Values(t, registry)
	for _, key := range []string{
		"entries_total applied", "entries_total not_leader", "entries_total unavailable", "entries_total uncertain", "entries_total internal",
		"expiries_total session", "expiries_total wait", "expiries_total hold", "hold_ends_total released", "hold_ends_total session_expired",
		"hold_ends_total max_hold", "hold_ends_total forced", "hold_notices_total wanted", "hold_notices_total revoked", "hold_notices_total repeated", "cached_grants_total", "backups_total ok",
		"backups_total failed", "grants_total exclusive false", "grants_total exclusive true", "grants_total shared false",
		"grants_total shared true", "grants_total permits false", "grants_total permits true",
	} {
		if n, exists := got[key]; !exists || n != 0 {
			t.Errorf("%s is %v at the start, exists %v", key, n, exists)
		}
	}
}

// TestEntriesAndSyncsAreObserved verifies the histograms of an entry and of a write to the log.
func TestEntriesAndSyncsAreObserved(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		m := New(registry)
		if err := m.Register(); err != nil {
			t.Fatal(err)
		}
		var passedOn time.Duration
		m.Synced = func(took time.Duration) { passedOn += took }
		b := &groupcommit.Batch{Began: time.Now(), Items: make([]groupcommit.Item, 3), Bytes: 300}
		time.Sleep(7 * time.Millisecond)
		m.Applied(b, &fsm.Applied{})
		m.DiskSynced(5 * time.Millisecond)
		m.DiskSynced(3 * time.Millisecond)
		got := scrape.Histograms(t, registry)
		for name, want := range map[string]struct {
			count uint64
			sum   float64
		}{"entry_commands": {1, 3}, "entry_bytes": {1, 300}, "commit_seconds": {1, 0.007}, "disk_sync_seconds": {2, 0.008}} {
			if h := got[name]; h.GetSampleCount() != want.count || math.Abs(h.GetSampleSum()-want.sum) > 1e-9 {
				t.Errorf("%s: %d observations, sum %v, want %v", name, h.GetSampleCount(), h.GetSampleSum(), want)
			}
		}
		if passedOn != 8*time.Millisecond {
			t.Errorf("%v was passed on", passedOn)
		}
	})
}

// TestCommitsAreReported verifies that the time of each entry is observed and passed on.
func TestCommitsAreReported(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := New(nil)
		m.Applied(&groupcommit.Batch{Began: time.Now()}, &fsm.Applied{}) // nobody wants to know
		var took []time.Duration
		m.Committed = func(d time.Duration) { took = append(took, d) }
		b := &groupcommit.Batch{Began: time.Now()}
		time.Sleep(7 * time.Millisecond)
		m.Applied(b, &fsm.Applied{})
		m.Failed(b, raft.ErrLeadershipLost)
		if len(took) != 1 || took[0] != 7*time.Millisecond {
			t.Errorf("the entries took %v", took)
		}
	})
}
