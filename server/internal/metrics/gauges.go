package metrics

import (
	"runtime"
	"strconv"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/consistency"
	"github.com/quorumlock/quorumlock/server/eventlog"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/internal/cluster"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Source is where the gauges are read.
type Source struct {
	NodeID   string
	Machine  *fsm.Replicated
	EventLog *eventlog.Log
	Checker  *consistency.Checker
	Proposer *groupcommit.Proposer
	Cluster  *cluster.Cluster
	// Alarms returns the number of active alarms.
	Alarms func() int
	// Serving reports whether this node leads and serves.
	Serving func() bool
	// LeaderKnown reports whether this node knows a leader.
	LeaderKnown func() bool
	// Health returns how many voters may fail, and what is known of each member. ok is false unless this node leads.
	Health func() (tolerance int, members map[string]Member, ok bool)
	// BackupDue returns when the next scheduled backup is due; nil without a schedule.
	BackupDue func() time.Time
	// ForeignFiles counts the files among the backups that are not this cluster's; set with BackupDue.
	ForeignFiles func() int
	// Build describes the program.
	Build Build
}

// Build describes a program.
type Build struct {
	Version, Commit string
	// Level is the highest feature level that it understands.
	Level uint32
}

// info returns the metric that identifies the program.
func (b Build) info() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quorumlock_build_info", Help: "Always 1; the labels identify the program.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "go": runtime.Version(), "feature_level": strconv.FormatUint(uint64(b.Level), 10)},
	}, func() float64 { return 1 })
}

// Gauges returns the metrics that are read from the parts of a node when they are collected.
func Gauges(s Source) []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	total := func(of func(fsm.Totals) uint64) func() float64 {
		return func() (n float64) {
			s.Machine.View(func(m *fsm.Machine) { n = float64(of(m.Totals())) })
			return n
		}
	}
	all := []prometheus.Collector{
		s.Build.info(),
		memberHealth{s.Serving, s.Health},
		&contention{machine: s.Machine, serving: s.Serving},
		limits{s.Machine},
		gauge("quorumlock_sessions", "Live sessions.", total(func(t fsm.Totals) uint64 { return t.Sessions })),
		gauge("quorumlock_locks", "Locks held or waited for.", total(func(t fsm.Totals) uint64 { return t.Locks })),
		gauge("quorumlock_holds", "Holds.", total(func(t fsm.Totals) uint64 { return t.Holds })),
		gauge("quorumlock_waiters", "Requests that wait for a lock.", total(func(t fsm.Totals) uint64 { return t.Waiters })),
		gauge("quorumlock_state_units", "What the state takes of its budget.", func() float64 { return float64(s.Machine.Units()) }),
		gauge("quorumlock_state_units_limit", "The budget of the state, max_state_bytes.", func() float64 { return float64(s.Machine.Limits().GetMaxStateBytes()) }),
		gauge("quorumlock_watches", "Watches on this node.", func() float64 { watches, _ := s.EventLog.Size(); return float64(watches) }),
		gauge("quorumlock_event_log_events", "Events that watches may still ask this node for.", func() float64 { _, events := s.EventLog.Size(); return float64(events) }),
		gauge("quorumlock_policy_in_force", "1 if a policy restricts clients, 0 if every client may do everything.", func() float64 {
			return oneIf(s.Machine.Access().Rights() != nil)
		}),
		gauge("quorumlock_last_backup_timestamp_seconds", "When the latest scheduled backup was made, in Unix time; 0 if there was none.", lastBackup(s, func(b *wire.SavedBackup) float64 { return float64(b.GetUnixMs()) / 1000 })),
		gauge("quorumlock_last_backup_bytes", "The size of the latest scheduled backup.", lastBackup(s, func(b *wire.SavedBackup) float64 { return float64(b.GetBytes()) })),
		gauge("quorumlock_is_leader", "1 while this node leads and serves.", func() float64 { return oneIf(s.Serving()) }),
		gauge("quorumlock_leader_known", "1 if this node knows a leader.", func() float64 { return oneIf(s.LeaderKnown()) }),
		gauge("quorumlock_drained", "1 while this node is drained and does not lead.", func() (n float64) {
			s.Machine.View(func(m *fsm.Machine) {
				self, _ := m.Member(s.NodeID)
				n = oneIf(self.GetDrained())
			})
			return n
		}),
		gauge("quorumlock_term", "Raft's term.", ofRaft(s, (*raft.Raft).CurrentTerm)),
		gauge("quorumlock_commit_index", "The last log entry known to be committed.", ofRaft(s, (*raft.Raft).CommitIndex)),
		gauge("quorumlock_applied_index", "The last log entry that the state includes.", func() float64 { return float64(s.Machine.AppliedIndex()) }),
		gauge("quorumlock_queued_commands", "Commands that wait to be proposed.", func() float64 { return float64(s.Proposer.Queued()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "quorumlock_discarded_commands_total", Help: "Commands whose handler failed; report them."}, func() (n float64) {
			s.Machine.View(func(m *fsm.Machine) { n = float64(m.Discarded()) })
			return n
		}),
		gauge("quorumlock_state_agreed_index", "The last log entry after which this node found its state to be that of a majority.", func() float64 { agreed, _ := s.Checker.Extent(); return float64(agreed) }),
		gauge("quorumlock_state_differing_index", "The last log entry after which nodes differed without a majority; alarming while above quorumlock_state_agreed_index.", func() float64 { _, differing := s.Checker.Extent(); return float64(differing) }),
		gauge("quorumlock_alarms", "Alarms of this node that no operator has acknowledged; qlock status shows them.", func() float64 { return float64(s.Alarms()) }),
		gauge("quorumlock_grants_suspended", "1 while nothing is granted, because nodes differ in their state.", func() (n float64) {
			s.Machine.View(func(m *fsm.Machine) { n = min(1, float64(m.GrantsSuspended())) })
			return n
		}),
	}
	if s.BackupDue != nil {
		all = append(all, gauge("quorumlock_backup_due_timestamp_seconds", "When the next scheduled backup after the latest one is due, in Unix time. Without a schedule it does not exist.", func() float64 {
			return float64(s.BackupDue().UnixMilli()) / 1000
		}))
		all = append(all, gauge("quorumlock_backup_foreign_files", "Files among the scheduled backups that are not this cluster's, as this node found them when it led last. They stay.", func() float64 { return float64(s.ForeignFiles()) }))
	}
	return all
}

func lastBackup(s Source, value func(*wire.SavedBackup) float64) func() float64 {
	return func() (n float64) {
		s.Machine.View(func(m *fsm.Machine) { n = value(m.LastBackup()) })
		return n
	}
}

func oneIf(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

func ofRaft(s Source, value func(*raft.Raft) uint64) func() float64 {
	return func() float64 {
		if node := s.Cluster.Raft(); node != nil {
			return float64(value(node))
		}
		return 0
	}
}
