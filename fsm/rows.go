package fsm

import (
	"cmp"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// nonce maps a secret to its session.
type nonce struct {
	hash    string
	session uint64
}

// ownerKey identifies what an owner has on a lock: at most one claim.
type ownerKey struct{ session, owner, lock uint64 }

// compare reads the ownerRow's lock last, because it is elsewhere in memory and rarely needed.
func (k ownerKey) compare(s *ownerRow) int {
	switch {
	case k.session != s.session:
		return cmp.Compare(k.session, s.session)
	case k.owner != s.owner:
		return cmp.Compare(k.owner, s.owner)
	}
	return cmp.Compare(k.lock, s.lock())
}

// ownerRow is a row of the owners table: a pointer to the claim in the version that it was created with.
// Only the fields that never change may be read through it. The row costs only a pointer and need not be
// replaced when the claim changes. A claim that changes keeps its first version alive; few claims change,
// so there are few such versions.
type ownerRow claim

// ownerRowOf returns the ownerRow in one of a claim's locks. A claim for several locks has one ownerRow for each.
func (c *claim) ownerRowOf(w want) *ownerRow {
	if len(c.wants()) == 1 {
		return (*ownerRow)(c)
	}
	return &ownerRow{id: c.id, session: c.session, owner: c.owner, one: [1]want{w}}
}

func (s *ownerRow) lock() uint64 { return s.one[0].lock.id }

func (s *ownerRow) key() ownerKey { return ownerKey{s.session, s.owner, s.lock()} }

// place is a place in a lock's queue. Claims are queued in the order of their ids.
type place struct{ lock, claim uint64 }

func (p place) compare(other place) int {
	if p.lock != other.lock {
		return cmp.Compare(p.lock, other.lock)
	}
	return cmp.Compare(p.claim, other.claim)
}

// holderKey identifies a hold on a lock, or its lock-delay.
type holderKey struct{ lock, token uint64 }

func (k holderKey) compare(other holderKey) int {
	if k.lock != other.lock {
		return cmp.Compare(k.lock, other.lock)
	}
	return cmp.Compare(k.token, other.token)
}

// holder is a hold on a lock, or its lock-delay.
type holder struct {
	holderKey
	claim uint64
}

// The tables, with the keys of their rows and their orders.

func newSessions() editable[uint64, session, *session] {
	return newEditable[uint64, session](func(s *session) uint64 { return s.id },
		func(id uint64, s *session) int { return cmp.Compare(id, s.id) })
}

func newAccounts() editable[string, account, *account] {
	return newEditable[string, account](func(a *account) string { return a.name },
		func(name string, a *account) int { return strings.Compare(name, a.name) })
}

func newBelows() editable[string, below, *below] {
	return newEditable[string, below](func(b *below) string { return b.prefix },
		func(prefix string, b *below) int { return strings.Compare(prefix, b.prefix) })
}

func newNonces() table[string, nonce] {
	return newTable(func(n nonce) string { return n.hash },
		func(hash string, n nonce) int { return strings.Compare(hash, n.hash) })
}

func newLocks() editable[string, lock, *lock] {
	return newEditable[string, lock](func(l *lock) string { return l.name },
		func(name string, l *lock) int { return strings.Compare(name, l.name) })
}

func newClaims() table[uint64, *claim] {
	return newTable(func(c *claim) uint64 { return c.id },
		func(id uint64, c *claim) int { return cmp.Compare(id, c.id) })
}

func newOwners() table[ownerKey, *ownerRow] {
	return newTable((*ownerRow).key, ownerKey.compare)
}

func newQueue() table[place, place] {
	return newTable(func(p place) place { return p }, place.compare)
}

func newHolders() table[holderKey, holder] {
	return newTable(func(h holder) holderKey { return h.holderKey },
		func(key holderKey, h holder) int { return key.compare(h.holderKey) })
}

func newMembers() table[string, *wire.Member] {
	return newTable((*wire.Member).GetId,
		func(id string, member *wire.Member) int { return strings.Compare(id, member.Id) })
}

func newAudit() table[uint64, *wire.AuditRecord] {
	return newTable((*wire.AuditRecord).GetId,
		func(id uint64, record *wire.AuditRecord) int { return cmp.Compare(id, record.Id) })
}

func newRemoved() table[uint64, *wire.RemovedMember] {
	return newTable((*wire.RemovedMember).GetRevision,
		func(revision uint64, removed *wire.RemovedMember) int { return cmp.Compare(revision, removed.Revision) })
}

func newKeySenders() table[string, keySender] {
	return newTable(func(s keySender) string { return s.node },
		func(node string, s keySender) int { return strings.Compare(node, s.node) })
}

func newKeyResults() table[keyRequest, *keyResult] {
	return newTable(func(r *keyResult) keyRequest { return r.keyRequest }, keyRequest.compare)
}
