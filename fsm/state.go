package fsm

import "github.com/quorumlock/quorumlock/transport/wire"

// scalars are the state beside the tables. They are small enough to be copied
// before every command, which is how a failed one is undone.
type scalars struct {
	// index is that of the last raft entry applied; the adapter keeps it.
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
	// starts are where the last maxTermStarts terms began; they are never changed in place.
	starts      []*wire.TermStart
	lastSession uint64
	// sessionFloor is the last id that a session of an earlier history can have.
	sessionFloor uint64
	lastLock     uint64
	lastAudit    uint64
	// firstAct is the revision at which an operator first did something other than change
	// members or leader; 0 if nobody did.
	firstAct  uint64
	settings  *wire.Settings
	discarded uint64
	// suspended is the revision at which granting was suspended; 0 if it goes on.
	suspended uint64
	// acknowledged is the revision at which an operator last acknowledged alarms; 0 if nobody did.
	acknowledged uint64
	// What follows is counted, not stored. holds are the claims that hold; waits are
	// those that wait and the holds that wait to become exclusive.
	holds, waits uint64
	// bytes are the units of all sessions and lock-delays.
	bytes uint64
}

// session is one client's right to hold and to wait.
type session struct {
	id         uint64
	secretHash string
	ttl        uint32
	// searchAllowance are the units that it may still spend on deadlock searches.
	searchAllowance uint16
	// leased sessions belong to one leased hold: there is no client that keeps them.
	leased     bool
	generation uint64
	client     *wire.ClientInfo
	opened     int64
	ackedBelow uint64
	// What follows is counted, not stored. further are the names of its claims beyond the
	// first of each, bytes its units without those of its window.
	holds, waits, further, bytes uint64
	// window are the outcomes that are remembered; nil if there were none yet.
	window *window
	version
}

// lockKey is what never changes of a lock while it exists.
type lockKey struct {
	id   uint64
	name string
}

// lock exists while a claim holds it, waits for it or keeps it closed. There are many:
// it fills a block of the allocator, of 48 bytes. What follows its key is counted, not
// stored, but for limit and unfair.
type lock struct {
	lockKey
	// sole is the claim of its only holder, 0 where several have rows: see seat.
	sole uint64
	*crowd
	// exclusive is also a lock-delay: that occupies what its hold did.
	exclusive bool
	// listening says that a holder may have to be told of the next who waits.
	listening bool
	// unfair locks draw the next holder; all others go by the order of the log.
	unfair bool
	version
}

// crowd is what a lock has that is more than held exclusively. Versions of a lock share
// it: see vary.
type crowd struct {
	// upgrader is the hold that waits to become exclusive, before all the queue.
	upgrader uint64
	// used are permits of a semaphore, or shared holders.
	used uint32
	// delays are the lock-delays among those who are seated.
	delays uint32
	// waiters counts the places in the queue.
	waiters uint32
	// limit is that of a semaphore; 0 is a lock with modes.
	limit uint32
}

// nobody is the crowd of most locks. It is never changed.
var nobody = &crowd{}

// vary is the crowd for changing. Each change begins with a copy.
func (l *lock) vary() *crowd {
	own := *l.crowd
	l.crowd = &own
	return l.crowd
}

// deserted says that a lock keeps a crowd that has gone.
func (l *lock) deserted() bool { return l.crowd != nobody && *l.crowd == *nobody }

// occupied says whether anybody holds the lock or keeps it closed.
func (l *lock) occupied() bool { return l.exclusive || l.used > 0 }

// awaited says whether anybody waits for the lock.
func (l *lock) awaited() bool { return l.waiters > 0 || l.upgrader != 0 }

// ahead counts those who stand before the queue.
func (l *lock) ahead() uint64 {
	if l.upgrader == 0 {
		return 0
	}
	return 1
}

// made marks a claim as made by the running command, until that is over: nobody else has
// seen it yet.
func (m *Machine) made(c *claim) {
	c.fresh = true
	m.fresh = append(m.fresh, c)
}

// share ends that: from now on others may have them, too.
func (m *Machine) share() {
	for _, c := range m.fresh {
		c.fresh = false
	}
	m.fresh = emptied(m.fresh)
}

// editClaim returns the version of a claim that the running command may change. Owners
// have claims in the versions in which they were made, so that each command that changes
// one takes a copy: few are changed, and each but once or twice.
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

// live returns the present version of a lock that exists. Claims have it in the one in
// which they met it: of this era, that is still the only one.
func (m *Machine) live(l *lock) *lock {
	if l.version != m.locks.now() {
		l, _ = m.locks.get(l.name)
	}
	return l
}

func (m *Machine) editLock(l *lock) *lock { return m.locks.edit(m.live(l)) }
