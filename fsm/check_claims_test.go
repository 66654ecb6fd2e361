package fsm

import (
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// brokenClaims concern claims 6 and 7, holds of session 1, and claims 8 and 9, which wait for lock a.
var brokenClaims = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"holds", func(m *Machine) { m.state.holds++ }, "counts 3 holds and 2 waits, there are 2 and 2"},
	{"waits", func(m *Machine) { m.state.waits++ }, "counts 2 holds and 3 waits, there are 2 and 2"},
	{"no id", editClaim(6, func(c *claim) { c.id = 0 }), "id 0 at revision 9"},
	{"an id of now", func(m *Machine) { m.state.revision = 9 }, ""},
	{"an id to come", func(m *Machine) { m.state.revision = 8 }, "id 9 at revision 8"},
	{"a dead session's", func(m *Machine) { m.sessions.delete(1) }, "claim 6: session 1 does not live"},
	{"no request's", editClaim(8, func(c *claim) { c.seq = 0 }), "seq 0, generation 1"},
	{"no generation", editClaim(8, func(c *claim) { c.vary().upgrades = anyNumber }), "seq 1, generation 0"},
	{"a lock that is gone", editClaim(8, func(c *claim) { c.one[0].lock = &lock{lockKey: lockKey{77, "a"}} }), `wants lock "a", id 77`},
	{"another name of the lock", editClaim(8, func(c *claim) { c.one[0].lock = &lock{lockKey: lockKey{1, "zz"}} }), `wants lock "zz", id 1`},
	{"too many locks", editClaim(8, func(c *claim) { c.vary().wants = make([]want, maxLocks+1) }), "wants 65 locks"},
	{"no mode", editClaim(8, func(c *claim) { c.one[0].mode = wire.Mode_MODE_UNSPECIFIED }), "limit 0, order FIFO, in mode MODE_UNSPECIFIED"},
	{"permits of a lock", editClaim(8, func(c *claim) { c.one[0].permits = 1 }), "in mode EXCLUSIVE, permits 1"},
	{"permits without a limit", editClaim(8, func(c *claim) { c.one[0].mode, c.one[0].permits = wire.Mode_PERMITS, 1 }), "in mode PERMITS, permits 1"},
	{"a mode of a semaphore", editLock("b", func(l *lock) { l.vary().limit = 1 }), "limit 1, order FIFO, in mode EXCLUSIVE"},
	{"shared and unfair", func(m *Machine) {
		damage(&m.locks, "a", func(l *lock) { l.unfair = true })
		damage(&m.claims, 8, func(c *claim) { c.one[0].mode = wire.Mode_SHARED })
	}, "order UNFAIR, in mode SHARED"},
	{"held before the lock was unfair", func(m *Machine) {
		damage(&m.locks, "b", func(l *lock) { l.unfair = true })
		damage(&m.claims, 7, func(c *claim) { c.one[0].mode = wire.Mode_SHARED })
	}, ""},
	{"no owner", func(m *Machine) { m.owners.delete(ownerKey{1, 0, 1}) }, "it has no owner any more"},
	{"an owner of another claim", putOwnerRow(7, 1, 0, 1), "its owner has another claim"},
	{"a place in the queue of who holds", putPlace(1, 6), "holds \"a\": true, queued: true"},
	{"no place in the queue", func(m *Machine) { m.queue.delete(place{1, 8}) }, "holds \"a\": false, queued: false"},
	{"a token and no place", editLock("b", func(l *lock) { l.sole = 0 }), "token 102, holds \"b\": false, queued: false"},
	{"an occupant without a token", editLock("a", func(l *lock) { l.sole = 8 }), "holds \"a\": false, queued: false"},
	{"one token of two", func(m *Machine) {
		damage(&m.claims, 7, func(c *claim) { c.token = 101 })
	}, "two claims have token 101"},
	{"the longest value", editClaim(6, func(c *claim) { c.vary().value = make([]byte, 1_024) }), ""},
	{"a long value", editClaim(6, func(c *claim) { c.vary().value = make([]byte, 1_025) }), "a value of 1025 bytes"},
	{"a short bound", editClaim(6, func(c *claim) { c.vary().maxHoldMs = 99 }), "max_hold 99 ms"},
	{"the longest delay", editClaim(6, func(c *claim) { c.vary().lockDelayMs = maxLockDelayMs }), ""},
	{"a long delay", editClaim(6, func(c *claim) { c.vary().lockDelayMs = maxLockDelayMs + 1 }), "lock-delay 60001 ms"},
	{"a bound without its deadline", editClaim(6, func(c *claim) { c.vary().maxHoldMs = 100 }), "generations 0 and 0"},
	{"a deadline without its bound", editClaim(6, func(c *claim) { c.vary().holdGeneration = 1 }), "generations 1 and 0"},
	{"a deadline of a wait", editClaim(8, func(c *claim) { c.vary().maxHoldMs, c.extra().holdGeneration = 100, 1 }), "generations 1 and 0"},
	{"a grace without its deadline", editClaim(6, func(c *claim) { c.vary().revocation = &wire.Revocation{Reason: "r", GraceMs: 1} }), "generations 0 and 0"},
	{"a deadline without its grace", editClaim(6, func(c *claim) { c.vary().graceGeneration = 1 }), "generations 0 and 1"},
	{"a revocation", editClaim(6, func(c *claim) { c.vary().revocation = &wire.Revocation{Reason: "r"} }), ""},
	{"a revocation of a wait", editClaim(8, func(c *claim) { c.vary().revocation = &wire.Revocation{Reason: "r"} }), "revoked before it was granted"},
	{"a revocation without a reason", editClaim(6, func(c *claim) { c.vary().revocation = &wire.Revocation{} }), "revoked before it was granted"},
	{"an upgrade of a wait", editClaim(8, func(c *claim) { c.vary().upgrade = &upgrade{} }), "only a hold is upgraded"},
	{"a delay of a wait", editClaim(8, func(c *claim) { c.vary().delayGeneration, c.extra().lockDelayMs = 1, 1 }), "a lock-delay without a hold"},
	{"a delay since when", editClaim(6, func(c *claim) { c.vary().delayed = 1 }), "a lock-delay that never began"},
	{"acquired again", editClaim(6, func(c *claim) { c.vary().again = 1 }), ""},
	{"a wait that counts", editClaim(8, func(c *claim) { c.vary().again = 1 }), "counts 2 acquires"},
	{"told", editClaim(6, func(c *claim) { c.vary().notify, c.extra().wanted = true, true }), ""},
	{"told without asking", editClaim(6, func(c *claim) { c.vary().wanted = true }), "told without asking"},
	{"told while it waits", editClaim(8, func(c *claim) { c.vary().notify, c.extra().wanted = true, true }), "told without asking"},
	{"granted now", editClaim(6, func(c *claim) { c.more = &more{grantedRevision: 9} }), ""},
	{"granted to come", editClaim(6, func(c *claim) { c.more = &more{grantedRevision: 10} }), "granted at 10 of 9"},
	{"granted before it asked", editClaim(6, func(c *claim) { c.more = &more{grantedRevision: 5} }), "granted at 5 of 9"},
	{"a token to come", func(m *Machine) { m.state.token = 101 }, "token 102 of 101"},
	{"a try that waits", editClaim(8, func(c *claim) { c.waitForever = false }), "a try waits"},
	{"a wait that ends", editClaim(8, func(c *claim) { c.waitForever, c.waitMs = false, 1 }), ""},
	{"granted without a token", editClaim(8, func(c *claim) { c.more = &more{grantedRevision: 8} }), "granted without a token"},
	{"a request that was forgotten", editSession(2, func(s *session) { s.window.outcomes = nil }), "its request 1 does not wait"},
	{"a request that was answered", editOutcome(2, func(o *outcome) { o.status = wire.Status_CANCELLED }), "its request 1 does not wait"},
	{"another claim's request", editOutcome(2, func(o *outcome) { o.holdID = 9 }), "its request 1 does not wait"},
	{"another request", editOutcome(2, func(o *outcome) { o.digest++ }), "of another one"},
}

// brokenFamilyClaims concern claims for several locks (8, 12), readers (9, 10), semaphores (11), a
// lock-delay (13) and a lease (15).
var brokenFamilyClaims = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"one lock twice", editClaim(8, func(c *claim) { c.extra().wants[1] = c.extra().wants[0] }), `wants "a" twice`},
	{"no permits", editClaim(11, func(c *claim) { c.one[0].permits = 0 }), "in mode PERMITS, permits 0"},
	{"permits of what became a lock", editLock("s", func(l *lock) { l.vary().limit = 0 }), "limit 0, order FIFO, in mode PERMITS, permits 2"},
	{"more held than the limit", editLock("s", func(l *lock) { l.vary().limit = 1 }), ""},
	{"more wanted than the limit", editClaim(12, func(c *claim) { c.extra().wants[1].permits = 4 }), "limit 3, order FIFO, in mode PERMITS, permits 4"},
	{"a lock-delay that is owned", putOwnerRow(13, 5, 0, 5), "its owner has another claim"},
	{"a lock-delay of no time", editClaim(13, func(c *claim) { c.vary().lockDelayMs = 0 }), "a lock-delay without a hold before it, or without a time"},
	{"permits acquired again", editClaim(11, func(c *claim) { c.vary().again = 1 }), "counts 2 acquires"},
	{"a reader acquired again", editClaim(9, func(c *claim) { c.vary().again = 1 }), ""},
	{"an upgrade that tries", editClaim(10, func(c *claim) { c.vary().upgrade = &upgrade{seq: c.extra().upgrade.seq} }), "a try waits to upgrade"},
	{"an upgrade of several locks", editClaim(8, func(c *claim) {
		c.vary().upgrade = &upgrade{waitForever: true}
		c.one[0].mode = wire.Mode_SHARED
	}), "only a shared hold of one lock is upgraded"},
	{"an upgrade of who excludes others", editClaim(15, func(c *claim) { c.vary().upgrade = &upgrade{waitForever: true} }), "only a shared hold of one lock is upgraded"},
	{"another upgrade", editLock("r", func(l *lock) { l.vary().upgrader = 9 }), `claim 9 upgrades on "r"`},
	{"an upgrade without a row", func(m *Machine) { m.upgrades.delete(place{3, 10}) }, `its upgrade of "r" has no row`},
	{"an upgrade that waits alone", editLock("r", func(l *lock) { l.vary().used = 1 }), "a lost wake-up"},
	{"an upgrade that waits alone while grants are suspended", func(m *Machine) {
		m.state.suspended = 1
		damage(&m.locks, "r", func(l *lock) { l.vary().used = 1 })
	}, ""},
	{"an upgrade without its request", editClaim(10, func(c *claim) { c.vary().upgrade.seq = 77 }), "its request 77 does not wait"},
	{"an upgrade of another request", editClaim(10, func(c *claim) { c.vary().upgrade.allowDeadlock = true }), "of another one"},
}

// TestWaitsForItsRequest checks which requests a wait, an upgrade and a hold wait for.
func TestWaitsForItsRequest(t *testing.T) {
	m := family(t)
	upgrade, _ := m.claims.get(10)
	wait, _ := m.claims.get(12)
	hold, _ := m.claims.get(11)
	for seq := range uint64(100) {
		if wait.waitsFor(seq) != (seq == wait.seq) || upgrade.waitsFor(seq) != (seq == 99) || hold.waitsFor(seq) {
			t.Errorf("request %d: the wait %v, the upgrade %v, the hold %v", seq, wait.waitsFor(seq), upgrade.waitsFor(seq), hold.waitsFor(seq))
		}
	}
}
