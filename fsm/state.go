package fsm

import "github.com/quorumlock/quorumlock/transport/wire"

// scalars are the state beside the tables. They are small enough to be copied
// before every command, which is how a failed one is undone.
type scalars struct {
	// index is that of the last raft entry applied; the adapter keeps it.
	index     uint64
	clusterID string
	// level is the replicated feature level; 0 before bootstrap.
	level       uint32
	revision    uint64
	token       uint64
	term        uint64
	leaderID    string
	lastSession uint64
	lastLock    uint64
	settings    *wire.Settings
	discarded   uint64
	// holds counts the claims that hold; the others wait.
	holds uint64
}

// session is one client's right to hold and to wait.
type session struct {
	id         uint64
	secretHash string
	ttl        uint32
	generation uint64
	client     *wire.ClientInfo
	opened     int64
	ackedBelow uint64
	// What follows is counted, not stored.
	holds, waits uint64
	// window counts the remembered outcomes that are final.
	window uint64
	// touched is the revision of the command that owns this version and may still
	// change it.
	touched uint64
}

// lock exists while a claim holds it or waits for it.
type lock struct {
	id   uint64
	name string
	// holders are claims in the order of their tokens. The slice is shared between
	// versions: replace it, never write into it.
	holders []uint64
	// waiters counts its places in the queue.
	waiters uint64
	touched uint64
}

// claim is a wait or, once it has a token, a hold.
type claim struct {
	id, session, owner, seq uint64
	wants                   []want
	value                   []byte
	waitMs                  uint32
	waitForever             bool
	// generation is that of the wait's deadline.
	generation uint64
	queued     int64
	// order is its place in the queues of all the locks it wants; smaller is nearer
	// the head. A plain acquire takes its id, which makes every queue FIFO.
	order           uint64
	token           uint64
	grantedRevision uint64
	granted         int64
	touched         uint64
}

// want is one lock that a claim is for.
type want struct {
	name string
	lock uint64
	mode wire.Mode
}

func (c *claim) held() bool { return c.token != 0 }

// outcome is what a request came to.
type outcome struct {
	status   wire.Status_Code
	message  string
	revision uint64
	holdID   uint64
	token    uint64
	// waited outcomes are forgotten only once the client has said that it has them.
	waited bool
}

func (o *outcome) final() bool { return o.status != wire.Status_QUEUED }

// ownerKey finds what an owner has to do with a lock: one claim at most.
type ownerKey struct{ session, owner, lock uint64 }

func byOwner(a, b row[ownerKey, uint64]) bool {
	if a.key.session != b.key.session {
		return a.key.session < b.key.session
	}
	if a.key.owner != b.key.owner {
		return a.key.owner < b.key.owner
	}
	return a.key.lock < b.key.lock
}

// placeKey is a place in a lock's queue.
type placeKey struct{ lock, order uint64 }

func byPlace(a, b row[placeKey, uint64]) bool {
	if a.key.lock != b.key.lock {
		return a.key.lock < b.key.lock
	}
	return a.key.order < b.key.order
}

// requestKey names a request.
type requestKey struct{ session, seq uint64 }

func byRequest(a, b row[requestKey, *outcome]) bool {
	if a.key.session != b.key.session {
		return a.key.session < b.key.session
	}
	return a.key.seq < b.key.seq
}

// editSession returns the version of a session that the running command may change.
func (m *Machine) editSession(id uint64) (*session, bool) {
	s, ok := m.sessions.get(id)
	if !ok || s.touched == m.state.revision {
		return s, ok
	}
	edit := *s
	edit.touched = m.state.revision
	m.sessions.put(id, &edit)
	return &edit, true
}

// editLock is editSession for a lock.
func (m *Machine) editLock(name string) (*lock, bool) {
	l, ok := m.locks.get(name)
	if !ok || l.touched == m.state.revision {
		return l, ok
	}
	edit := *l
	edit.touched = m.state.revision
	m.locks.put(name, &edit)
	return &edit, true
}

// editClaim is editSession for a claim.
func (m *Machine) editClaim(id uint64) (*claim, bool) {
	c, ok := m.claims.get(id)
	if !ok || c.touched == m.state.revision {
		return c, ok
	}
	edit := *c
	edit.touched = m.state.revision
	m.claims.put(id, &edit)
	return &edit, true
}
