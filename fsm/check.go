package fsm

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Check returns the first invariant that the state breaks, or nil. It reads
// everything: for tests, for restored snapshots and for doubts.
func (m *Machine) Check() error {
	for _, check := range []func() error{
		m.checkScalars, m.checkMembers, m.checkSessions, m.checkLocks,
		m.checkClaims, m.checkOwners, m.checkQueue, m.checkOutcomes,
	} {
		if err := check(); err != nil {
			return fmt.Errorf("broken invariant: %w", err)
		}
	}
	return nil
}

func (m *Machine) checkScalars() error {
	s := m.state
	if s.discarded > s.revision || s.lastSession > s.revision || s.lastLock > s.revision {
		return fmt.Errorf("more things than the %d commands", s.revision)
	}
	if s.clusterID == "" {
		if s.level != 0 || s.token != 0 || s.settings != nil || s.lastSession|s.lastLock != 0 ||
			m.members.len()+m.sessions.len()+m.locks.len() != 0 {
			return errors.New("state before bootstrap")
		}
		return nil
	}
	switch {
	case s.level < firstLevel || s.level > m.level:
		return fmt.Errorf("feature level %d, the program understands up to %d", s.level, m.level)
	case s.token > maxToken:
		return fmt.Errorf("token %d has more than 63 bits", s.token)
	case uint64(m.sessions.len()) > s.settings.GetMaxSessions():
		return fmt.Errorf("%d sessions, at most %d", m.sessions.len(), s.settings.GetMaxSessions())
	case uint64(m.locks.len()) > s.settings.GetMaxLocks():
		return fmt.Errorf("%d locks, at most %d", m.locks.len(), s.settings.GetMaxLocks())
	}
	complete, err := completeSettings(s.settings)
	if err == nil && !proto.Equal(complete, s.settings) {
		err = errors.New("a limit is 0")
	}
	if err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	return nil
}

func (m *Machine) checkMembers() error {
	if m.members.len() > maxMembers {
		return fmt.Errorf("%d members, at most %d", m.members.len(), maxMembers)
	}
	return each(&m.members, func(id string, member *wire.Member) error {
		if id != member.Id {
			return fmt.Errorf("member %q stands under %q", member.Id, id)
		}
		if member.Level != 0 && member.Level < m.state.level {
			return fmt.Errorf("member %q is of level %d, the cluster of %d", id, member.Level, m.state.level)
		}
		return validMember(member)
	})
}

// each walks a table until the first error.
func each[K, V any](t *table[K, V], fn func(K, V) error) error {
	var from K
	var err error
	t.each(from, func(key K, value V) bool {
		err = fn(key, value)
		return err == nil
	})
	return err
}

func (m *Machine) checkSessions() error {
	if m.nonces.len() != m.sessions.len() {
		return fmt.Errorf("%d secret hashes for %d sessions", m.nonces.len(), m.sessions.len())
	}
	return each(&m.sessions, func(id uint64, s *session) error {
		if err := m.checkSession(id, s); err != nil {
			return fmt.Errorf("session %d: %w", id, err)
		}
		return nil
	})
}

func (m *Machine) checkSession(id uint64, s *session) error {
	limits := m.state.settings
	nonce, known := m.nonces.get(s.secretHash)
	switch {
	case id != s.id || id == 0 || id > m.state.lastSession:
		return fmt.Errorf("id %d, the last given out is %d", s.id, m.state.lastSession)
	case len(s.secretHash) != sha256.Size:
		return fmt.Errorf("secret hash of %d bytes", len(s.secretHash))
	case !known || nonce != id:
		return errors.New("its secret hash leads elsewhere")
	case s.ttl < limits.MinTtlMs || s.ttl > limits.MaxTtlMs:
		return fmt.Errorf("TTL %d ms", s.ttl)
	case s.generation == 0:
		return errors.New("generation 0")
	case proto.Size(s.client) > int(limits.MaxClientInfoBytes)+maxAddressBytes+8:
		return fmt.Errorf("client info of %d bytes", proto.Size(s.client))
	case s.holds+s.waits > limits.MaxClaimsPerSession:
		return fmt.Errorf("%d claims, at most %d", s.holds+s.waits, limits.MaxClaimsPerSession)
	case s.window+s.waits > limits.MaxWindow+limits.MaxClaimsPerSession:
		return fmt.Errorf("a window of %d outcomes", s.window+s.waits)
	}
	return m.recount(s)
}

// recount compares what is kept counted with what is there.
func (m *Machine) recount(s *session) error {
	var window, waiting, holds, waits uint64
	m.outcomes.each(requestKey{s.id, 0}, func(key requestKey, o *outcome) bool {
		if key.session == s.id && o.final() {
			window++
		} else if key.session == s.id {
			waiting++
		}
		return key.session == s.id
	})
	m.owners.each(ownerKey{session: s.id}, func(key ownerKey, id uint64) bool {
		c, ok := m.claims.get(id)
		if key.session != s.id || !ok {
			return key.session == s.id
		}
		if c.held() {
			holds++
		} else {
			waits++
		}
		return true
	})
	if window != s.window || waiting != s.waits || holds != s.holds || waits != s.waits {
		return fmt.Errorf("counts window %d, waiting %d, holds %d, waits %d: there are %d, %d, %d, %d",
			s.window, s.waits, s.holds, s.waits, window, waiting, holds, waits)
	}
	return nil
}

func (m *Machine) checkLocks() error {
	ids := newTable(byID[string])
	return each(&m.locks, func(name string, l *lock) error {
		if twin, ok := ids.get(l.id); ok {
			return fmt.Errorf("locks %q and %q have id %d", twin, name, l.id)
		}
		ids.load(l.id, name)
		if err := m.checkLock(name, l); err != nil {
			return fmt.Errorf("lock %q: %w", name, err)
		}
		return nil
	})
}

func (m *Machine) checkLock(name string, l *lock) error {
	if err := ValidName(name); err != nil {
		return err
	}
	switch {
	case name != l.name || l.id == 0 || l.id > m.state.lastLock:
		return fmt.Errorf("%q has id %d, the last given out is %d", l.name, l.id, m.state.lastLock)
	case len(l.holders) > 1:
		return fmt.Errorf("%d exclusive holders", len(l.holders))
	case len(l.holders) == 0 && l.waiters == 0:
		return errors.New("nobody wants it")
	case l.waiters > 0 && grantable(l):
		return fmt.Errorf("it is free and %d wait: a lost wake-up", l.waiters)
	case l.waiters > m.state.settings.MaxWaitersPerLock:
		return fmt.Errorf("%d waiters, at most %d", l.waiters, m.state.settings.MaxWaitersPerLock)
	case l.waiters != uint64(m.queue.rank(placeKey{l.id + 1, 0})-m.queue.rank(placeKey{l.id, 0})):
		return fmt.Errorf("counts %d waiters, the queue differs", l.waiters)
	}
	for _, id := range l.holders {
		c, ok := m.claims.get(id)
		if !ok || !c.held() || c.modeOf(l.id) == wire.Mode_MODE_UNSPECIFIED {
			return fmt.Errorf("claim %d does not hold it", id)
		}
	}
	return nil
}

func (m *Machine) checkClaims() error {
	var holds uint64
	tokens := newTable(byID[uint64])
	err := each(&m.claims, func(id uint64, c *claim) error {
		if c.held() {
			holds++
			if twin, ok := tokens.get(c.token); ok {
				return fmt.Errorf("claims %d and %d have token %d", twin, id, c.token)
			}
			tokens.load(c.token, id)
		}
		if err := m.checkClaim(id, c); err != nil {
			return fmt.Errorf("claim %d: %w", id, err)
		}
		return nil
	})
	if err == nil && holds != m.state.holds {
		err = fmt.Errorf("counts %d holds, there are %d", m.state.holds, holds)
	}
	return err
}

func (m *Machine) checkClaim(id uint64, c *claim) error {
	_, live := m.sessions.get(c.session)
	switch {
	case id != c.id || id == 0 || id > m.state.revision:
		return fmt.Errorf("id %d at revision %d", c.id, m.state.revision)
	case !live:
		return fmt.Errorf("session %d does not live", c.session)
	case c.seq == 0 || c.generation == 0:
		return fmt.Errorf("seq %d, generation %d", c.seq, c.generation)
	case len(c.value) > int(m.state.settings.MaxValueBytes):
		return fmt.Errorf("a value of %d bytes", len(c.value))
	case len(c.wants) != 1:
		return fmt.Errorf("wants %d locks", len(c.wants))
	case c.order != c.id:
		return fmt.Errorf("stands at %d: not in the order of requests", c.order)
	}
	for _, w := range c.wants {
		if err := m.checkWant(c, w); err != nil {
			return err
		}
	}
	if c.held() {
		return m.checkHold(c)
	}
	return m.checkWait(c)
}

func (m *Machine) checkWant(c *claim, w want) error {
	l, ok := m.locks.get(w.name)
	if !ok || l.id != w.lock || w.mode != wire.Mode_EXCLUSIVE {
		return fmt.Errorf("wants lock %q, id %d, mode %v", w.name, w.lock, w.mode)
	}
	if id, ok := m.owners.get(ownerKey{c.session, c.owner, w.lock}); !ok || id != c.id {
		return fmt.Errorf("its owner has claim %d on %q", id, w.name)
	}
	_, queued := m.queue.get(placeKey{w.lock, c.order})
	holds := false
	for _, id := range l.holders {
		holds = holds || id == c.id
	}
	if holds != c.held() || queued == c.held() {
		return fmt.Errorf("token %d, holds %q: %v, queued: %v", c.token, w.name, holds, queued)
	}
	return nil
}

func (m *Machine) checkHold(c *claim) error {
	if c.token > m.state.token || c.grantedRevision < c.id || c.grantedRevision > m.state.revision {
		return fmt.Errorf("token %d of %d, granted at %d of %d", c.token, m.state.token, c.grantedRevision, m.state.revision)
	}
	return nil
}

func (m *Machine) checkWait(c *claim) error {
	o, ok := m.outcomes.get(requestKey{c.session, c.seq})
	switch {
	case c.waitMs == 0 && !c.waitForever:
		return errors.New("a try waits")
	case !ok || o.final() || o.holdID != c.id:
		return fmt.Errorf("its request %d does not wait", c.seq)
	case c.grantedRevision != 0 || c.granted != 0:
		return errors.New("granted without a token")
	}
	return nil
}

func (m *Machine) checkOwners() error {
	return each(&m.owners, func(key ownerKey, id uint64) error {
		c, ok := m.claims.get(id)
		if !ok || c.session != key.session || c.owner != key.owner || c.modeOf(key.lock) == wire.Mode_MODE_UNSPECIFIED {
			return fmt.Errorf("session %d, owner %d has claim %d on lock %d", key.session, key.owner, id, key.lock)
		}
		return nil
	})
}

func (m *Machine) checkQueue() error {
	return each(&m.queue, func(place placeKey, id uint64) error {
		c, ok := m.claims.get(id)
		if !ok || c.held() || c.order != place.order || c.modeOf(place.lock) == wire.Mode_MODE_UNSPECIFIED {
			return fmt.Errorf("place %d in the queue of lock %d has claim %d", place.order, place.lock, id)
		}
		return nil
	})
}

func (m *Machine) checkOutcomes() error {
	return each(&m.outcomes, func(key requestKey, o *outcome) error {
		if err := m.checkOutcome(key, o); err != nil {
			return fmt.Errorf("outcome of request %d of session %d: %w", key.seq, key.session, err)
		}
		return nil
	})
}

func (m *Machine) checkOutcome(key requestKey, o *outcome) error {
	s, ok := m.sessions.get(key.session)
	switch {
	case !ok || key.seq == 0:
		return errors.New("no such request can be")
	case o.revision == 0 || o.revision > m.state.revision:
		return fmt.Errorf("revision %d of %d", o.revision, m.state.revision)
	case !o.waited && (!o.final() || key.seq < s.ackedBelow):
		return errors.New("it waits or was acknowledged")
	case o.status == wire.Status_UNSPECIFIED:
		return errors.New("no status")
	case o.status == wire.Status_GRANTED && (o.holdID == 0 || o.token == 0):
		return errors.New("granted without a hold or a token")
	case o.token > m.state.token && o.status == wire.Status_GRANTED:
		return fmt.Errorf("token %d of %d", o.token, m.state.token)
	}
	if c, ok := m.claims.get(o.holdID); !o.final() && (!ok || c.held() || c.session != key.session || c.seq != key.seq) {
		return fmt.Errorf("it waits, but claim %d does not", o.holdID)
	}
	return nil
}
