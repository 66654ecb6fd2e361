package fsm

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// twoLocks has ann hold "a" and "b", and bob and cid wait for "a" in this order.
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

// damage edits one row of a table in place.
func damage[K, V any](table *table[K, *V], key K, edit func(*V)) {
	v, _ := table.get(key)
	edit(v)
}

// TestCheckFindsWhatIsBroken breaks one thing at a time.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	for name, breakIt := range map[string]func(*Machine){
		"token of more than 63 bits":    func(m *Machine) { m.state.token = 1 << 63 },
		"revision behind":               func(m *Machine) { m.state.revision = 3 },
		"level above the program":       func(m *Machine) { m.state.level = 9 },
		"settings gone":                 func(m *Machine) { m.state.settings = nil },
		"a limit of 0":                  func(m *Machine) { m.state.settings.MaxWindow = 0 },
		"too many sessions":             func(m *Machine) { m.state.settings.MaxSessions = 2 },
		"too many locks":                func(m *Machine) { m.state.settings.MaxLocks = 1 },
		"too many waiters":              func(m *Machine) { m.state.settings.MaxWaitersPerLock = 1 },
		"too many claims":               func(m *Machine) { m.state.settings.MaxClaimsPerSession = 1 },
		"no cluster":                    func(m *Machine) { m.state.clusterID = "" },
		"holds miscounted":              func(m *Machine) { m.state.holds++ },
		"member under another id":       func(m *Machine) { m.members.put("n2", &wire.Member{Id: "n1"}) },
		"member of a lower level":       func(m *Machine) { m.level, m.state.level = 2, 2 },
		"session id from the future":    func(m *Machine) { m.state.lastSession = 2 },
		"session without a nonce":       func(m *Machine) { m.nonces.delete(string(secretHash("ann"))) },
		"nonce to another session":      func(m *Machine) { m.nonces.put(string(secretHash("ann")), 2) },
		"short hash":                    func(m *Machine) { damage(&m.sessions, 1, func(s *session) { s.secretHash = "x" }) },
		"TTL out of range":              func(m *Machine) { damage(&m.sessions, 1, func(s *session) { s.ttl = 1 }) },
		"generation 0":                  func(m *Machine) { damage(&m.sessions, 1, func(s *session) { s.generation = 0 }) },
		"session's holds miscounted":    func(m *Machine) { damage(&m.sessions, 1, func(s *session) { s.holds++ }) },
		"session's waits miscounted":    func(m *Machine) { damage(&m.sessions, 2, func(s *session) { s.waits-- }) },
		"window miscounted":             func(m *Machine) { damage(&m.sessions, 1, func(s *session) { s.window++ }) },
		"acknowledged, but remembered":  func(m *Machine) { damage(&m.sessions, 1, func(s *session) { s.ackedBelow = 2 }) },
		"holder of a dead session":      func(m *Machine) { m.sessions.delete(1); m.nonces.delete(string(secretHash("ann"))) },
		"two holders":                   func(m *Machine) { damage(&m.locks, "a", func(l *lock) { l.holds = 2 }) },
		"lost wake-up":                  func(m *Machine) { damage(&m.locks, "a", func(l *lock) { l.exclusive = false }) },
		"waiters miscounted":            func(m *Machine) { damage(&m.locks, "a", func(l *lock) { l.waiters-- }) },
		"a lock that nobody wants":      func(m *Machine) { m.locks.put("z", &lock{id: 1, name: "z"}) },
		"locks of one id":               func(m *Machine) { m.locks.put("z", &lock{id: 1, name: "z", exclusive: true}) },
		"bad lock name":                 func(m *Machine) { m.locks.put("z/", &lock{id: 2, name: "z/", exclusive: true}) },
		"holder that waits":             func(m *Machine) { m.holders.put(holderKey{1, 101}, 8) },
		"one token twice":               func(m *Machine) { damage(&m.claims, 7, func(c *claim) { c.token = 101 }) },
		"token never minted":            func(m *Machine) { damage(&m.claims, 7, func(c *claim) { c.token = 999 }) },
		"token at the enqueueing":       func(m *Machine) { damage(&m.claims, 8, func(c *claim) { c.token = 102 }) },
		"LIFO":                          func(m *Machine) { swapPlaces(m) },
		"a try that waits":              func(m *Machine) { damage(&m.claims, 8, func(c *claim) { c.waitForever = false }) },
		"wants nothing":                 func(m *Machine) { damage(&m.claims, 8, func(c *claim) { c.one[0] = want{} }) },
		"wants another life of a lock":  func(m *Machine) { damage(&m.claims, 8, func(c *claim) { c.one[0].lock = 7 }) },
		"value too long":                func(m *Machine) { damage(&m.claims, 6, func(c *claim) { c.vary().value = make([]byte, 2000) }) },
		"granted before asked":          func(m *Machine) { damage(&m.claims, 6, func(c *claim) { c.grantedRevision = 1 }) },
		"a hold that nobody owns":       func(m *Machine) { m.owners.delete(ownerKey{1, 0, 1}) },
		"an owner of nothing":           func(m *Machine) { m.owners.put(ownerKey{1, 9, 1}, 6) },
		"a waiter out of the queue":     func(m *Machine) { m.queue.delete(placeKey{1, 8}) },
		"a place for nobody":            func(m *Machine) { m.queue.put(placeKey{7, 7}, 77) },
		"a holder in the queue":         func(m *Machine) { m.queue.put(placeKey{1, 6}, 6) },
		"a wait without a request":      func(m *Machine) { m.outcomes.delete(requestKey{2, 1}) },
		"a request that waits for ever": func(m *Machine) { m.claims.delete(9) },
		"an outcome of nobody":          func(m *Machine) { m.outcomes.put(requestKey{9, 1}, &outcome{status: 1, revision: 1}) },
		"granted without a token":       func(m *Machine) { damage(&m.outcomes, requestKey{1, 1}, func(o *outcome) { o.token = 0 }) },
		"outcome of the future":         func(m *Machine) { damage(&m.outcomes, requestKey{1, 1}, func(o *outcome) { o.revision = 99 }) },
	} {
		t.Run(name, func(t *testing.T) {
			m := twoLocks(t)
			if err := m.Check(); err != nil {
				t.Fatal(err)
			}
			breakIt(m)
			err := m.Check()
			if err == nil || !strings.HasPrefix(err.Error(), "broken invariant: ") {
				t.Errorf("not found: %v", err)
			}
		})
	}
}

// swapPlaces has the second waiter stand first.
func swapPlaces(m *Machine) {
	m.queue.put(placeKey{1, 8}, 9)
	m.queue.put(placeKey{1, 9}, 8)
}
