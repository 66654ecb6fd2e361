package fsm

import (
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func putLock(id uint64, name string) func(*Machine) {
	return func(m *Machine) {
		m.locks.put(&lock{lockKey: lockKey{id, name}, contention: noContention, exclusive: true, sole: 7})
	}
}

var brokenLocks = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"two of one id", putLock(1, "z"), `have id 1`},
	{"a bad name", func(m *Machine) { m.state.lastLock = 3; putLock(3, "z\n")(m) }, "z\\n"},
	{"no id", func(m *Machine) { putLock(0, "z")(m) }, `"z" has id 0`},
	{"an id to come", putLock(3, "z"), `"z" has id 3`},
	{"nobody wants it", func(m *Machine) {
		m.state.lastLock = 3
		m.locks.put(&lock{lockKey: lockKey{3, "z"}, contention: noContention})
	}, "nobody wants it"},
	{"free, with waiters", editLock("a", func(l *lock) { l.exclusive = false }), "a lost wake-up"},
	{"free while grants are suspended", func(m *Machine) {
		m.state.suspended = 1
		damage(&m.locks, "a", func(l *lock) { l.exclusive = false })
	}, "counts exclusive false"},
	{"as many waiters as allowed", func(m *Machine) { m.state.settings.MaxWaitersPerLock = 2 }, ""},
	{"a waiter too many", func(m *Machine) { m.state.settings.MaxWaitersPerLock = 1 }, "2 waiters, at most 1"},
	{"waiters", editLock("a", func(l *lock) { l.vary().waiters++ }), "counts 3 waiters, the queue differs"},
}

var brokenFamilyLocks = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"the largest limit", func(m *Machine) {
		damage(&m.locks, "s", func(l *lock) { l.vary().limit, l.used = maxLimit, maxLimit })
		damage(&m.claims, 11, func(c *claim) { c.one[0].permits = maxLimit })
	}, ""},
	{"more used than can be counted", func(m *Machine) {
		damage(&m.locks, "s", func(l *lock) { l.vary().limit, l.used = maxLimit, maxLimit })
		damage(&m.claims, 11, func(c *claim) { c.one[0].permits = maxLimit + 1 })
	}, "more is used than can be counted"},
	{"a limit too large", editLock("s", func(l *lock) { l.vary().limit = maxLimit + 1 }), "a semaphore of limit"},
	{"an unfair semaphore", editLock("s", func(l *lock) { l.unfair = true }), "in the order UNFAIR"},
}

// brokenHolders concern the locks a and b (claim 8), r (9 and 10, which waits to upgrade), s (11) and d (13).
var brokenHolders = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"an occupant that is gone", editLock("a", func(l *lock) { l.sole = 99 }), "but is its occupant"},
	{"an occupant that waits", editLock("s", func(l *lock) { l.sole = 12 }), "but is its occupant"},
	{"an occupant that holds another lock", editLock("a", func(l *lock) { l.sole = 15 }), "but is its occupant"},
	{"exclusive beside shared", editClaim(9, func(c *claim) { c.one[0].mode = wire.Mode_EXCLUSIVE }), "holds it against others"},
	{"told nobody of waiters", func(m *Machine) {
		editClaim(9, func(c *claim) { c.vary().wanted = false })(m)
		editLock("r", func(l *lock) { l.listening, l.vary().upgrader = true, 0 })(m)
	}, "was not told that others wait"},
	{"told nobody of who upgrades", func(m *Machine) {
		editClaim(9, func(c *claim) { c.vary().wanted = false })(m)
		editLock("r", func(l *lock) { l.listening, l.vary().waiters = true, 0 })(m)
	}, "was not told that others wait"},
	{"told nobody, and waits alone", func(m *Machine) {
		editClaim(10, func(c *claim) { c.vary().notify = true })(m)
		editLock("r", func(l *lock) { l.listening, l.vary().waiters = true, 0 })(m)
	}, ""},
	{"listens in secret", func(m *Machine) {
		editClaim(9, func(c *claim) { c.vary().wanted = false })(m)
		editLock("r", func(l *lock) { l.listening, l.vary().waiters, l.upgrader = false, 0, 0 })(m)
	}, "is not known to listen"},
	{"exclusive", editLock("r", func(l *lock) { l.exclusive = true }), "counts exclusive true, used 2, delays 0: there are false, 2, 0"},
	{"used", editLock("s", func(l *lock) { l.vary().used++ }), "used 3, delays 0: there are false, 2, 0"},
	{"lock-delays", editLock("d", func(l *lock) { l.vary().delays = 0 }), "delays 0: there are true, 0, 1"},
	{"upgrades and is gone", editLock("r", func(l *lock) { l.vary().upgrader = 99 }), "claim 99 does not wait to upgrade"},
	{"upgrades without a word", editLock("r", func(l *lock) { l.vary().upgrader = 9 }), "claim 9 does not wait to upgrade"},
	{"upgrades on another lock", editLock("s", func(l *lock) { l.vary().upgrader = 10 }), "claim 10 does not wait to upgrade"},
}

// auditOf sets the count of audit records to last, and adds the given records.
func auditOf(last uint64, records ...*wire.AuditRecord) func(*Machine) {
	return func(m *Machine) {
		m.state.lastAudit = last
		for _, r := range records {
			if r.Action == wire.AuditRecord_UNSPECIFIED {
				r.Action, r.Reason = wire.AuditRecord_REVOKE, r.Reason+"r"
			}
			if r.Imported != nil && r.Operator != "twice" {
				m.imported.put(r)
			} else {
				m.audit.put(r)
			}
		}
	}
}

// audits returns records with these ids; imported ones if restore is not 0.
func audits(from, to, restore uint64) (records []*wire.AuditRecord) {
	for id := from; id <= to; id++ {
		r := &wire.AuditRecord{Id: id}
		if restore != 0 {
			r.Imported = &wire.AuditImport{RestoreId: restore}
		}
		records = append(records, r)
	}
	return records
}

var brokenAudits = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"all that can be kept", func(m *Machine) {
		auditOf(900, audits(1, maxImported, 900)...)(m)
		auditOf(900, audits(900-maxAudit+1, 900, 0)...)(m)
	}, ""},
	{"one too many", auditOf(900, audits(1, maxAudit+1, 0)...), "257 audit records and 0 imported ones, at most 256 and 256"},
	{"an imported one too many", auditOf(900, audits(1, maxImported+1, 900)...), "0 audit records and 257 imported ones, at most 256 and 256"},
	{"its own had to go", auditOf(900, audits(1, maxAudit, 0)...), ""},
	{"imported ones had to go", auditOf(900, audits(1, maxImported, 900)...), ""},
	{"a record is missing", auditOf(2, audits(1, 1, 0)...), "1 audit records of 2, and none had to go"},
	{"an imported record is missing", auditOf(3, append(audits(1, 1, 3), audits(3, 3, 0)...)...), "2 audit records of 3, and none had to go"},
	{"no id", auditOf(1, audits(0, 0, 0)...), "audit record 0 of 1"},
	{"an id to come", auditOf(1, audits(2, 2, 0)...), "audit record 2 of 1"},
	{"an imported one among its own", auditOf(1, &wire.AuditRecord{Id: 1, Operator: "twice", Imported: &wire.AuditImport{}}), "audit record 1 of 1"},
	{"bad texts", auditOf(1, &wire.AuditRecord{Id: 1, Reason: strings.Repeat("x", 2_000)}), "audit record 1 of 1"},
	{"imported twice", auditOf(3, &wire.AuditRecord{Id: 1}, &wire.AuditRecord{Id: 1, Imported: &wire.AuditImport{RestoreId: 2}}, &wire.AuditRecord{Id: 2}), "imported audit record 1 of restore 2 of 3"},
	{"imported without an id", auditOf(2, &wire.AuditRecord{Imported: &wire.AuditImport{RestoreId: 2}}, &wire.AuditRecord{Id: 2}), "imported audit record 0 of restore 2 of 2"},
	{"imported by itself", auditOf(1, audits(1, 1, 1)...), "imported audit record 1 of restore 1 of 1"},
	{"imported by who is to come", auditOf(1, audits(1, 1, 2)...), "imported audit record 1 of restore 2 of 1"},
	{"imported bad texts", auditOf(2, &wire.AuditRecord{Id: 1, Reason: strings.Repeat("x", 2_000), Imported: &wire.AuditImport{RestoreId: 2}}, &wire.AuditRecord{Id: 2}), "imported audit record 1 of restore 2 of 2"},
}

func putOwnerRow(id, session, owner, lockID uint64) func(*Machine) {
	return func(m *Machine) {
		m.owners.put(&ownerRow{id: id, session: session, owner: owner, one: [1]want{{lock: &lock{lockKey: lockKey{id: lockID}}}}})
	}
}

var brokenOwners = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"a claim that is gone", putOwnerRow(99, 4, 1, 4), "has claim 99"},
	{"a lock-delay", putOwnerRow(13, 5, 0, 5), "has claim 13"},
	{"another session's", putOwnerRow(11, 5, 0, 4), "session 5, owner 0 has claim 11"},
	{"another owner's", putOwnerRow(11, 4, 1, 4), "session 4, owner 1 has claim 11"},
	{"of another lock", putOwnerRow(11, 4, 0, 5), "has claim 11 on lock 5"},
}

func putPlace(lockID, claimID uint64) func(*Machine) {
	return func(m *Machine) { m.queue.put(place{lockID, claimID}) }
}

var brokenQueues = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"who is gone", putPlace(1, 99), "claim 99 does not wait for lock 1"},
	{"who holds", putPlace(1, 6), "claim 6 does not wait for lock 1"},
	{"who waits for another", putPlace(2, 8), "claim 8 does not wait for lock 2"},
}

func putUpgrade(lockID, claimID uint64) func(*Machine) {
	return func(m *Machine) { m.upgrades.put(place{lockID, claimID}) }
}

var brokenUpgradeRows = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"who is gone", putUpgrade(3, 99), "claim 99 does not wait to upgrade on lock 3"},
	{"who only holds", putUpgrade(3, 9), "claim 9 does not wait to upgrade on lock 3"},
	{"who upgrades another", putUpgrade(4, 10), "claim 10 does not wait to upgrade on lock 4"},
}

func putHolder(lockID, token, claimID uint64) func(*Machine) {
	return func(m *Machine) { m.holders.put(holder{holderKey{lockID, token}, claimID}) }
}

var brokenHolderRows = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"who is gone", putHolder(1, 101, 99), "is of claim 99"},
	{"under another token", putHolder(1, 102, 6), "token 102 on lock 1 is of claim 6"},
	{"on another lock", putHolder(2, 101, 6), "token 101 on lock 2 is of claim 6"},
	{"beside the only holder", putHolder(1, 101, 6), "claim 6 has a row beside the only holder"},
	{"on a lock that is gone", func(m *Machine) {
		damage(&m.claims, 6, func(c *claim) { c.one[0].lock = &lock{lockKey: lockKey{77, "a"}} })
		m.holders.put(holder{holderKey{77, 101}, 6})
	}, "claim 6 has a row beside the only holder"},
}

var brokenOutcomes = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"twice", editOutcome(1, func(o *outcome) { o.seq = 2 }), "it stands behind request 2"},
	{"of no request", editOutcome(2, func(o *outcome) { o.seq = 0 }), "it stands behind request 0"},
	{"before the beginning", editOutcome(1, func(o *outcome) { o.revision = 0 }), "revision 0 of 9"},
	{"of now", editOutcome(1, func(o *outcome) { o.revision = 9 }), ""},
	{"to come", editOutcome(1, func(o *outcome) { o.revision = 10 }), "revision 10 of 9"},
	{"waits as if it did not", editOutcome(2, func(o *outcome) { o.waited = false }), "it waits or was acknowledged"},
	{"acknowledged", editSession(1, func(s *session) { s.ackedBelow = 2 }), "it waits or was acknowledged"},
	{"at the acknowledgement", editSession(1, func(s *session) { s.ackedBelow = 1 }), ""},
	{"without a status", editOutcome(1, func(o *outcome) { o.status = wire.Status_UNSPECIFIED }), "no status"},
	{"without a hold", editOutcome(1, func(o *outcome) { o.holdID = 0 }), "granted without a hold or a token"},
	{"without a token", editOutcome(1, func(o *outcome) { o.token = 0 }), "granted without a hold or a token"},
	{"with the last token", editOutcome(1, func(o *outcome) { o.token = 102 }), ""},
	{"with a token to come", editOutcome(1, func(o *outcome) { o.token = 103 }), "token 103 of 102"},
	{"refused, with what was asked", editOutcome(1, func(o *outcome) { o.status, o.token = wire.Status_NOT_HELD, 999 }), ""},
	{"of a claim that is gone", editOutcome(2, func(o *outcome) { o.holdID = 99 }), "it waits, but claim 99 does not"},
	{"of another session's claim", editOutcome(2, func(o *outcome) { o.holdID = 9 }), "it waits, but claim 9 does not"},
	{"of another request", func(m *Machine) { damage(&m.claims, 8, func(c *claim) { c.seq = 5 }) }, "it waits, but claim 8 does not"},
}
