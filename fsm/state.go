package fsm

import "github.com/quorumlock/quorumlock/transport/wire"

// scalars are the state outside the tables. They are small enough to be copied before every command,
// which is how a failed command is rolled back.
type scalars struct {
	// index is the index of the last raft entry applied. The adapter sets it.
	index     uint64
	clusterID string
	// lineage names the history that revisions belong to.
	lineage string
	// level is the replicated feature level; 0 before bootstrap.
	level    uint32
	revision uint64
	token    uint64
	term     uint64
	leaderID string
	// starts records where the last maxTermStarts terms began. The slice is never changed in place.
	starts      []*wire.TermStart
	lastSession uint64
	// sessionFloor is the highest id that a session of an earlier history can have.
	sessionFloor uint64
	lastLock     uint64
	lastAudit    uint64
	// firstAct is the revision of the first operator action other than a change of members or leader, or 0.
	firstAct uint64
	settings *wire.Settings
	// access is who may do what; nil if that was never restricted.
	access    *Access
	discarded uint64
	// suspended is the revision at which granting was suspended, or 0 if it is not suspended.
	suspended uint64
	// backup is the latest scheduled backup of this lineage; nil if there was none. It is never changed in place.
	backup *wire.SavedBackup
	// acknowledged is the revision at which an operator last acknowledged alarms, or 0.
	acknowledged uint64
	// The fields from here on are derived and not stored in snapshots. holds counts the claims that hold;
	// waits counts the claims that wait and the holds that wait to become exclusive.
	holds, waits uint64
	// bytes are the units of all sessions and lock-delays.
	bytes uint64
}

// session is one client's right to hold locks and to wait for them.
type session struct {
	id         uint64
	secretHash string
	ttl        uint32
	// searchAllowance is the number of units that the session may still spend on deadlock searches.
	searchAllowance uint16
	// leased sessions belong to one leased hold. No client sends heartbeats for them.
	leased bool
	// unconfirmed is true for a lease that waits, or whose grant after a wait is not confirmed: see lifetime.
	unconfirmed bool
	// key is what it has in addition if it belongs to a key; nil otherwise.
	key *key
	// identity is that of the caller who opened it.
	identity   string
	generation uint64
	client     *wire.ClientInfo
	opened     int64
	ackedBelow uint64
	// The counts are derived and not stored in snapshots. further counts the lock names of its claims
	// beyond the first of each, recalls its cached holds for which others wait; bytes are its units without those of
	// its window.
	holds, waits, further, recalls, bytes uint64
	// window contains the remembered outcomes; nil if there have been none yet.
	window *window
	version
}

// lockKey is the part of a lock that never changes while the lock exists.
type lockKey struct {
	id   uint64
	name string
}

// lock exists while a claim holds it, waits for it or keeps it closed by a lock-delay. There are many
// locks, so a lock is kept to 48 bytes, a size class of the allocator. Apart from its key, limit and
// unfair, all fields are derived and not stored in snapshots.
type lock struct {
	lockKey
	// sole is the claim of its only holder; 0 if there is none, or if several have rows in holders: see addOccupant.
	sole uint64
	*contention
	// exclusive is also true during the lock-delay of an exclusive hold, which occupies the lock
	// like the hold.
	exclusive bool
	// listening is true if a holder may have to be notified of the next waiter.
	listening bool
	// unfair locks draw the next holder; all others follow the order of the log.
	unfair bool
	version
}

// contention is the state of a lock that a lock with only an exclusive holder does not need. Versions of a lock
// share it: see vary.
type contention struct {
	// upgrader is the hold that waits to become exclusive, ahead of the queue.
	upgrader uint64
	// used counts permits of a semaphore, or shared holders.
	used uint32
	// delays counts the lock-delays among the occupants.
	delays uint32
	// waiters counts the places in the queue.
	waiters uint32
	// limit is the limit of a semaphore; 0 for a lock with modes.
	limit uint32
}

// noContention is the contention of most locks. It is never changed.
var noContention = &contention{}

// vary returns the contention for changing. It makes a copy on each call, because versions of a lock share it.
func (l *lock) vary() *contention {
	own := *l.contention
	l.contention = &own
	return l.contention
}

// abandoned reports whether a lock still has a contention of its own that has become empty.
func (l *lock) abandoned() bool {
	return l.contention != noContention && *l.contention == *noContention
}

// occupied reports whether the lock is held or kept closed by a lock-delay.
func (l *lock) occupied() bool { return l.exclusive || l.used > 0 }

// awaited reports whether anything waits for the lock.
func (l *lock) awaited() bool { return l.waiters > 0 || l.upgrader != 0 }

// ahead counts the waiters ahead of the queue.
func (l *lock) ahead() uint64 {
	if l.upgrader == 0 {
		return 0
	}
	return 1
}

// made marks a claim as created by the running command. Until the command ends, nothing else has seen the
// claim, and it may be changed in place.
func (m *Machine) made(c *claim) {
	c.fresh = true
	m.fresh = append(m.fresh, c)
}

// share clears the marks that made has set: from now on, others may refer to the claims.
func (m *Machine) share() {
	for _, c := range m.fresh {
		c.fresh = false
	}
	m.fresh = emptied(m.fresh)
}

// editClaim returns a version of a claim that the running command may change. Rows of owners point to the
// version that the claim was created with, so each command that changes a claim copies it. Few claims are
// changed, and those only once or twice.
func (m *Machine) editClaim(id uint64) (*claim, bool) {
	known, ok := m.claims.get(id)
	if !ok || known.fresh {
		return known, ok
	}
	copied := *known
	m.made(&copied)
	m.claims.put(&copied)
	return &copied, true
}

func (m *Machine) editSession(id uint64) (*session, bool) {
	known, ok := m.sessions.get(id)
	if !ok {
		return nil, false
	}
	return m.sessions.edit(known), true
}

// live returns the current version of a lock that exists. A claim refers to the version that was current
// when the claim was created; if the table was not forked since, that is still the only one.
func (m *Machine) live(l *lock) *lock {
	if l.version != m.locks.now() {
		l, _ = m.locks.get(l.name)
	}
	return l
}

func (m *Machine) editLock(l *lock) *lock { return m.locks.edit(m.live(l)) }
