package fsm

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// twoLocks returns a machine in which ann holds "a" and "b", and bob and cid wait for "a" in this order.
// Sessions are 1, 2, 3; claims 6 (a), 7 (b), 8 and 9; locks 1 and 2.
func twoLocks(t tester) *Machine {
	t.Helper()
	m := bootstrapped(t)
	ann, bob, cid := openSession(t, m, "ann"), openSession(t, m, "bob"), openSession(t, m, "cid")
	acquireNow(t, m, ann, 1, "a")
	acquireNow(t, m, ann, 2, "b")
	acquireNow(t, m, bob, 1, "a")
	acquireNow(t, m, cid, 1, "a")
	return m
}

// family returns a machine with one of everything: ann holds "a" and "b" (8); two readers hold "r" (9, 10),
// where bob (10) waits to upgrade and cid (12) for "r" and "s"; dan has two of three permits of "s" (11); a
// lock-delay (13) keeps "d" closed; a lease (15) holds "e". Locks are 1 a, 2 b, 3 r, 4 s, 5 d, 6 e.
func family(t tester) *Machine {
	t.Helper()
	m := bootstrapped(t)
	ids := map[string]uint64{}
	for _, name := range []string{"ann", "bob", "cid", "dan", "eve"} {
		ids[name] = openSession(t, m, name)
	}
	do := func(who string, op *wire.Acquire) *wire.Result {
		t.Helper()
		op.WaitForever = true
		seq := m.Revision()
		return applyOne(t, m, &wire.Command{SessionId: ids[who], Seq: seq, Op: &wire.Command_Acquire{Acquire: op}}).Results[0]
	}
	r := &wire.LockRequest{Name: "r", Mode: wire.Mode_SHARED}
	do("ann", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}, {Name: "b"}}, MaxHoldMs: 500, Reentrant: false})
	do("ann", &wire.Acquire{Locks: []*wire.LockRequest{r}, Notify: true})
	bob := do("bob", &wire.Acquire{Locks: []*wire.LockRequest{r}})
	do("dan", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "s", Permits: 2, Limit: 3}}})
	do("cid", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "r"}, {Name: "s", Permits: 1, Limit: 3}}})
	dead := do("eve", &wire.Acquire{Locks: []*wire.LockRequest{{Name: "d"}}, LockDelayMs: 1_000})
	for _, cmd := range []*wire.Command{
		{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: dead.HoldId, Token: dead.Token, Reason: "stuck"}}},
		{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{SecretHash: secretHash("lease"), Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "e"}}}}}},
		{SessionId: ids["bob"], Seq: 99, Op: &wire.Command_Upgrade{Upgrade: &wire.Upgrade{HoldId: bob.HoldId, Token: bob.Token, WaitForever: true}}},
	} {
		applyOne(t, m, cmd)
	}
	return m
}

// damage edits a row of a table in place.
func damage[K, V any](table interface{ get(K) (*V, bool) }, key K, edit func(*V)) {
	v, _ := table.get(key)
	edit(v)
}

func TestCheckFindsARemovedMember(t *testing.T) {
	m := busy(t, 1)
	m.removed.put(&wire.RemovedMember{Id: "n2", Incarnation: "i", Revision: 1})
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	m.members.put(&wire.Member{Id: "n2", Incarnation: "i"})
	if err := m.Check(); err == nil {
		t.Error("a member has an incarnation that was removed")
	}
}

// heldLock returns a lock with an exclusive holder.
func heldLock(id uint64, name string) *lock {
	return &lock{lockKey: lockKey{id, name}, contention: noContention, exclusive: true}
}

// TestCheckFindsWhatIsBroken breaks one thing at a time.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	for name, breakIt := range map[string]func(*Machine){
		"token of more than 63 bits":  func(m *Machine) { m.state.token = 1 << 63 },
		"alarms acknowledged to come": func(m *Machine) { m.state.acknowledged = m.state.revision + 1 },
		"revision behind":             func(m *Machine) { m.state.revision = 3 },
		"level above the program":     func(m *Machine) { m.state.level = 9 },
		"settings gone":               func(m *Machine) { m.state.settings = nil },
		"a limit of 0":                func(m *Machine) { m.state.settings.MaxWindow = 0 },
		"too many sessions":           func(m *Machine) { m.state.settings.MaxSessions = 2 },
		"too many locks":              func(m *Machine) { m.state.settings.MaxLocks = 1 },
		"too many waiters":            func(m *Machine) { m.state.settings.MaxWaitersPerLock = 1 },
		"too many claims":             func(m *Machine) { m.state.settings.MaxClaimsPerSession = 1 },
		"no cluster":                  func(m *Machine) { m.state.clusterID = "" },
		"holds miscounted":            func(m *Machine) { m.state.holds++ },
		"members out of order": func(m *Machine) {
			m.members.put(&wire.Member{Id: "n2"})
			damage(&m.members, "n2", func(n *wire.Member) { n.Id = "m" })
		},
		"removed in the future":        func(m *Machine) { m.removed.put(&wire.RemovedMember{Id: "n2", Incarnation: "i", Revision: 999}) },
		"member of a lower level":      func(m *Machine) { m.level, m.state.level = 2, 2 },
		"session id from the future":   func(m *Machine) { m.state.lastSession = 2 },
		"session without a nonce":      func(m *Machine) { m.nonces.delete(string(secretHash("ann"))) },
		"nonce to another session":     func(m *Machine) { m.nonces.put(nonce{string(secretHash("ann")), 2}) },
		"short hash":                   func(m *Machine) { damage(&m.sessions, 1, func(s *session) { s.secretHash = "x" }) },
		"TTL out of range":             func(m *Machine) { damage(&m.sessions, 1, func(s *session) { s.ttl = 1 }) },
		"generation 0":                 func(m *Machine) { damage(&m.sessions, 1, func(s *session) { s.generation = 0 }) },
		"session's holds miscounted":   func(m *Machine) { damage(&m.sessions, 1, func(s *session) { s.holds++ }) },
		"session's waits miscounted":   func(m *Machine) { damage(&m.sessions, 2, func(s *session) { s.waits-- }) },
		"window miscounted":            func(m *Machine) { damage(&m.sessions, 1, func(s *session) { s.window.final++ }) },
		"acknowledged, but remembered": func(m *Machine) { damage(&m.sessions, 1, func(s *session) { s.ackedBelow = 2 }) },
		"holder of a dead session":     func(m *Machine) { m.sessions.delete(1); m.nonces.delete(string(secretHash("ann"))) },
		"lock-delays miscounted":       func(m *Machine) { damage(&m.locks, "a", func(l *lock) { l.vary().delays = 1 }) },
		"lost wake-up":                 func(m *Machine) { damage(&m.locks, "a", func(l *lock) { l.exclusive = false }) },
		"waiters miscounted":           func(m *Machine) { damage(&m.locks, "a", func(l *lock) { l.vary().waiters-- }) },
		"a lock that nobody wants":     func(m *Machine) { m.locks.put(&lock{lockKey: lockKey{1, "z"}, contention: noContention}) },
		"locks of one id":              func(m *Machine) { m.locks.put(heldLock(1, "z")) },
		"bad lock name":                func(m *Machine) { m.locks.put(heldLock(2, "z/")) },
		"holder that waits":            func(m *Machine) { damage(&m.locks, "a", func(l *lock) { l.sole = 8 }) },
		"holder that is gone":          func(m *Machine) { damage(&m.locks, "a", func(l *lock) { l.sole = 99 }) },
		"a row beside the only holder": func(m *Machine) { m.holders.put(holder{holderKey{1, 101}, 6}) },
		"one token twice":              func(m *Machine) { damage(&m.claims, 7, func(c *claim) { c.token = 101 }) },
		"token never minted":           func(m *Machine) { damage(&m.claims, 7, func(c *claim) { c.token = 999 }) },
		"token at the enqueueing":      func(m *Machine) { damage(&m.claims, 8, func(c *claim) { c.token = 102 }) },
		"LIFO":                         func(m *Machine) { swapPlaces(m) },
		"a try that waits":             func(m *Machine) { damage(&m.claims, 8, func(c *claim) { c.waitForever = false }) },
		"wants nothing":                func(m *Machine) { damage(&m.claims, 8, func(c *claim) { c.one[0] = want{lock: &lock{}} }) },
		"wants another life of a lock": func(m *Machine) {
			damage(&m.claims, 8, func(c *claim) { c.one[0].lock = &lock{lockKey: lockKey{7, "a"}} })
		},
		"value too long":          func(m *Machine) { damage(&m.claims, 6, func(c *claim) { c.vary().value = make([]byte, 2000) }) },
		"granted before asked":    func(m *Machine) { damage(&m.claims, 6, func(c *claim) { c.more = &more{grantedRevision: 1} }) },
		"a hold that nobody owns": func(m *Machine) { m.owners.delete(ownerKey{1, 0, 1}) },
		"an owner of nothing": func(m *Machine) {
			m.owners.put(&ownerRow{id: 6, session: 1, owner: 9, one: [1]want{{lock: &lock{lockKey: lockKey{id: 1}}}}})
		},
		"a waiter out of the queue":     func(m *Machine) { m.queue.delete(place{1, 8}) },
		"a place for nobody":            func(m *Machine) { m.queue.put(place{7, 77}) },
		"a holder in the queue":         func(m *Machine) { m.queue.put(place{1, 6}) },
		"a wait without a request":      func(m *Machine) { damage(&m.sessions, 2, func(s *session) { s.window.remove(1) }) },
		"a request that waits for ever": func(m *Machine) { m.claims.delete(9) },
		"outcomes out of order": func(m *Machine) {
			damage(&m.sessions, 1, func(s *session) { s.window.outcomes[0].seq = 9 })
		},
		"granted without a token": func(m *Machine) { damage(&m.sessions, 1, func(s *session) { s.window.outcomes[0].token = 0 }) },
		"outcome of the future":   func(m *Machine) { damage(&m.sessions, 1, func(s *session) { s.window.outcomes[0].revision = 99 }) },
	} {
		t.Run(name, func(t *testing.T) { mustFind(t, twoLocks(t), breakIt) })
	}
}

// TestCheckFindsWhatIsBrokenInTheFamily does the same in a state with one of everything.
func TestCheckFindsWhatIsBrokenInTheFamily(t *testing.T) {
	for name, breakIt := range map[string]func(*Machine){
		"exclusive beside shared":       func(m *Machine) { damage(&m.claims, 9, func(c *claim) { c.one[0].mode = 1 }) },
		"used miscounted":               func(m *Machine) { damage(&m.locks, "r", func(l *lock) { l.vary().used++ }) },
		"permits miscounted":            func(m *Machine) { damage(&m.locks, "s", func(l *lock) { l.vary().used = 1 }) },
		"no permits":                    func(m *Machine) { damage(&m.claims, 11, func(c *claim) { c.one[0].permits = 0 }) },
		"a mode in a semaphore":         func(m *Machine) { damage(&m.claims, 11, func(c *claim) { c.one[0].mode = 2 }) },
		"limit too large":               func(m *Machine) { damage(&m.locks, "s", func(l *lock) { l.vary().limit = 1<<31 + 1 }) },
		"waits for more than the limit": func(m *Machine) { damage(&m.claims, 12, func(c *claim) { c.extra().wants[1].permits = 4 }) },
		"an unfair semaphore":           func(m *Machine) { damage(&m.locks, "s", func(l *lock) { l.unfair = true }) },
		"one lock twice":                func(m *Machine) { damage(&m.claims, 8, func(c *claim) { c.extra().wants[1] = c.extra().wants[0] }) },
		"a place in one queue only": func(m *Machine) {
			m.queue.delete(place{4, 12})
			damage(&m.locks, "s", func(l *lock) { l.vary().waiters-- })
		},
		"a holder of one lock only":     func(m *Machine) { damage(&m.locks, "b", func(l *lock) { l.sole = 0 }) },
		"a reader without a row":        func(m *Machine) { m.holders.delete(holderKey{3, 102}) },
		"held under another token":      func(m *Machine) { m.holders.put(holder{holderKey{3, 199}, 9}) },
		"upgrader forgotten":            func(m *Machine) { damage(&m.locks, "r", func(l *lock) { l.vary().upgrader = 0 }) },
		"upgrade without a row":         func(m *Machine) { m.upgrades.delete(place{3, 10}) },
		"upgrade of nobody":             func(m *Machine) { m.upgrades.put(place{3, 99}) },
		"upgrader that does not wait":   func(m *Machine) { damage(&m.locks, "r", func(l *lock) { l.vary().upgrader = 9 }) },
		"upgrade without a request":     func(m *Machine) { damage(&m.claims, 10, func(c *claim) { c.vary().upgrade.seq = 7 }) },
		"upgrade that tries":            func(m *Machine) { damage(&m.claims, 10, func(c *claim) { c.vary().upgrade.waitForever = false }) },
		"an upgrade of a wait":          func(m *Machine) { damage(&m.claims, 12, func(c *claim) { c.vary().upgrade = &upgrade{} }) },
		"upgrade not counted":           func(m *Machine) { damage(&m.sessions, 2, func(s *session) { s.waits = 0 }) },
		"all waits miscounted":          func(m *Machine) { m.state.waits-- },
		"a lost wake-up of an upgrade":  func(m *Machine) { loseWakeUp(m) },
		"not told that others wait":     func(m *Machine) { damage(&m.claims, 9, func(c *claim) { c.vary().wanted = false }) },
		"told without asking":           func(m *Machine) { damage(&m.claims, 8, func(c *claim) { c.vary().wanted = true }) },
		"a deadline without generation": func(m *Machine) { damage(&m.claims, 8, func(c *claim) { c.vary().holdGeneration = 0 }) },
		"a generation without deadline": func(m *Machine) { damage(&m.claims, 11, func(c *claim) { c.vary().holdGeneration = 1 }) },
		"max_hold out of range":         func(m *Machine) { damage(&m.claims, 8, func(c *claim) { c.vary().maxHoldMs = 99 }) },
		"lock-delay out of range":       func(m *Machine) { damage(&m.claims, 8, func(c *claim) { c.vary().lockDelayMs = 60_001 }) },
		"a lock-delay that is a hold":   func(m *Machine) { damage(&m.claims, 13, func(c *claim) { c.vary().delayGeneration = 0 }) },
		"a hold that is a lock-delay":   func(m *Machine) { damage(&m.claims, 11, func(c *claim) { c.vary().delayGeneration = 1 }) },
		"a lock-delay that somebody owns": func(m *Machine) {
			m.owners.put(&ownerRow{id: 13, session: 5, one: [1]want{{lock: &lock{lockKey: lockKey{id: 5}}}}})
		},
		"a lock-delay that opens too soon": func(m *Machine) { damage(&m.locks, "d", func(l *lock) { l.exclusive = false }) },
		"a lease without its hold":         func(m *Machine) { damage(&m.sessions, 5, func(s *session) { s.leased = true }) },
		"semaphore counted twice":          func(m *Machine) { damage(&m.claims, 11, func(c *claim) { c.vary().again = 1 }) },
		"revoked while it waits":           func(m *Machine) { damage(&m.claims, 12, func(c *claim) { c.vary().revocation = &wire.Revocation{} }) },
		"an audit record too many":         func(m *Machine) { m.audit.put(&wire.AuditRecord{Id: 7}) },
		"an audit record under another id": func(m *Machine) { damage(&m.audit, 1, func(r *wire.AuditRecord) { r.Id = 2 }) },
		"lineage too long":                 func(m *Machine) { m.state.lineage = strings.Repeat("x", 65) },
	} {
		t.Run(name, func(t *testing.T) { mustFind(t, family(t), breakIt) })
	}
}

func mustFind(t *testing.T, m *Machine, breakIt func(*Machine)) {
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	breakIt(m)
	if err := m.Check(); err == nil || !strings.HasPrefix(err.Error(), "broken invariant: ") {
		t.Errorf("not found: %v", err)
	}
}

// loseWakeUp removes the other reader without settling the lock that the upgrade waits for.
func loseWakeUp(m *Machine) {
	c, _ := m.claims.get(9)
	s, _ := m.sessions.get(1)
	m.part(s, c)
	m.remove(c)
}

// swapPlaces swaps the first and the second waiter.
func swapPlaces(m *Machine) {
	rows := &m.queue.root.rows
	rows[0], rows[1] = rows[1], rows[0]
}
