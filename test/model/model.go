package model

import (
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Model is the state after the commands applied so far. Callers may only read its fields.
type Model struct {
	// Revision counts commands, and beyond the first the keys that one command acquires. Token is the last one issued, Term that of the last barrier, Lineage the name
	// of the lineage of revisions.
	Revision, Token, Term uint64
	Lineage               string
	// Cluster is the cluster's ID, empty before its bootstrap. Level is its feature level.
	Cluster string
	Level   uint32
	// Saved is the last backup that was recorded; nil if there was none in this lineage.
	Saved *wire.SavedBackup
	// Suspended is the revision since which grants are suspended; 0 if they are not.
	Suspended uint64
	// Acknowledged is the revision before which alarms are acknowledged.
	Acknowledged uint64
	Members      []*wire.Member        // by ID
	Removed      []*wire.RemovedMember // the latest ones, oldest first
	Terms        []*wire.TermStart     // starts of the latest terms, oldest first
	Limits       *wire.Settings
	// Policy is nil if there is none. PolicyRevision is that of its last change.
	Policy         *wire.Policy
	PolicyRevision uint64
	Tokens         []*wire.TokenRecord // by ID
	// Certified are the administrators of the policy that have changed it, or the tokens, with a certificate; sorted.
	Certified []string
	// Opened is the last session's ID. Live are the open sessions, ordered by ID.
	Opened uint64
	// before is the largest ID that a session from before the last restore can have.
	before uint64
	Live   []*Session
	// Claims are ordered by ID, which is the order of their requests.
	Claims []*Claim
	Locks  map[string]*Lock
	ports  map[string]*port // by node
	// Answers are the answers to all requests, including those that are no longer shown.
	Answers []*Answer
	// Audit are the records of the cluster's own acts, Imported those from backups.
	Audit, Imported []*wire.AuditRecord
	// News are the events of the last command.
	News []*wire.Event
	// Draws counts grants of unfair locks with more than one waiter.
	Draws int

	wall    int64 // of the last command
	caller  *wire.Caller
	node    string // that proposed the command by itself
	leader  string
	audited uint64
	acted   uint64 // revision of the first act that was not a membership change
	// hint contains the claims in the order in which their turn came in the service.
	hint []uint64
	// Heard is the service's answer to the command that is applied next. The model takes the length of
	// refusal messages from it.
	Heard *wire.Result
	// Hurried allows the service to abort its search for a deadlock and let the request wait. Overlooked is
	// the revision at which it last did so.
	Hurried    bool
	Overlooked uint64
	// refusing is set if the command is refused for lack of room.
	refusing bool
	// full is set if the window of the requesting session is full.
	full bool
	// trap is the reduced state, including a refused request: what still waits in it is deadlocked. refused
	// is the ID of that request's claim.
	trap    *Model
	refused uint64

	byID      map[uint64]*Session
	byLock    map[string][]*Claim
	bySession map[uint64][]*Claim
	left      []string // locks that lost a claim in this command
}

// Session is an open session.
type Session struct {
	ID uint64
	// Generation is that of its deadline.
	Generation uint64
	// Hash is the SHA-256 of its secret.
	Hash string
	// TTL is in milliseconds.
	TTL    uint32
	Client *wire.ClientInfo
	Leased bool
	// Later is the TTL of a lease after its confirmation, while TTL is that of a wait.
	Later uint32
	// ByValue sessions belong to a key with that value. Remaining is what was recorded of the TTL in this generation.
	ByValue   bool
	Value     string
	Remaining uint32
	// Identity is that of the caller who opened it.
	Identity string
	// Opened is the timestamp of the entry that opened it.
	Opened int64

	mark  uint64
	shown []*Answer
}

// Lock is the state of a lock. It exists as long as the lock has claims.
type Lock struct {
	Order wire.Order
	Limit uint64
}

// Claim waits while its token is 0, then holds until Over, and after that keeps its locks closed.
type Claim struct {
	ID, Session, Owner, Seq uint64
	Locks                   []*wire.LockRequest
	Value                   []byte
	WaitMs                  uint32
	WaitForever             bool
	// WaitGeneration is the generation of its wait's deadline, HoldGeneration that of its max_hold,
	// GraceGeneration that of its revocation.
	WaitGeneration, HoldGeneration, GraceGeneration uint64
	// Granted is the revision of its last grant.
	Token, Granted uint64
	Count          uint32
	// MaxHold and Delay are in milliseconds; 0 means none.
	MaxHold, Delay uint32
	// Tokens is the number of tokens of a cached hold, 0 for others. Idle is how long its session keeps it unused, in
	// milliseconds.
	Tokens, Idle uint32
	Revoked      *wire.Revocation
	Upgrade      *Upgrade // nil unless it waits to become exclusive
	Over         bool

	notify, wanted, tolerant       bool
	queuedAt, grantedAt, delayedAt int64
}

// Upgrade is a hold's request to become exclusive.
type Upgrade struct {
	Seq, Generation uint64
	WaitMs          uint32
	WaitForever     bool

	queuedAt int64
}

// Answer is the answer to a request. Said changes when a wait ends.
type Answer struct {
	Session, Seq uint64
	Said         *wire.Result
	Waited       bool // the first answer was QUEUED
	// Digest is that of the request.
	Digest uint64

	acked bool
	// words is the weight of what it contains besides its status.
	words int
}

// New returns the model of a cluster before its bootstrap.
func New() *Model {
	return &Model{
		Locks: map[string]*Lock{}, ports: map[string]*port{}, byID: map[uint64]*Session{},
		byLock: map[string][]*Claim{}, bySession: map[uint64][]*Claim{},
	}
}

func says(status wire.Status_Code) *wire.Result { return &wire.Result{Status: status} }

// Apply runs a command of an entry with timestamp wall. turns are the IDs of the claims whose turn came in this
// command, in the order of the service: those that it granted from queues, or cancelled for want of a right.
func (d *Model) Apply(cmd *wire.Command, wall int64, turns ...uint64) *wire.Result {
	d.Revision++
	d.News, d.hint, d.wall, d.caller, d.refusing = nil, turns, wall, cmd.Caller, false
	d.node = cmd.Node
	answer := d.admit(cmd)
	d.clean()
	answer.Seq = cmd.Seq
	if answer.Revision == 0 {
		answer.Revision = d.Revision
	}
	return answer
}

// admit refuses commands before the bootstrap, and those of a later feature level.
func (d *Model) admit(cmd *wire.Command) *wire.Result {
	if d.Cluster != "" && levelOf(cmd) > d.Level {
		return says(wire.Status_UNSUPPORTED)
	}
	if status := d.fault(cmd); status != 0 && (d.Cluster != "" || cmd.GetBootstrap() != nil || cmd.GetBeginTerm() != nil) {
		return says(status)
	}
	switch op := cmd.Op.(type) {
	case *wire.Command_Bootstrap:
		return d.bootstrap(op.Bootstrap)
	case *wire.Command_BeginTerm:
		return d.beginTerm(op.BeginTerm)
	}
	if d.Cluster == "" {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	return d.run(cmd)
}

func (d *Model) run(cmd *wire.Command) *wire.Result {
	if d.ungoverned(cmd) {
		return says(wire.Status_PERMISSION_DENIED)
	}
	switch op := cmd.Op.(type) {
	case *wire.Command_PutMember:
		return d.putMember(op.PutMember.GetMember())
	case *wire.Command_DropMember:
		return d.dropMember(op.DropMember.GetId())
	case *wire.Command_RaiseLevel:
		return d.raiseLevel(op.RaiseLevel.GetLevel())
	case *wire.Command_SuspendGrants:
		return d.suspend()
	case *wire.Command_ResumeGrants:
		return d.endSuspension(op.ResumeGrants.GetRevision())
	case *wire.Command_RecordBackup:
		return d.saved(op.RecordBackup.GetBackup())
	case *wire.Command_OpenSession:
		return d.open(op.OpenSession)
	case *wire.Command_OpenLease:
		return d.echo(cmd, d.openLease(op.OpenLease, digest(cmd)))
	case *wire.Command_ExtendLease:
		return d.extendLease(op.ExtendLease)
	case *wire.Command_ConfirmLease:
		return d.confirmLease(op.ConfirmLease)
	case *wire.Command_ReleaseLease:
		return d.releaseLease(op.ReleaseLease)
	case *wire.Command_ChangeKeys:
		return d.changeKeys(op.ChangeKeys)
	case *wire.Command_RecordRemaining:
		return d.recordRemaining(op.RecordRemaining)
	case *wire.Command_ExpireSession:
		return d.expire(op.ExpireSession)
	case *wire.Command_TimeoutWait:
		return d.timeout(op.TimeoutWait)
	case *wire.Command_ExpireHold:
		return d.expireHold(op.ExpireHold)
	case *wire.Command_EndDelay:
		return d.endDelay(op.EndDelay)
	case *wire.Command_ForceRelease:
		return d.force(op.ForceRelease)
	case *wire.Command_Revoke:
		return d.revoke(op.Revoke)
	case *wire.Command_SkipDelay:
		return d.skipDelay(op.SkipDelay)
	case *wire.Command_Resize:
		return d.resize(op.Resize)
	case *wire.Command_ForceClose:
		return d.forceClose(op.ForceClose)
	case *wire.Command_RestoreBackup:
		return d.restoreBackup(op.RestoreBackup)
	case *wire.Command_RecordAct:
		return d.recordAct(op.RecordAct)
	case *wire.Command_SetPolicy:
		return d.setPolicy(op.SetPolicy)
	case *wire.Command_CreateToken:
		return d.createToken(op.CreateToken)
	case *wire.Command_RevokeToken:
		return d.revokeToken(op.RevokeToken)
	}
	return d.ofSession(cmd)
}

func (d *Model) ofSession(cmd *wire.Command) *wire.Result {
	s := d.Session(cmd.SessionId)
	if s == nil {
		return d.lost(cmd.SessionId)
	}
	if op, ok := cmd.Op.(*wire.Command_AttachSession); ok && (string(op.AttachSession.GetSecretHash()) != s.Hash || s.Identity != d.who()) {
		return says(wire.Status_PERMISSION_DENIED)
	}
	if s.Leased {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	d.ack(s, cmd)
	switch op := cmd.Op.(type) {
	case *wire.Command_AttachSession:
		return d.attach(s, op.AttachSession.GetAddress())
	case *wire.Command_Acknowledge:
		return says(wire.Status_OK)
	case *wire.Command_CloseSession:
		d.end(s, wire.Event_SESSION_CLOSED, "")
		return says(wire.Status_OK)
	}
	return d.echo(cmd, d.request(s, cmd))
}
