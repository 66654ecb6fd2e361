package replica

import (
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// metrics are the replica's own. Label values come only from the schema, so their number is bounded.
type metrics struct {
	registry   prometheus.Registerer
	registered []prometheus.Collector

	commands      *prometheus.CounterVec
	entries       *prometheus.CounterVec
	batch         prometheus.Histogram
	commit        prometheus.Histogram
	expiries      *prometheus.CounterVec
	leaderChanges prometheus.Counter
	grants        *prometheus.CounterVec
	holdEnds      *prometheus.CounterVec
	notices       *prometheus.CounterVec
	watchEnds     *prometheus.CounterVec
	hashing       prometheus.Histogram
	leaderLosses  prometheus.Counter
	leaderHints   *prometheus.CounterVec
	slowDisks     prometheus.Counter

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

func newMetrics(r *Replica) (*metrics, error) {
	m := &metrics{registry: r.cfg.Registry, answers: map[answerKind]prometheus.Counter{}, granted: map[grantKind]prometheus.Counter{}}
	m.commands = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_commands_total", Help: "Commands answered by this node as leader."}, []string{"op", "status"})
	m.entries = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_entries_total", Help: "Log entries proposed by this node, by how they ended."}, []string{"outcome"})
	m.batch = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "quorumlock_entry_commands", Help: "Commands in one log entry.", Buckets: prometheus.ExponentialBuckets(1, 4, 8)})
	m.commit = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "quorumlock_commit_seconds", Help: "From proposing an entry to its having been applied.", Buckets: prometheus.ExponentialBuckets(0.0002, 2, 15)})
	m.expiries = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_expiries_total", Help: "What ended by time under this node: sessions, waits and holds."}, []string{"of"})
	m.leaderChanges = prometheus.NewCounter(prometheus.CounterOpts{Name: "quorumlock_leader_changes_total", Help: "How often this node was elected."})
	m.grants = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_grants_total", Help: "Holds granted by this node as leader."}, []string{"mode", "waited"})
	m.holdEnds = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_hold_ends_total", Help: "Holds that ended under this node as leader, by how."}, []string{"how"})
	m.released = m.holdEnds.WithLabelValues("released")
	m.notices = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_hold_notices_total", Help: "Holders to be told that somebody waits, or that an operator wants the hold."}, []string{"of"})
	m.watchEnds = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_watch_ends_total", Help: "Watches that this node ended, by its last word."}, []string{"status"})
	m.hashing = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "quorumlock_state_hash_seconds", Help: "Hashing the state once, beside all else.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)})
	m.leaderLosses = prometheus.NewCounter(prometheus.CounterOpts{Name: "quorumlock_leader_losses_total", Help: "Leaders whose process this node saw dead: every connection closed, a new one refused."})
	m.leaderHints = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_failover_hints_total", Help: "What this node made of such a loss: agreed is an election called, everything else why not."}, []string{"reason"})
	m.slowDisks = prometheus.NewCounter(prometheus.CounterOpts{Name: "quorumlock_slow_disk_handovers_total", Help: "Times that this node handed leadership over because a write to its disk took long."})
	all := []prometheus.Collector{m.commands, m.entries, m.batch, m.commit, m.expiries, m.leaderChanges, m.grants, m.holdEnds, m.notices, m.watchEnds, m.hashing, m.leaderLosses, m.leaderHints, m.slowDisks}
	return m, m.register(append(all, gauges(r)...))
}

// gauges returns the metrics that are read when they are collected.
func gauges(r *Replica) []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	total := func(of func(fsm.Totals) uint64) func() float64 {
		return func() (n float64) {
			r.machine.View(func(m *fsm.Machine) { n = float64(of(m.Totals())) })
			return n
		}
	}
	return []prometheus.Collector{
		gauge("quorumlock_sessions", "Live sessions.", total(func(t fsm.Totals) uint64 { return t.Sessions })),
		gauge("quorumlock_locks", "Locks held or waited for.", total(func(t fsm.Totals) uint64 { return t.Locks })),
		gauge("quorumlock_holds", "Holds.", total(func(t fsm.Totals) uint64 { return t.Holds })),
		gauge("quorumlock_waiters", "Requests that wait for a lock.", total(func(t fsm.Totals) uint64 { return t.Waiters })),
		gauge("quorumlock_state_units", "What the state takes of its budget.", func() float64 { return float64(r.machine.Units()) }),
		gauge("quorumlock_state_units_limit", "The budget of the state, max_state_bytes.", func() float64 { return float64(r.machine.Limits().GetMaxStateBytes()) }),
		gauge("quorumlock_watches", "Watches on this node.", func() float64 { watches, _ := r.eventLog.Size(); return float64(watches) }),
		gauge("quorumlock_event_log_events", "Events that watches may still ask this node for.", func() float64 { _, events := r.eventLog.Size(); return float64(events) }),
		gauge("quorumlock_is_leader", "1 while this node leads and serves.", func() float64 {
			if r.Serving() {
				return 1
			}
			return 0
		}),
		gauge("quorumlock_term", "Raft's term.", ofRaft(r, (*raft.Raft).CurrentTerm)),
		gauge("quorumlock_commit_index", "The last log entry known to be committed.", ofRaft(r, (*raft.Raft).CommitIndex)),
		gauge("quorumlock_applied_index", "The last log entry that the state includes.", func() float64 { return float64(r.machine.AppliedIndex()) }),
		gauge("quorumlock_queued_commands", "Commands that wait to be proposed.", func() float64 { return float64(r.proposer.Queued()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "quorumlock_discarded_commands_total", Help: "Commands whose handler failed; report them."}, func() (n float64) {
			r.machine.View(func(m *fsm.Machine) { n = float64(m.Discarded()) })
			return n
		}),
		gauge("quorumlock_state_agreed_index", "The last log entry after which this node found its state to be that of a majority.", func() float64 { agreed, _ := r.checker.Extent(); return float64(agreed) }),
		gauge("quorumlock_state_differing_index", "The last log entry after which nodes differed without a majority; alarming while above quorumlock_state_agreed_index.", func() float64 { _, differing := r.checker.Extent(); return float64(differing) }),
		gauge("quorumlock_alarms", "Alarms of this node that no operator has acknowledged; qlock status shows them.", func() float64 { return float64(r.alarms.Len()) }),
		gauge("quorumlock_grants_suspended", "1 while nothing is granted, because nodes differ in their state.", func() (n float64) {
			r.machine.View(func(m *fsm.Machine) { n = min(1, float64(m.GrantsSuspended())) })
			return n
		}),
	}
}

func ofRaft(r *Replica, value func(*raft.Raft) uint64) func() float64 {
	return func() float64 {
		if node := r.cluster.Raft(); node != nil {
			return float64(value(node))
		}
		return 0
	}
}

func (m *metrics) register(all []prometheus.Collector) error {
	if m.registry == nil {
		return nil
	}
	for _, c := range all {
		if err := m.registry.Register(c); err != nil {
			m.close()
			return err
		}
		m.registered = append(m.registered, c)
	}
	return nil
}

// close unregisters the metrics, so that the node can be opened again in this process.
func (m *metrics) close() {
	for _, c := range m.registered {
		m.registry.Unregister(c)
	}
	m.registered = nil
}

// applied counts an entry that was applied, without its commands.
func (m *metrics) applied(b *groupcommit.Batch, applied *fsm.Applied) {
	m.entries.WithLabelValues("applied").Inc()
	m.batch.Observe(float64(len(b.Items)))
	m.commit.Observe(time.Since(b.Began).Seconds())
	for _, e := range applied.Events {
		m.happened(e)
	}
}

// answered counts a command.
func (m *metrics) answered(cmd *wire.Command, status wire.Status_Code) {
	kind := answerKind{reflect.TypeOf(cmd.GetOp()), status}
	counter := m.answers[kind]
	if counter == nil {
		counter = m.commands.WithLabelValues(opName(cmd), status.String())
		m.answers[kind] = counter
	}
	counter.Inc()
}

// grant counts a grant.
func (m *metrics) grant(e *wire.Event) {
	kind := grantKind{max(e.Mode, wire.Mode_EXCLUSIVE), e.Waited}
	counter := m.granted[kind]
	if counter == nil {
		counter = m.grants.WithLabelValues(strings.ToLower(kind.mode.String()), strconv.FormatBool(kind.waited))
		m.granted[kind] = counter
	}
	counter.Inc()
}

// happened counts an event.
func (m *metrics) happened(e *wire.Event) {
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

// failed counts an entry that was not applied, or whose outcome is unknown, and its commands.
func (m *metrics) failed(b *groupcommit.Batch, err error) {
	status := groupcommit.Uncommitted(err).GetStatus()
	m.entries.WithLabelValues(strings.ToLower(status.String())).Inc()
	for _, it := range b.Items {
		m.answered(it.Command, status)
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
