package fsm

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Queries change nothing and share no scratch space, so any number of them may run at the same time while
// nothing is applied.

// ClusterID returns the cluster's id, or "" before bootstrap.
func (m *Machine) ClusterID() string { return m.state.clusterID }

// Term returns the term of the last BeginTerm. Deadlines belong to it.
func (m *Machine) Term() uint64 { return m.state.term }

// LeaderID returns the id of the leader that began Term.
func (m *Machine) LeaderID() string { return m.state.leaderID }

// AlarmsAcknowledged returns the revision at which an operator last acknowledged alarms, or 0. Alarms
// that were raised in earlier states have ended.
func (m *Machine) AlarmsAcknowledged() uint64 { return m.state.acknowledged }

// TermStarts returns where the last terms began, the oldest first. The slice is shared and must
// not be changed.
func (m *Machine) TermStarts() []*wire.TermStart { return m.state.starts }

// LatestTerm returns where the present term began, or nil before the first one. It is shared and must not be changed.
func (m *Machine) LatestTerm() *wire.TermStart {
	if len(m.state.starts) == 0 {
		return nil
	}
	return m.state.starts[len(m.state.starts)-1]
}

// Contains reports whether a position belongs to this history: its term began here, with the same leader, and the next
// one began after its revision. A position from before the remembered terms counts as contained, unless its revision
// contradicts that.
func (m *Machine) Contains(at *wire.Position) bool {
	starts := m.state.starts
	next, found := slices.BinarySearchFunc(starts, at.GetTerm(), func(start *wire.TermStart, term uint64) int {
		return cmp.Compare(start.Term, term)
	})
	switch {
	case found && starts[next].Nonce != at.GetNonce():
		return false
	case found:
		next++
	case next > 0 || len(starts) < maxTermStarts:
		return false
	}
	end := m.state.revision
	if next < len(starts) {
		end = starts[next].Revision - 1
	}
	return at.GetRevision() <= end
}

// Revision returns the number of commands applied.
func (m *Machine) Revision() uint64 { return m.state.revision }

// Token returns the last fencing token issued, or the floor.
func (m *Machine) Token() uint64 { return m.state.token }

// FeatureLevel returns the replicated feature level, 0 before bootstrap.
func (m *Machine) FeatureLevel() uint32 { return m.state.level }

// Discarded returns the number of commands whose handler panicked.
func (m *Machine) Discarded() uint64 { return m.state.discarded }

// Settings returns a copy of the cluster's limits; the defaults before bootstrap.
func (m *Machine) Settings() *wire.Settings {
	if m.state.settings == nil {
		return DefaultSettings()
	}
	return proto.CloneOf(m.state.settings)
}

// Members returns copies of the nodes in the replicated state, by id.
func (m *Machine) Members() []*wire.Member {
	var members []*wire.Member
	m.members.each("", func(member *wire.Member) bool {
		members = append(members, proto.CloneOf(member))
		return true
	})
	return members
}

// Member returns a copy of one node.
func (m *Machine) Member(id string) (*wire.Member, bool) {
	member, ok := m.members.get(id)
	if !ok {
		return nil, false
	}
	return proto.CloneOf(member), true
}

// Removed returns copies of the removed members that are remembered, the oldest first.
func (m *Machine) Removed() []*wire.RemovedMember {
	var all []*wire.RemovedMember
	m.removed.each(0, func(removed *wire.RemovedMember) bool {
		all = append(all, proto.CloneOf(removed))
		return true
	})
	return all
}

// WasRemoved reports whether a member with that incarnation was removed.
func (m *Machine) WasRemoved(incarnation string) bool { return m.wasRemoved(incarnation) }

// Totals counts the live sessions, locks, holds and waiters.
type Totals struct {
	Sessions, Locks, Holds, Waiters uint64
}

// Totals takes constant time.
func (m *Machine) Totals() Totals {
	return Totals{
		Sessions: uint64(m.sessions.len()),
		Locks:    uint64(m.locks.len()),
		Holds:    m.state.holds,
		Waiters:  m.state.waits,
	}
}

// Session is what timers and authentication need of a session.
type Session struct {
	ID uint64
	// TTL is in milliseconds.
	TTL uint32
	// Generation is the generation of the deadline; an expiry must name it.
	Generation uint64
	// SecretHash is the SHA-256 of the client's secret.
	SecretHash []byte
	// Identity is that of the caller who opened it.
	Identity string
	// Leased sessions belong to one leased hold; heartbeats do not extend them. Unconfirmed ones wait, or were granted
	// after a wait and are not confirmed yet.
	Leased, Unconfirmed bool
	// ByValue sessions belong to a key. Remaining is what remained of its TTL when that was last recorded in this
	// generation, in milliseconds; 0 if it was not.
	ByValue   bool
	Remaining uint32
}

func viewSession(s *session) Session {
	return Session{
		ID: s.id, TTL: s.lifetime(), Generation: s.generation, SecretHash: []byte(s.secretHash), Identity: s.identity,
		Leased: s.leased, Unconfirmed: s.unconfirmed, ByValue: s.key != nil, Remaining: cmp.Or(s.key, noKey).remaining,
	}
}

// Session returns a live session.
func (m *Machine) Session(id uint64) (Session, bool) {
	s, ok := m.sessions.get(id)
	if !ok {
		return Session{}, false
	}
	return viewSession(s), true
}

// SessionBySecret returns the live session whose secret has that SHA-256.
func (m *Machine) SessionBySecret(hash []byte) (Session, bool) {
	s := m.bySecret(hash)
	if s == nil {
		return Session{}, false
	}
	return viewSession(s), true
}

// HoldsOf returns a session's holds, by hold id. It leaves out the lock names of a hold of several locks
// if they would make the answer too long for a frame.
func (m *Machine) HoldsOf(session uint64) []*wire.HeldLock {
	var holds []*wire.HeldLock
	m.owners.each(ownerKey{session: session}, func(at *ownerRow) bool {
		// A hold of several locks is listed at its first one.
		if c, _ := m.claims.get(at.id); at.session == session && c.held() && at.lock() == c.wants()[0].lock.id {
			holds = append(holds, m.heldLock(c))
		}
		return at.session == session
	})
	slices.SortFunc(holds, func(a, b *wire.HeldLock) int { return cmp.Compare(a.HoldId, b.HoldId) })
	room := maxDetailBytes
	for _, held := range holds {
		if room -= proto.Size(held); room < 0 {
			held.Locks = nil
		}
	}
	return holds
}

// LocksOf returns how many locks a session holds or waits for, or most if there are more.
func (m *Machine) LocksOf(session uint64, most int) (n int) {
	m.owners.each(ownerKey{session: session}, func(at *ownerRow) bool {
		if at.session == session {
			n++
		}
		return at.session == session && n < most
	})
	return n
}

// Caches reports whether a session has a cached hold with that id.
func (m *Machine) Caches(session, hold uint64) bool {
	c, ok := m.claims.get(hold)
	return ok && c.session == session && c.held() && c.isCached()
}

// LocksOfClaim returns the names of the locks of a hold, a wait or a lock-delay; nil if there is none with that id.
func (m *Machine) LocksOfClaim(id uint64) []string {
	c, ok := m.claims.get(id)
	if !ok {
		return nil
	}
	all := make([]string, 0, len(c.wants()))
	for _, w := range c.wants() {
		all = append(all, w.lock.name)
	}
	return all
}

// LockNames returns the names of the locks that a session holds or waits for.
func (m *Machine) LockNames(session uint64) (all []string) {
	m.owners.each(ownerKey{session: session}, func(at *ownerRow) bool {
		if at.session == session {
			all = append(all, at.one[0].lock.name)
		}
		return at.session == session
	})
	return all
}

// EachSession calls fn for every session, by id, until it returns false.
func (m *Machine) EachSession(fn func(Session) bool) {
	m.sessions.each(0, func(s *session) bool { return fn(viewSession(s)) })
}

// Wait is a request that waits, for the leader's timers.
type Wait struct {
	ID, SessionID uint64
	// Generation is the generation of the deadline; a timeout must name it.
	Generation uint64
	// WaitMs is how long the request may wait, in milliseconds; meaningless with WaitForever.
	WaitMs      uint32
	WaitForever bool
}

// EachWait calls fn for every waiting request, by its claim's id, until it returns false. A hold that
// waits to become exclusive is listed under its own id.
func (m *Machine) EachWait(fn func(Wait) bool) {
	m.claims.each(0, func(c *claim) bool {
		switch {
		case c.phase() == waiting:
			return fn(Wait{c.id, c.session, c.generation(), c.waitMs, c.waitForever})
		case c.upgrading():
			u := c.extra().upgrade
			return fn(Wait{c.id, c.session, c.generation(), u.waitMs, u.waitForever})
		}
		return true
	})
}

// Executed reports whether an identity has sent a request before: the outcome under that number, in a session of this
// identity, is that of a request with this digest.
func (m *Machine) Executed(identity string, session, seq, digest uint64) bool {
	s, ok := m.sessions.get(session)
	if !ok || s.leased || s.identity != identity {
		return false
	}
	o, ok := s.outcome(seq)
	return ok && o.digest == digest
}

// Opened reports whether an identity has opened a session with the secret of that SHA-256.
func (m *Machine) Opened(identity string, hash []byte) bool {
	return m.bySecret(hash).openedBy(identity)
}

// Leased reports whether an identity has acquired a lease with the secret of that SHA-256, by a request with this digest.
func (m *Machine) Leased(identity string, hash []byte, digest uint64) bool {
	return m.bySecret(hash).leasedBy(identity, digest)
}

// Outcome returns the latest outcome of a request, if it is remembered, with its sequence number.
func (m *Machine) Outcome(session, seq uint64) (*wire.Result, bool) {
	s, ok := m.sessions.get(session)
	if !ok {
		return nil, false
	}
	o, ok := s.outcome(seq)
	if !ok {
		return nil, false
	}
	r := m.present(o)
	r.Seq, r.Digest, r.Name = seq, o.digest, m.nameOf(session, o.holdID)
	return r, true
}
