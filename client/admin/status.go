package admin

import (
	"time"
)

// Status is the state of the cluster.
type Status struct {
	ClusterID string
	// LeaderID is empty if the leader is unknown. NodeID is the answering node.
	LeaderID string
	NodeID   string
	Term     uint64
	Nodes    []Node
	// Level is the cluster's feature level.
	Level        uint32
	Revision     uint64
	Lineage      string
	CommitIndex  uint64
	AppliedIndex uint64
	// Token is the last fencing token.
	Token    uint64
	Sessions uint64
	Locks    uint64
	Waiters  uint64
	Holds    uint64
	// StateUnits is the size of the state in the units of Settings.MaxStateBytes.
	StateUnits uint64
	Settings   Settings
	// GrantsSuspended means that the states of the nodes differ and no majority agrees.
	GrantsSuspended bool
	// AgreedIndex is the last log entry after which the answering node's state matched a majority, and
	// DifferingIndex the last one after which states differed without a majority.
	AgreedIndex    uint64
	DifferingIndex uint64
	// HasPolicy means that the cluster has a policy. Without one, every client may do everything.
	HasPolicy bool
	// LastBackup is the latest backup that was made by schedule and verified; zero if there was none.
	LastBackup SavedBackup
	// Removed is set if the answering node was removed from the cluster. It says what happened and what to do.
	Removed string
	// BackupSchedule is the schedule of the answering node's backups.
	BackupSchedule BackupSchedule
	// Autopilot is the health of the cluster; zero if the answering node does not lead.
	Autopilot Autopilot
}

// Autopilot is the health of the cluster, and the rules by which the leader gives new members their vote and removes
// dead ones.
type Autopilot struct {
	// FailureTolerance is how many voters may fail before the cluster loses its majority.
	FailureTolerance uint32
	// Healthy means that all members are healthy.
	Healthy bool
	// Cleanup means that a member that has not answered for DeadAfter is removed, unless fewer voters than MinQuorum
	// would be left.
	Cleanup   bool
	MinQuorum uint32
	DeadAfter time.Duration
	// Stabilization is for how long a new member must have been healthy before it gets its vote.
	Stabilization time.Duration
	// LastRemoval is the last removal of a dead member; zero if there was none.
	LastRemoval AutopilotRemoval
}

// AutopilotRemoval is the removal of a dead member.
type AutopilotRemoval struct {
	NodeID string
	// Time is by the clock of the leader.
	Time   time.Time `field:"unix_ms"`
	Reason string
}

// NodeHealth is what the leader knows of a member's health.
type NodeHealth struct {
	// Healthy means that the node answers, follows the leader and has nearly all of the log. Since is for how long it
	// has been so, or has not.
	Healthy bool
	Since   time.Duration
	// Reason says why the node is not healthy.
	Reason string
	// Silent is for how long the node has not answered; 0 if it answers.
	Silent time.Duration
	// RemovedIn is when the node is removed if it does not answer until then; 0 if it is kept.
	RemovedIn time.Duration
}

// SavedBackup is a backup that the leader made by its schedule.
type SavedBackup struct {
	// Name is the name of the file on the node NodeID.
	Name   string
	NodeID string
	// Time is when the state was copied, by the clock of that node.
	Time time.Time `field:"unix_ms"`
	// Lineage and Revision are those of the state.
	Lineage  string
	Revision uint64
	// Bytes is the size of the file.
	Bytes uint64
}

// BackupSchedule is when a node makes backups while it leads.
type BackupSchedule struct {
	// Schedule is a cron expression; empty if the node has no place for backups.
	Schedule string
	// Failures counts the failed attempts since the last backup.
	Failures uint32
	// Overdue means that a backup was due five minutes ago and has not been made.
	Overdue bool
	// ForeignFiles counts the files among the backups that are not this cluster's.
	ForeignFiles uint32
}

// Node is a member of the cluster.
type Node struct {
	ID         string
	PeerAddr   string
	ClientAddr string
	HTTPAddr   string
	Level      uint32
	Voter      bool
	Leader     bool
	// Reachable means that the answering node reached this node in time.
	Reachable    bool
	Incarnation  string
	AppliedIndex uint64
	Version      string
	// Alarms are those that no operator has acknowledged.
	Alarms []Alarm
	// CertificateExpires is when the first of the node's certificates expires; zero if it has none, or was not reached.
	CertificateExpires time.Time
	// DiskSync is the median duration of the node's writes to its log in the last minute, each with its sync; 0 if
	// unknown.
	DiskSync time.Duration `field:"disk_sync_us"`
	// Commit is the leader's median time from proposing an entry to its having been applied, in the last minute; 0
	// if unknown, and for nodes that do not lead.
	Commit time.Duration `field:"commit_us"`
	// Call is how long a call of this node took the answering node, with the set-up of the connection; 0 for itself, or if
	// it was not reached.
	Call time.Duration `field:"call_us"`
	// ClockAhead is how far the clock of this node is ahead of that of the answering node, give or take half of Call.
	// It is valid if Call is not 0.
	ClockAhead time.Duration `field:"clock_ahead_ms"`
	// Health is what the leader knows of the node's health; zero if the answering node does not lead.
	Health NodeHealth
	// Drained means that the node does not lead. UnsafeToStop is why the node should not be stopped now; empty if it can
	// be: it does not lead, and without it a majority of the voters is reachable and has caught up.
	Drained      bool
	UnsafeToStop string
}

// Alarm is a problem that one node has detected.
type Alarm struct {
	NodeID   string
	Message  string
	Revision uint64
	Raised   time.Time
	// Advice says what to do.
	Advice string
}

// Settings are the limits of the cluster.
type Settings struct {
	MinTTL              time.Duration
	MaxTTL              time.Duration
	DefaultTTL          time.Duration
	MaxSessions         uint64
	MaxLocks            uint64
	MaxWaitersPerLock   uint64
	MaxClaimsPerSession uint64
	MaxWindow           uint64
	MaxValueBytes       uint32
	MaxClientInfoBytes  uint32
	MaxStateBytes       uint64
	MaxSessionBytes     uint64
	MaxLeaseTTL         time.Duration
	MinKeyTTL           time.Duration
	MaxKeyTTL           time.Duration
	// MaxCachedIdle bounds how long a session keeps a cached hold unused; 0 means ten minutes.
	MaxCachedIdle time.Duration
	// NoCachedHolds means that cached holds are refused.
	NoCachedHolds bool
}
