package metrics

import (
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/internal/histogram"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Metrics are a node's counters. Label values come only from the schema, so their number is bounded.
type Metrics struct {
	registry   prometheus.Registerer
	registered []prometheus.Collector

	commands      *prometheus.CounterVec
	entries       *prometheus.CounterVec
	batch         prometheus.Histogram
	bytes         prometheus.Histogram
	commit        prometheus.Histogram
	expiries      *prometheus.CounterVec
	LeaderChanges prometheus.Counter
	grants        *prometheus.CounterVec
	cachedGrants  prometheus.Counter
	holdEnds      *prometheus.CounterVec
	notices       *prometheus.CounterVec
	WatchEnds     *prometheus.CounterVec
	Hashing       prometheus.Histogram
	LeaderLosses  prometheus.Counter
	LeaderHints   *prometheus.CounterVec
	SlowDisks     prometheus.Counter
	backups       *prometheus.CounterVec
	backup        prometheus.Histogram
	diskSync      prometheus.Histogram
	claims        *claims
	// Committed gets the time from proposing each entry to its having been applied. New sets one that does nothing.
	Committed func(time.Duration)
	// Synced gets the time of each write to the node's log, with its sync. New sets one that does nothing.
	Synced func(time.Duration)

	// Counters that are incremented for every command, cached to avoid a lookup by label values. Only the
	// completer uses them.
	answers  map[answerKind]prometheus.Counter
	granted  map[grantKind]prometheus.Counter
	released prometheus.Counter
}

// answerKind identifies a counter of commands, by the type of the operation and the status of the result.
type answerKind struct {
	op     reflect.Type
	status wire.Status_Code
}

// grantKind identifies a counter of grants.
type grantKind struct {
	mode   wire.Mode
	waited bool
}

// New creates the metrics of a node. With a nil registry, they are never registered.
func New(registry prometheus.Registerer) *Metrics {
	m := &Metrics{registry: registry, answers: map[answerKind]prometheus.Counter{}, granted: map[grantKind]prometheus.Counter{}, claims: newClaims()}
	m.Committed, m.Synced = func(time.Duration) {}, func(time.Duration) {}
	m.commands = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_commands_total", Help: "Commands answered by this node as leader."}, []string{"op", "status"})
	m.entries = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_entries_total", Help: "Log entries proposed by this node, by how they ended."}, []string{"outcome"})
	m.batch = prometheus.NewHistogram(histogram.Options("quorumlock_entry_commands", "Commands in one log entry.", prometheus.ExponentialBuckets(1, 4, 8)))
	m.bytes = prometheus.NewHistogram(histogram.Options("quorumlock_entry_bytes", "Size of one log entry.", prometheus.ExponentialBuckets(64, 4, 7)))
	m.commit = prometheus.NewHistogram(histogram.Options("quorumlock_commit_seconds", "From proposing an entry to its having been applied.", prometheus.ExponentialBuckets(0.0002, 2, 15)))
	m.diskSync = prometheus.NewHistogram(histogram.Options("quorumlock_disk_sync_seconds", "Writing entries to the log of this node and syncing them.", prometheus.ExponentialBuckets(0.0001, 2, 17)))
	m.expiries = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_expiries_total", Help: "What ended by time under this node: sessions, waits and holds."}, []string{"of"})
	m.LeaderChanges = prometheus.NewCounter(prometheus.CounterOpts{Name: "quorumlock_leader_changes_total", Help: "How often this node was elected."})
	m.grants = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_grants_total", Help: "Holds granted by this node as leader."}, []string{"mode", "waited"})
	m.cachedGrants = prometheus.NewCounter(prometheus.CounterOpts{Name: "quorumlock_cached_grants_total", Help: "Those of quorumlock_grants_total whose hold is cached. What sessions grant locally is not counted."})
	m.holdEnds = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_hold_ends_total", Help: "Holds that ended under this node as leader, by how."}, []string{"how"})
	m.released = m.holdEnds.WithLabelValues("released")
	m.notices = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_hold_notices_total", Help: "Holders to be told that somebody waits, or that an operator wants the hold; repeated counts those told again with a heartbeat, because they keep a cached hold."}, []string{"of"})
	m.WatchEnds = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_watch_ends_total", Help: "Watches that this node ended, by its last word."}, []string{"status"})
	m.Hashing = prometheus.NewHistogram(histogram.Options("quorumlock_state_hash_seconds", "Hashing the state once, beside all else.", prometheus.ExponentialBuckets(0.001, 4, 8)))
	m.LeaderLosses = prometheus.NewCounter(prometheus.CounterOpts{Name: "quorumlock_leader_losses_total", Help: "Leaders whose process this node saw dead: every connection closed, a new one refused."})
	m.LeaderHints = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_failover_hints_total", Help: "What this node made of such a loss: agreed is an election called, everything else why not."}, []string{"reason"})
	m.SlowDisks = prometheus.NewCounter(prometheus.CounterOpts{Name: "quorumlock_slow_disk_handovers_total", Help: "Times that this node handed leadership over because a write to its disk took long."})
	m.backups = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_backups_total", Help: "Scheduled backups that this node attempted as leader, by outcome: ok or failed."}, []string{"outcome"})
	m.backup = prometheus.NewHistogram(histogram.Options("quorumlock_backup_seconds", "Duration of a scheduled backup, with its verification and its copies.", prometheus.ExponentialBuckets(0.01, 4, 10)))
	m.beginAtZero()
	return m
}

// beginAtZero creates the series of labels with few values, so that the first increase is seen.
func (m *Metrics) beginAtZero() {
	for counter, values := range map[*prometheus.CounterVec][]string{
		m.entries:  {"applied", "not_leader", "unavailable", "uncertain", "internal"},
		m.expiries: {"session", "wait", "hold"},
		m.holdEnds: {"released", "session_expired", "max_hold", "forced"},
		m.notices:  {"wanted", "revoked", "repeated"},
		m.backups:  {"ok", "failed"},
	} {
		for _, value := range values {
			counter.WithLabelValues(value)
		}
	}
	for _, mode := range []wire.Mode{wire.Mode_EXCLUSIVE, wire.Mode_SHARED, wire.Mode_PERMITS} {
		for _, waited := range []bool{false, true} {
			m.counterOf(grantKind{mode, waited})
		}
	}
}

// DiskSynced observes a write to the log of this node with its sync.
func (m *Metrics) DiskSynced(took time.Duration) {
	if m.registry != nil {
		m.diskSync.Observe(took.Seconds())
	}
	m.Synced(took)
}

// BackedUp counts an attempt to make a scheduled backup.
func (m *Metrics) BackedUp(took time.Duration, err error) {
	if err != nil {
		m.backups.WithLabelValues("failed").Inc()
		return
	}
	m.backups.WithLabelValues("ok").Inc()
	m.backup.Observe(took.Seconds())
}

// Register registers the metrics, and others that are read when they are collected.
func (m *Metrics) Register(others ...prometheus.Collector) error {
	own := []prometheus.Collector{m.commands, m.entries, m.batch, m.bytes, m.commit, m.diskSync, m.claims.waits, m.claims.holds, m.expiries, m.LeaderChanges, m.grants, m.cachedGrants, m.holdEnds, m.notices, m.WatchEnds, m.Hashing, m.LeaderLosses, m.LeaderHints, m.SlowDisks, m.backups, m.backup}
	return m.register(append(own, others...))
}

func (m *Metrics) register(all []prometheus.Collector) error {
	if m.registry == nil {
		return nil
	}
	for _, c := range all {
		if err := m.registry.Register(c); err != nil {
			m.Close()
			return err
		}
		m.registered = append(m.registered, c)
	}
	return nil
}

// Close unregisters the metrics, so that the node can be opened again in this process.
func (m *Metrics) Close() {
	for _, c := range m.registered {
		m.registry.Unregister(c)
	}
	m.registered = nil
}

// Applied counts an entry that was applied, without its commands.
func (m *Metrics) Applied(b *groupcommit.Batch, applied *fsm.Applied) {
	m.entries.WithLabelValues("applied").Inc()
	m.batch.Observe(float64(len(b.Items)))
	now := time.Now()
	took := now.Sub(b.Began)
	m.commit.Observe(took.Seconds())
	m.Committed(took)
	for _, e := range applied.Events {
		m.happened(e)
	}
	if m.registry != nil {
		m.bytes.Observe(float64(b.Bytes))
		m.claims.follow(applied.Events, now)
	}
}

// Answered counts a command.
func (m *Metrics) Answered(cmd *wire.Command, status wire.Status_Code) {
	kind := answerKind{reflect.TypeOf(cmd.GetOp()), status}
	counter := m.answers[kind]
	if counter == nil {
		counter = m.commands.WithLabelValues(opName(cmd), status.String())
		m.answers[kind] = counter
	}
	counter.Inc()
}

// grant counts a grant.
func (m *Metrics) grant(e *wire.Event) {
	m.counterOf(grantKind{max(e.Mode, wire.Mode_EXCLUSIVE), e.Waited}).Inc()
	if e.Tokens > 0 {
		m.cachedGrants.Inc()
	}
}

func (m *Metrics) counterOf(kind grantKind) prometheus.Counter {
	counter := m.granted[kind]
	if counter == nil {
		counter = m.grants.WithLabelValues(strings.ToLower(kind.mode.String()), strconv.FormatBool(kind.waited))
		m.granted[kind] = counter
	}
	return counter
}

// happened counts an event.
func (m *Metrics) happened(e *wire.Event) {
	switch e.Type {
	case wire.Event_SESSION_EXPIRED:
		m.expiries.WithLabelValues("session").Inc()
	case wire.Event_CANCELLED:
		if e.Status == wire.Status_TIMEOUT {
			m.expiries.WithLabelValues("wait").Inc()
		}
	case wire.Event_GRANTED:
		m.grant(e)
	case wire.Event_RELEASED:
		m.released.Inc()
	case wire.Event_EXPIRED:
		how := "session_expired"
		if e.Status == wire.Status_TIMEOUT {
			how = "max_hold"
			m.expiries.WithLabelValues("hold").Inc()
		}
		m.holdEnds.WithLabelValues(how).Inc()
	case wire.Event_FORCED:
		m.holdEnds.WithLabelValues("forced").Inc()
	case wire.Event_WANTED:
		m.notices.WithLabelValues("wanted").Inc()
	case wire.Event_REVOKED:
		m.notices.WithLabelValues("revoked").Inc()
	}
}

// Recalled counts the recalls that were repeated with a heartbeat.
func (m *Metrics) Recalled(n int) { m.notices.WithLabelValues("repeated").Add(float64(n)) }

// Failed counts an entry that was not applied, or whose outcome is unknown, and its commands.
func (m *Metrics) Failed(b *groupcommit.Batch, err error) {
	status := groupcommit.Uncommitted(err).GetStatus()
	m.entries.WithLabelValues(strings.ToLower(status.String())).Inc()
	for _, it := range b.Items {
		m.Answered(it.Command, status)
	}
}

var opField = (&wire.Command{}).ProtoReflect().Descriptor().Oneofs().ByName("op")

// opName returns the name of a command's operation in the schema.
func opName(cmd *wire.Command) string {
	if field := cmd.ProtoReflect().WhichOneof(opField); field != nil {
		return string(field.Name())
	}
	return "none"
}
