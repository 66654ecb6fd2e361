package fsm

import (
	"github.com/quorumlock/quorumlock/fsm/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// To an identity that has not opened a session and may read none of the locks that it holds or waits for, the session and
// its claims look as if they did not exist: requests about them get the same status and text. Ports therefore pass on
// such requests, instead of refusing them with PERMISSION_DENIED.

// OwnsClaim reports whether an identity has opened the session of a hold, a wait or a lock-delay.
func (m *Machine) OwnsClaim(identity string, id uint64) bool {
	c, ok := m.claims.get(id)
	return ok && m.owns(identity, c.session)
}

// SeesClaim reports whether an identity with these rights may know of a hold, a wait or a lock-delay.
func (m *Machine) SeesClaim(g *rights.Grants, identity string, id uint64) bool {
	c, ok := m.claims.get(id)
	return ok && m.sees(g, identity, c)
}

// SeesSession reports whether an identity with these rights may know of a session.
func (m *Machine) SeesSession(g *rights.Grants, identity string, id uint64) bool {
	if m.owns(identity, id) {
		return true
	}
	seen := false
	m.owners.each(ownerKey{session: id}, func(at *ownerRow) bool { // not claimsOf, whose scratch queries must not share
		if at.session == id {
			c, _ := m.claims.get(at.id)
			seen = m.sees(g, identity, c)
		}
		return at.session == id && !seen
	})
	return seen
}

func (m *Machine) owns(identity string, session uint64) bool {
	s, ok := m.sessions.get(session)
	return ok && s.identity == identity
}

func (m *Machine) sees(g *rights.Grants, identity string, c *claim) bool {
	if m.owns(identity, c.session) {
		return true
	}
	for _, w := range c.wants() {
		if g.OnLock(w.lock.name, wire.Verb_READ) {
			return true
		}
	}
	return false
}
