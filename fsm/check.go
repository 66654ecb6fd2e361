package fsm

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Check returns an error for the first invariant that the state violates, or nil. It reads the whole
// state. It is meant for tests, for restored snapshots and for diagnosis.
func (m *Machine) Check() error {
	return (&checking{m, m.claimsByID(), m.locksByID()}).run()
}

// checking is a machine under Check. Its maps are for frequent lookups and several times as fast as the
// tables; a restart waits for Check.
type checking struct {
	*Machine
	claim map[uint64]*claim
	lock  map[uint64]*lock
}

func (m *Machine) claimsByID() map[uint64]*claim {
	all := make(map[uint64]*claim, m.claims.len())
	m.claims.each(0, func(c *claim) bool {
		all[c.id] = c
		return true
	})
	return all
}

func (m *Machine) locksByID() map[uint64]*lock {
	all := make(map[uint64]*lock, m.locks.len())
	m.locks.each("", func(l *lock) bool {
		all[l.id] = l
		return true
	})
	return all
}

func (m *checking) run() error {
	for _, check := range []func() error{
		m.checkScalars, m.checkMembers, m.checkSessions, m.checkLocks,
		m.checkClaims, m.checkOwners, m.checkQueue, m.checkHolders, m.checkUpgrades, m.checkOutcomes,
		m.checkAudit, m.checkRemoved, m.checkAccess, m.checkKeys,
	} {
		if err := check(); err != nil {
			return fmt.Errorf("broken invariant: %w", err)
		}
	}
	return nil
}

func (m *checking) checkScalars() error {
	s := m.state
	// One acquire may create several locks.
	if s.discarded > s.revision || s.suspended > s.revision || s.acknowledged > s.revision || s.firstAct > s.revision || s.lastSession < s.sessionFloor || s.lastSession-s.sessionFloor > s.revision || s.lastLock/maxLocks > s.revision || s.lastLock > 1<<62 {
		return fmt.Errorf("more things than the %d commands", s.revision)
	}
	if s.clusterID == "" {
		if s.level != 0 || s.suspended != 0 || s.settings != nil || s.lastSession|s.lastLock != 0 ||
			m.members.len()+m.removed.len()+m.sessions.len()+m.locks.len() != 0 {
			return errors.New("state before bootstrap")
		}
		return nil
	}
	switch {
	case s.level < firstLevel || s.level > m.level:
		return fmt.Errorf("feature level %d, the program understands up to %d", s.level, m.level)
	case len(s.lineage) > maxLineageBytes:
		return fmt.Errorf("lineage %q", s.lineage)
	case s.token > maxToken:
		return fmt.Errorf("token %d has more than 63 bits", s.token)
	case uint64(m.sessions.len()) > s.settings.GetMaxSessions():
		return fmt.Errorf("%d sessions, at most %d", m.sessions.len(), s.settings.GetMaxSessions())
	case uint64(m.locks.len()) > s.settings.GetMaxLocks():
		return fmt.Errorf("%d locks, at most %d", m.locks.len(), s.settings.GetMaxLocks())
	}
	if b := s.backup; b != nil && (validSavedBackup(b) != nil || b.Lineage != s.lineage || b.Revision > s.revision) {
		return fmt.Errorf("the last backup is %v", b)
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

func (m *checking) checkMembers() error {
	if m.members.len() > maxMembers {
		return fmt.Errorf("%d members, at most %d", m.members.len(), maxMembers)
	}
	return each(&m.members, func(member *wire.Member) error {
		if member.Level != 0 && member.Level < m.state.level {
			return fmt.Errorf("member %q is of level %d, the cluster of %d", member.Id, member.Level, m.state.level)
		}
		if other := m.memberOf(member.Incarnation); other != nil && other.Id != member.Id {
			return fmt.Errorf("members %q and %q have the same incarnation", other.Id, member.Id)
		}
		if m.wasRemoved(member.Incarnation) {
			return fmt.Errorf("member %q has incarnation %q, which was removed", member.Id, member.Incarnation)
		}
		return validMember(member)
	})
}

func (m *checking) checkRemoved() error {
	if m.removed.len() > maxRemoved {
		return fmt.Errorf("%d removed members, at most %d are remembered", m.removed.len(), maxRemoved)
	}
	return each(&m.removed, func(removed *wire.RemovedMember) error {
		if removed.Revision == 0 || removed.Revision > m.state.revision || removed.Incarnation == "" {
			return fmt.Errorf("member %q of incarnation %q was removed at revision %d of %d", removed.Id, removed.Incarnation, removed.Revision, m.state.revision)
		}
		return validMember(&wire.Member{Id: removed.Id, Incarnation: removed.Incarnation})
	})
}

// checkAccess checks the policy, the tokens and the identities that have sessions.
func (m *checking) checkAccess() error {
	a := m.Access()
	if refusal := validAccess(a.policy, a.tokens); refusal != nil {
		return errors.New(refusal.Message)
	}
	if a.revision > m.state.revision || (a.rights == nil) != (a.policy == nil) || a.policy != nil && a.revision == 0 {
		return fmt.Errorf("a policy of revision %d of %d", a.revision, m.state.revision)
	}
	for i, one := range a.certified {
		if !slices.Contains(a.rights.Administrators(), one) || i > 0 && one <= a.certified[i-1] {
			return fmt.Errorf("%q has used a certificate, but is out of order or may not change the policy", one)
		}
	}
	return m.checkAccounts()
}

// each calls fn for the rows of a table until the first error. It returns an error unless the rows ascend.
func each[K, V any](t *table[K, V], fn func(V) error) error {
	var last K
	var err error
	rows := 0
	t.each(last, func(value V) bool {
		if key := t.key(value); rows > 0 && t.order(last, value) >= 0 {
			err = fmt.Errorf("row %v stands behind row %v", key, last)
		} else {
			last, err = key, fn(value)
		}
		rows++
		return err == nil
	})
	if err == nil && rows != t.len() {
		err = fmt.Errorf("a table counts %d rows, there are %d", t.len(), rows)
	}
	return err
}

func (m *checking) checkSessions() error {
	units, secrets := uint64(0), 0
	err := each(&m.sessions.table, func(s *session) error {
		units += s.units()
		if s.secretHash != "" {
			secrets++
		}
		if err := m.checkSession(s); err != nil {
			return fmt.Errorf("session %d: %w", s.id, err)
		}
		return nil
	})
	m.claims.each(0, func(c *claim) bool {
		units += c.revocationUnits()
		if c.phase() == delayed {
			units += c.units()
		}
		return true
	})
	if err == nil && secrets != m.nonces.len() {
		return fmt.Errorf("%d secret hashes for %d sessions with secrets", m.nonces.len(), secrets)
	}
	if err == nil && units != m.state.bytes {
		return fmt.Errorf("counts %d units, there are %d", m.state.bytes, units)
	}
	return err
}

func (m *checking) checkSession(s *session) error {
	limits := m.state.settings
	nonce, _ := m.nonces.get(s.secretHash) // of session 0 if there is none
	switch {
	case s.id == 0 || s.id > m.state.lastSession:
		return fmt.Errorf("id %d, the last given out is %d", s.id, m.state.lastSession)
	case len(s.secretHash) != sha256.Size && (s.secretHash != "" || s.key == nil):
		return fmt.Errorf("secret hash of %d bytes", len(s.secretHash))
	case nonce.session != s.id && s.secretHash != "":
		return errors.New("its secret hash leads elsewhere")
	case s.key != nil:
		if err := m.checkKey(s); err != nil {
			return err
		}
	case s.ttl < limits.MinTtlMs || s.ttl > limits.MaxTtlMs && !s.leased || s.ttl > limits.MaxLeaseTtlMs && s.leased:
		return fmt.Errorf("TTL %d ms", s.ttl)
	}
	switch {
	case s.generation == 0:
		return errors.New("generation 0")
	case proto.Size(s.client) > int(limits.MaxClientInfoBytes)+maxAddressBytes+8:
		return fmt.Errorf("client info of %d bytes", proto.Size(s.client))
	case s.searchAllowance > maxSearch:
		return fmt.Errorf("%d units for deadlock searches, at most %d", s.searchAllowance, maxSearch)
	case s.claims() > limits.MaxClaimsPerSession:
		return fmt.Errorf("%d claims, at most %d", s.claims(), limits.MaxClaimsPerSession)
	}
	return m.recount(s)
}

// recount compares the stored counts of a session with the tables.
func (m *checking) recount(s *session) error {
	var final, waiting, holds, waits, further, recalls uint64
	units := s.unitsAlone()
	for _, o := range s.remembered() {
		units += o.units()
		if o.final() {
			final++
		} else {
			waiting++
		}
	}
	m.owners.each(ownerKey{session: s.id}, func(at *ownerRow) bool {
		c, ok := m.claim[at.id]
		if at.session != s.id || !ok || at.lock() != c.wants()[0].lock.id {
			return at.session == s.id
		}
		further += uint64(len(c.wants())) - 1
		if c.held() && c.recalled() {
			recalls++
		}
		units += c.units()
		if c.held() {
			holds++
		}
		if !c.held() || c.upgrading() {
			waits++
		}
		return true
	})
	if recalls != s.recalls {
		return fmt.Errorf("counts %d recalled holds: there are %d", s.recalls, recalls)
	}
	if units != s.units() || further != s.further {
		return fmt.Errorf("counts %d units and %d further names: there are %d and %d", s.units(), s.further, units, further)
	}
	if _, asked := s.outcome(leaseSeq); s.leased && (holds+waits != 1 || asked != (s.secretHash != "")) {
		return fmt.Errorf("a lease with %d holds and %d waits, its request is there: %v", holds, waits, asked)
	}
	if s.unconfirmed && (!s.leased || s.secretHash == "") || s.leased && waits > 0 && !s.unconfirmed {
		return fmt.Errorf("%d waits, to be confirmed: %v", waits, s.unconfirmed)
	}
	if s.window != nil && final != s.window.final || waiting != s.waits || holds != s.holds || waits != s.waits {
		return fmt.Errorf("counts %d holds and %d waits: there are %d and %d, %d requests that wait and %d that do not",
			s.holds, s.waits, holds, waits, waiting, final)
	}
	return nil
}

func (m *checking) checkLocks() error {
	if *noContention != (contention{}) {
		return errors.New("what all locks share was changed")
	}
	return each(&m.locks.table, func(l *lock) error {
		if indexed := m.lock[l.id]; indexed != l {
			return fmt.Errorf("locks %q and %q have id %d", indexed.name, l.name, l.id)
		}
		if err := m.checkLock(l); err != nil {
			return fmt.Errorf("lock %q: %w", l.name, err)
		}
		return nil
	})
}

func (m *checking) checkLock(l *lock) error {
	if err := wire.ValidName(l.name); err != nil {
		return err
	}
	switch {
	case l.id == 0 || l.id > m.state.lastLock:
		return fmt.Errorf("%q has id %d, the last given out is %d", l.name, l.id, m.state.lastLock)
	case l.limit > maxLimit || l.unfair && l.limit > 0:
		return fmt.Errorf("a semaphore of limit %d in the order %v", l.limit, l.order())
	case !l.occupied() && !l.awaited():
		return errors.New("nobody wants it")
	case m.state.suspended == 0 && m.next(l) != nil:
		return fmt.Errorf("it is free and %d wait: a lost wake-up", l.waiters)
	case uint64(l.waiters) > m.state.settings.MaxWaitersPerLock:
		return fmt.Errorf("%d waiters, at most %d", l.waiters, m.state.settings.MaxWaitersPerLock)
	case int(l.waiters) != m.queue.rank(place{l.id + 1, 0})-m.queue.rank(place{l.id, 0}):
		return fmt.Errorf("counts %d waiters, the queue differs", l.waiters)
	}
	return m.recountHolders(l)
}

// recountHolders compares the stored counts of a lock with its holders.
func (m *checking) recountHolders(l *lock) error {
	there := lock{lockKey: l.lockKey, contention: &contention{limit: l.limit}}
	var err error
	m.everyOccupant(l, func(c *claim) bool {
		if c == nil || c.token == 0 || c.wantOf(l.id).lock == nil {
			err = errors.New("a claim does not hold it, but is its occupant")
			return false
		}
		w := c.wantOf(l.id)
		if uint64(there.used)+w.weight() > maxLimit {
			err = errors.New("more is used than can be counted")
			return false
		}
		if l.limit == 0 && !there.fits(w) {
			err = fmt.Errorf("claim %d holds it against others", c.id)
		}
		there.occupy(w)
		if c.phase() == delayed {
			there.delays++
		}
		if c.listens() && !l.listening {
			err = fmt.Errorf("claim %d is not known to listen", c.id)
		}
		if c.listens() && (l.waiters > 0 || l.upgrader != 0 && l.upgrader != c.id) {
			err = fmt.Errorf("claim %d was not told that others wait", c.id)
		}
		return err == nil
	})
	if err == nil && (there.exclusive != l.exclusive || there.used != l.used || there.delays != l.delays) {
		err = fmt.Errorf("counts exclusive %v, used %d, delays %d: there are %v, %d, %d", l.exclusive, l.used, l.delays, there.exclusive, there.used, there.delays)
	}
	if c, ok := m.claim[l.upgrader]; l.upgrader != 0 && (!ok || !c.upgrading() || c.wantOf(l.id).lock == nil) {
		return fmt.Errorf("claim %d does not wait to upgrade", l.upgrader)
	}
	return err
}

// everyOccupant is eachOccupant for tables that may lack claims.
func (m *checking) everyOccupant(l *lock, fn func(*claim) bool) {
	if l.sole != 0 {
		fn(m.claim[l.sole])
		return
	}
	m.holders.each(holderKey{lock: l.id}, func(at holder) bool {
		return at.lock == l.id && fn(m.claim[at.claim])
	})
}

func (m *checking) checkAudit() error {
	if m.audit.len() > maxAudit || m.imported.len() > maxImported {
		return fmt.Errorf("%d audit records and %d imported ones, at most %d and %d", m.audit.len(), m.imported.len(), maxAudit, maxImported)
	}
	if all := m.audit.len() + m.imported.len(); m.audit.len() < maxAudit && m.imported.len() < maxImported && uint64(all) != m.state.lastAudit {
		return fmt.Errorf("%d audit records of %d, and none had to go", all, m.state.lastAudit)
	}
	err := each(&m.audit, func(record *wire.AuditRecord) error {
		if record.Id == 0 || record.Id > m.state.lastAudit || record.Imported != nil || validAudit(record) != nil {
			return fmt.Errorf("audit record %d of %d", record.Id, m.state.lastAudit)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return each(&m.imported, func(record *wire.AuditRecord) error {
		restore := record.Imported.GetRestoreId()
		if _, twice := m.audit.get(record.Id); twice || record.Id == 0 || restore <= record.Id || restore > m.state.lastAudit || validAudit(record) != nil {
			return fmt.Errorf("imported audit record %d of restore %d of %d", record.Id, restore, m.state.lastAudit)
		}
		return nil
	})
}

func (m *checking) checkOwners() error {
	return each(&m.owners, func(at *ownerRow) error {
		c, ok := m.claim[at.id]
		if !ok || c.phase() == delayed || c.session != at.session || c.owner != at.owner || c.wantOf(at.lock()).lock == nil {
			return fmt.Errorf("session %d, owner %d has claim %d on lock %d", at.session, at.owner, at.id, at.lock())
		}
		return nil
	})
}

func (m *checking) checkQueue() error {
	return each(&m.queue, func(at place) error {
		c, ok := m.claim[at.claim]
		if !ok || c.phase() != waiting || c.wantOf(at.lock).lock == nil {
			return fmt.Errorf("claim %d does not wait for lock %d, but stands in its queue", at.claim, at.lock)
		}
		return nil
	})
}

func (m *checking) checkHolders() error {
	return each(&m.holders, func(at holder) error {
		c, ok := m.claim[at.claim]
		if !ok || c.token != at.token || c.wantOf(at.lock).lock == nil {
			return fmt.Errorf("token %d on lock %d is of claim %d", at.token, at.lock, at.claim)
		}
		if l, ok := m.lock[at.lock]; !ok || l.sole != 0 {
			return fmt.Errorf("claim %d has a row beside the only holder", at.claim)
		}
		return nil
	})
}

func (m *checking) checkUpgrades() error {
	return each(&m.upgrades, func(at place) error {
		c, ok := m.claim[at.claim]
		if !ok || !c.upgrading() || c.wantOf(at.lock).lock == nil {
			return fmt.Errorf("claim %d does not wait to upgrade on lock %d, but has a row for it", at.claim, at.lock)
		}
		return nil
	})
}

func (m *checking) checkOutcomes() error {
	return each(&m.sessions.table, func(s *session) error {
		last := uint64(0)
		for _, o := range s.remembered() {
			if err := m.checkOutcome(s, o, last); err != nil {
				return fmt.Errorf("outcome of request %d of session %d: %w", o.seq, s.id, err)
			}
			last = o.seq
		}
		return nil
	})
}

// checkOutcome checks an outcome. last is the sequence number of the outcome before it.
func (m *checking) checkOutcome(s *session, o outcome, last uint64) error {
	switch {
	case o.seq <= last:
		return fmt.Errorf("it stands behind request %d", last)
	case o.revision == 0 || o.revision > m.state.revision:
		return fmt.Errorf("revision %d of %d", o.revision, m.state.revision)
	case !o.waited && (!o.final() || o.seq < s.ackedBelow):
		return errors.New("it waits or was acknowledged")
	case o.status == wire.Status_UNSPECIFIED:
		return errors.New("no status")
	case o.status == wire.Status_GRANTED && (o.holdID == 0 || o.token == 0):
		return errors.New("granted without a hold or a token")
	case o.token > m.state.token && o.status == wire.Status_GRANTED:
		return fmt.Errorf("token %d of %d", o.token, m.state.token)
	}
	if c, ok := m.claim[o.holdID]; !o.final() && (!ok || c.session != s.id || !c.waitsFor(o.seq)) {
		return fmt.Errorf("it waits, but claim %d does not", o.holdID)
	}
	return nil
}
