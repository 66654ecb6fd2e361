package fsm

import (
	"errors"
	"fmt"
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// MaxEntryBytes is the size limit of a log entry. Apply returns ErrMalformed for a longer one. Leaders
// stay far below the limit.
const MaxEntryBytes = 8 << 20

var (
	// ErrUpgrade is returned when an entry or a snapshot needs a higher feature level than this node's.
	// Nothing was changed; the node must stop and be upgraded.
	ErrUpgrade = errors.New("written for a newer feature level: upgrade this node")
	// ErrMalformed is returned when bytes are not a valid entry or snapshot. Every node returns it for
	// the same bytes, and nothing was changed.
	ErrMalformed = errors.New("malformed")
)

// Machine is the lock state machine. It is not safe for concurrent use; see [Replicated] for that.
type Machine struct {
	// level is the highest feature level that the program understands. It is not part of the state.
	level uint32
	// searches are the rates of deadlock searches. Only tests change them.
	searches searchRates

	state    scalars
	sessions editable[uint64, session, *session]
	accounts editable[string, account, *account]
	belows   editable[string, below, *below]
	nonces   table[string, nonce]
	locks    editable[string, lock, *lock]
	claims   table[uint64, *claim]
	owners   table[ownerKey, *ownerRow]
	queue    table[place, place]
	holders  table[holderKey, holder]
	// upgrades are the holds that wait to become exclusive, ahead of the queues.
	upgrades table[place, place]
	outcomes outcomes
	members  table[string, *wire.Member]
	audit    table[uint64, *wire.AuditRecord]
	removed  table[uint64, *wire.RemovedMember]
	imported table[uint64, *wire.AuditRecord]
	// keySenders and keyResults make the requests of Redis ports take effect exactly once.
	keySenders table[string, keySender]
	keyResults table[keyRequest, *keyResult]

	// decoder reuses its memory from one entry to the next.
	decoder wire.EntryDecoder

	// The fields of the entry being applied. left counts the running command and those after it.
	wall int64
	// caller and node are those of the running command.
	caller *wire.Caller
	node   string
	left   int
	events []*wire.Event
	failed []Failure
	// results and happened allocate the results and the events of entries.
	results  slab[wire.Result]
	happened slab[wire.Event]
	// reusable is the memory that Recycle got back.
	reusable Applied
	// changed are the locks that the running command has left to grantChanged.
	changed []*lock
	// charged is the account that the running command has changed last.
	charged *account
	// outOfBudget is true if the running command was refused because a budget is exhausted.
	outOfBudget bool
	// undo is set by a handler that refuses its command after it has changed something: all of that is rolled back.
	undo bool
	// searched counts the units used by deadlock searches in this entry: see maxEntrySearch.
	searched int
	// fresh are the claims created by the running command: see made.
	fresh []*claim
	// asked are the locks of the running acquire, nil for each that does not exist yet.
	asked []*lock
	// scratch is reused by handlers that collect ids before they change a table.
	scratch []uint64
}

// Applied is the effect of an entry.
type Applied struct {
	// Results[i] answers command i of the entry. Client details in results are shared with the state and
	// must not be changed.
	Results []*wire.Result
	// Events are in the order in which they happened.
	Events []*wire.Event
	// Failures are the commands whose handler panicked; their result is INTERNAL.
	Failures []Failure
	// HashPoint asks the caller to hash the state as this entry left it.
	HashPoint bool
}

// Failure is a command whose handler panicked. It changed nothing but the revision and the count of
// discarded commands.
type Failure struct {
	// Command is the command's index in the entry.
	Command int
	// Operation is the kind of the command, and Panic the value that its handler panicked with. They are
	// meant for the log and may differ between nodes.
	Operation, Panic string
}

// New returns an empty machine for a program that understands feature levels up to level. Until it is
// bootstrapped, it accepts only Bootstrap and BeginTerm.
func New(level uint32) *Machine {
	return &Machine{
		level:    level,
		searches: searchRates{first: firstSearchAllowance, perRequest: searchPerRequest},
		sessions: newSessions(),
		accounts: newAccounts(),
		belows:   newBelows(),
		nonces:   newNonces(),
		locks:    newLocks(),
		claims:   newClaims(),
		owners:   newOwners(),
		queue:    newQueue(),
		holders:  newHolders(),
		upgrades: newQueue(),
		members:  newMembers(),
		audit:    newAudit(),
		removed:  newRemoved(),
		imported: newAudit(),

		keySenders: newKeySenders(),
		keyResults: newKeyResults(),
	}
}

// tables returns all tables.
func (m *Machine) tables() [17]journalled {
	return [17]journalled{
		&m.sessions, &m.accounts, &m.belows, &m.nonces, &m.locks, &m.claims, &m.owners,
		&m.queue, &m.holders, &m.upgrades, &m.outcomes, &m.members, &m.audit,
		&m.removed, &m.imported, &m.keySenders, &m.keyResults,
	}
}

// Fork returns an independent copy of m in constant time, whatever the size of the state. The copy may be
// used by another goroutine; the call itself counts as a write to m.
func (m *Machine) Fork() *Machine {
	return &Machine{
		level:    m.level,
		searches: m.searches,
		state:    m.state,
		sessions: m.sessions.fork(),
		accounts: m.accounts.fork(),
		belows:   m.belows.fork(),
		nonces:   m.nonces.fork(),
		locks:    m.locks.fork(),
		claims:   m.claims.fork(),
		owners:   m.owners.fork(),
		queue:    m.queue.fork(),
		holders:  m.holders.fork(),
		upgrades: m.upgrades.fork(),
		members:  m.members.fork(),
		audit:    m.audit.fork(),
		removed:  m.removed.fork(),
		imported: m.imported.fork(),

		keySenders: m.keySenders.fork(),
		keyResults: m.keyResults.fork(),
	}
}

// Apply applies a marshalled [wire.Entry]. It returns ErrMalformed or ErrUpgrade if it cannot, and then
// nothing has changed, not even the revision. An entry without commands changes nothing.
func (m *Machine) Apply(data []byte) (*Applied, error) {
	entry, err := m.decode(data)
	if err != nil {
		return nil, err
	}
	m.wall, m.failed, m.searched = entry.WallUnixMs, nil, 0
	m.results.begin()
	m.happened.begin()
	m.events = m.reusable.Events[:0]
	results := slices.Grow(m.reusable.Results[:0], len(entry.Commands))[:len(entry.Commands)]
	m.reusable = Applied{}
	for i, cmd := range entry.Commands {
		m.left = len(entry.Commands) - i
		results[i] = m.step(i, cmd)
	}
	applied := &Applied{Results: results, Events: m.events, Failures: m.failed, HashPoint: entry.HashPoint}
	m.events, m.failed = nil, nil
	return applied, nil
}

// maxSpareResults bounds the capacity of the slices that Recycle keeps.
const maxFreeResults = together * freeSlabs

// Recycle lets the next entry reuse the memory of the last result. Nothing may use last afterwards.
func (m *Machine) Recycle(last *Applied) {
	m.results.recycle()
	m.happened.recycle()
	clear(last.Results)
	clear(last.Events)
	if cap(last.Results) <= maxFreeResults && cap(last.Events) <= maxFreeResults {
		m.reusable = Applied{Results: last.Results, Events: last.Events}
	}
}

// decode returns an error for an entry that this program cannot read, before anything is applied. Fields
// that this level does not know are dropped, so they cannot be stored. Commands are valid until the next
// entry: the state may keep their strings and values, but not the messages of an acquire or a release.
func (m *Machine) decode(data []byte) (*wire.Entry, error) {
	if len(data) > MaxEntryBytes {
		return nil, fmt.Errorf("%w entry: %d bytes, at most %d", ErrMalformed, len(data), MaxEntryBytes)
	}
	entry, err := m.decoder.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%w entry: %v", ErrMalformed, err)
	}
	level := entry.Level
	for _, cmd := range entry.Commands {
		// Past such a command others of that level may follow.
		if raise, ok := cmd.Op.(*wire.Command_RaiseLevel); ok {
			level = max(level, raise.RaiseLevel.GetLevel())
		}
	}
	if level > m.level {
		return nil, fmt.Errorf("%w: the entry is of level %d, this node of level %d", ErrUpgrade, level, m.level)
	}
	return entry, nil
}

// step applies one command, or nothing of it if its handler panics.
func (m *Machine) step(place int, cmd *wire.Command) (result *wire.Result) {
	m.state.revision++
	m.caller, m.node = cmd.Caller, cmd.Node
	saved, events := m.state, len(m.events)
	defer func() {
		if reason := recover(); reason != nil {
			m.discard(saved, events)
			m.failed = append(m.failed, Failure{place, fmt.Sprintf("%T", cmd.Op), fmt.Sprint(reason)})
			result = answer(wire.Status_INTERNAL, "the command failed and was discarded; see the log of any node")
		} else {
			m.commit()
		}
		result.Seq = cmd.Seq
		if result.Revision == 0 {
			result.Revision = m.state.revision
		}
	}()
	result = m.execute(cmd)
	if m.undo {
		m.rollback(saved, events)
	}
	m.grantChanged()
	return result
}

// discard rolls back the running command because its handler has failed.
func (m *Machine) discard(saved scalars, events int) {
	m.rollback(saved, events)
	m.state.discarded++
}

// rollback rolls back the running command, except for its revision.
func (m *Machine) rollback(saved scalars, events int) {
	for _, t := range m.tables() {
		t.rollback()
	}
	m.share()
	m.charged = nil
	m.state, m.undo = saved, false
	clear(m.events[events:])
	m.events = m.events[:events]
	m.changed = emptied(m.changed)
}

func (m *Machine) commit() {
	m.sessions.commit()
	m.accounts.commit()
	m.belows.commit()
	m.charged = nil
	m.nonces.commit()
	m.locks.commit()
	m.claims.commit()
	m.owners.commit()
	m.queue.commit()
	m.holders.commit()
	m.upgrades.commit()
	m.outcomes.commit()
	m.members.commit()
	m.audit.commit()
	m.removed.commit()
	m.imported.commit()
	m.keySenders.commit()
	m.keyResults.commit()
	m.share()
}

// execute dispatches the commands of clients to their handlers.
func (m *Machine) execute(cmd *wire.Command) *wire.Result {
	if refusal := m.admit(cmd); refusal != nil {
		return refusal
	}
	if refusal := Validate(cmd, m.state.settings); refusal != nil {
		return refusal
	}
	switch op := cmd.Op.(type) {
	case *wire.Command_OpenSession:
		return m.openSession(op.OpenSession)
	case *wire.Command_AttachSession:
		return m.attachSession(cmd, op.AttachSession)
	case *wire.Command_CloseSession:
		return m.closeSession(cmd)
	case *wire.Command_Acknowledge:
		return m.acknowledgeOnly(cmd)
	case *wire.Command_OpenLease:
		return m.leaseRequest(cmd, op.OpenLease)
	case *wire.Command_ExtendLease:
		return m.extendLease(op.ExtendLease)
	case *wire.Command_ConfirmLease:
		return m.confirmLease(op.ConfirmLease)
	case *wire.Command_ReleaseLease:
		return m.releaseLease(op.ReleaseLease)
	case *wire.Command_ChangeKeys:
		return m.changeKeys(op.ChangeKeys)
	case *wire.Command_Acquire, *wire.Command_AcquireCached, *wire.Command_Release, *wire.Command_Cancel,
		*wire.Command_SetValue, *wire.Command_Upgrade, *wire.Command_Downgrade, *wire.Command_Extend:
		return m.request(cmd)
	}
	if refusal := m.unauthorized(cmd); refusal != nil {
		return refusal
	}
	return m.applySystem(cmd)
}

// applySystem dispatches the commands that do not come from a session: those of the leader, when a deadline
// has passed, and those of operators.
func (m *Machine) applySystem(cmd *wire.Command) *wire.Result {
	switch op := cmd.Op.(type) {
	case *wire.Command_Bootstrap:
		return m.bootstrap(op.Bootstrap)
	case *wire.Command_BeginTerm:
		return m.beginTerm(op.BeginTerm)
	case *wire.Command_PutMember:
		return m.putMember(op.PutMember.GetMember())
	case *wire.Command_DropMember:
		return m.dropMember(op.DropMember)
	case *wire.Command_RaiseLevel:
		return m.raiseLevel(op.RaiseLevel)
	case *wire.Command_SuspendGrants:
		return m.suspendGrants()
	case *wire.Command_ResumeGrants:
		return m.resumeGrants(op.ResumeGrants)
	case *wire.Command_RecordBackup:
		return m.recordBackup(op.RecordBackup.GetBackup())
	case *wire.Command_ExpireSession:
		return m.expireSession(op.ExpireSession)
	case *wire.Command_RecordRemaining:
		return m.recordRemaining(op.RecordRemaining)
	case *wire.Command_TimeoutWait:
		return m.timeoutWait(op.TimeoutWait)
	case *wire.Command_ExpireHold:
		return m.expireHold(op.ExpireHold)
	case *wire.Command_EndDelay:
		return m.endDelay(op.EndDelay)
	case *wire.Command_ForceRelease:
		return m.forceRelease(op.ForceRelease)
	case *wire.Command_Revoke:
		return m.revoke(op.Revoke)
	case *wire.Command_SkipDelay:
		return m.skipDelay(op.SkipDelay)
	case *wire.Command_Resize:
		return m.resize(op.Resize)
	case *wire.Command_ForceClose:
		return m.forceClose(op.ForceClose)
	case *wire.Command_RestoreBackup:
		return m.restoreBackup(op.RestoreBackup)
	case *wire.Command_RecordAct:
		return m.recordAct(op.RecordAct)
	case *wire.Command_SetPolicy:
		return m.setPolicy(op.SetPolicy)
	case *wire.Command_CreateToken:
		return m.createToken(op.CreateToken)
	case *wire.Command_RevokeToken:
		return m.revokeToken(op.RevokeToken)
	}
	return unknownOperation()
}

// admit returns a refusal for a command that the cluster as a whole does not accept yet, or nil.
func (m *Machine) admit(cmd *wire.Command) *wire.Result {
	switch cmd.Op.(type) {
	case *wire.Command_Bootstrap, *wire.Command_BeginTerm:
		return nil
	}
	if m.state.clusterID == "" {
		return answer(wire.Status_FAILED_PRECONDITION, "the cluster is not bootstrapped")
	}
	if needed := LevelOf(cmd); needed > m.state.level {
		return answer(wire.Status_UNSUPPORTED, fmt.Sprintf("needs feature level %d, the cluster is at %d: upgrade all nodes", needed, m.state.level))
	}
	return nil
}

// answer returns a result with nothing but a status and a message.
func answer(status wire.Status_Code, message string) *wire.Result {
	return &wire.Result{Status: status, Message: message}
}

// emit appends an event of the running command.
func (m *Machine) emit(e *wire.Event) {
	e.Revision = m.state.revision
	if cap(m.events) == 0 {
		m.events = make([]*wire.Event, 0, m.left+1) // a release that hands a lock over emits two events
	}
	m.events = append(m.events, e)
}
