package fsm

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// breakage is one broken invariant, and what the check reports; want is empty if the state is valid.
type breakage struct {
	name    string
	breakIt func(*Machine)
	want    string
}

// brokenParts tries each check on its own, so that no other check reports first.
var brokenParts = []struct {
	state func(tester) *Machine
	check func(*checking) error
	parts []breakage
}{
	{twoLocks, (*checking).checkScalars, brokenScalars},
	{func(tester) *Machine { return New(Level) }, (*checking).checkScalars, brokenBeginnings},
	{twoLocks, (*checking).checkMembers, brokenMembers},
	{twoLocks, (*checking).checkRemoved, brokenRemoved},
	{twoLocks, (*checking).checkSessions, brokenSessions},
	{family, (*checking).checkSessions, brokenFamilySessions},
	{keyed, (*checking).checkSessions, brokenKeys},
	{keyed, (*checking).checkKeys, brokenKeyRequests},
	{twoLocks, (*checking).checkLocks, brokenLocks},
	{family, (*checking).checkLocks, brokenFamilyLocks},
	{family, recountAllHolders, brokenHolders},
	{twoLocks, (*checking).checkAudit, brokenAudits},
	{guarded, (*checking).checkAccess, brokenAccess},
	{guardedByQuotas, (*checking).checkAccess, brokenQuotas},
	{family, (*checking).checkOwners, brokenOwners},
	{twoLocks, (*checking).checkQueue, brokenQueues},
	{twoLocks, (*checking).checkHolders, brokenHolderRows},
	{family, (*checking).checkUpgrades, brokenUpgradeRows},
	{twoLocks, (*checking).checkOutcomes, brokenOutcomes},
	{twoLocks, (*checking).checkClaims, brokenClaims},
	{family, (*checking).checkClaims, brokenFamilyClaims},
	{caching, (*checking).checkClaims, brokenCachedClaims},
	{caching, (*checking).checkSessions, brokenCachedSessions},
}

// recountAllHolders is checkLocks without the checks that come first.
func recountAllHolders(m *checking) error {
	return each(&m.locks.table, func(l *lock) error { return m.recountHolders(l) })
}

func TestEachCheckFindsItsOwn(t *testing.T) {
	for i, group := range brokenParts {
		for _, part := range group.parts {
			t.Run(fmt.Sprint(i, " ", part.name), func(t *testing.T) {
				m := group.state(t)
				part.breakIt(m)
				err := group.check(&checking{m, m.claimsByID(), m.locksByID()})
				if (err == nil) != (part.want == "") || err != nil && !strings.Contains(err.Error(), part.want) {
					t.Errorf("found %v, want %q", err, part.want)
				}
			})
		}
	}
}

// The checks of something that all machines share have tests of their own.
func TestCheckFindsAChangedSentinel(t *testing.T) {
	m := twoLocks(t)
	noContention.limit = 1
	defer func() { noContention.limit = 0 }()
	if err := m.Check(); err == nil || !strings.Contains(err.Error(), "what all locks share was changed") {
		t.Error(err)
	}
}

// TestEachWalksInOrder tries a first row whose key is the zero value, a duplicate row, and a table with
// a wrong count.
func TestEachWalksInOrder(t *testing.T) {
	m := New(Level)
	all := func(*wire.Member) error { return nil }
	for _, id := range []string{"", "a", "b"} {
		m.members.put(&wire.Member{Id: id})
	}
	if err := each(&m.members, all); err != nil {
		t.Error(err)
	}
	stop := func(*wire.Member) error { return ErrMalformed }
	if err := each(&m.members, stop); err != ErrMalformed {
		t.Errorf("instead of what stopped the walk: %v", err)
	}
	m.members.root.size++
	if err := each(&m.members, all); err == nil || !strings.Contains(err.Error(), "counts 4 rows, there are 3") {
		t.Error(err)
	}
	damage(&m.members, "b", func(n *wire.Member) { n.Id = "a" })
	if err := each(&m.members, all); err == nil || !strings.Contains(err.Error(), "row a stands behind row a") {
		t.Error(err)
	}
}

// TestAsManyLocksAsAllowed tries a claim for the maximum number of locks.
func TestAsManyLocksAsAllowed(t *testing.T) {
	m := bootstrapped(t)
	op := &wire.Acquire{}
	for i := range maxLocks {
		op.Locks = append(op.Locks, &wire.LockRequest{Name: fmt.Sprint("l", i)})
	}
	applyOne(t, m, &wire.Command{SessionId: openSession(t, m, "ann"), Seq: 1, Op: &wire.Command_Acquire{Acquire: op}})
	if err := m.Check(); err != nil || m.claims.len() != 1 {
		t.Errorf("%d claims, %v", m.claims.len(), err)
	}
	restored(t, snapshotOf(t, m))
}

func editClaim(id uint64, edit func(*claim)) func(*Machine) {
	return func(m *Machine) { damage(&m.claims, id, edit) }
}

func editSession(id uint64, edit func(*session)) func(*Machine) {
	return func(m *Machine) { damage(&m.sessions, id, edit) }
}

func editLock(name string, edit func(*lock)) func(*Machine) {
	return func(m *Machine) { damage(&m.locks, name, edit) }
}

// editOutcome edits the first outcome of a session.
func editOutcome(id uint64, edit func(*outcome)) func(*Machine) {
	return editSession(id, func(s *session) { edit(&s.window.outcomes[0]) })
}

var brokenScalars = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"all at the revision", func(m *Machine) {
		r := m.state.revision
		m.state.discarded, m.state.suspended, m.state.acknowledged, m.state.firstAct = r, r, r, r
		m.state.lastSession, m.state.lastLock = m.state.sessionFloor+r, r*maxLocks+maxLocks-1
	}, ""},
	{"discarded to come", func(m *Machine) { m.state.discarded = m.state.revision + 1 }, "more things"},
	{"suspended to come", func(m *Machine) { m.state.suspended = m.state.revision + 1 }, "more things"},
	{"acknowledged to come", func(m *Machine) { m.state.acknowledged = m.state.revision + 1 }, "more things"},
	{"an act to come", func(m *Machine) { m.state.firstAct = m.state.revision + 1 }, "more things"},
	{"a session below the floor", func(m *Machine) { m.state.sessionFloor = m.state.lastSession + 1 }, "more things"},
	{"too many sessions", func(m *Machine) { m.state.lastSession = m.state.sessionFloor + m.state.revision + 1 }, "more things"},
	{"too many locks", func(m *Machine) { m.state.lastLock = (m.state.revision + 1) * maxLocks }, "more things"},
	{"the last lock id", func(m *Machine) { m.state.revision, m.state.lastLock = 1<<57, 1<<62 }, ""},
	{"a lock id that leaves no room", func(m *Machine) { m.state.revision, m.state.lastLock = 1<<57, 1<<62+1 }, "more things"},
	{"no level", func(m *Machine) { m.state.level = firstLevel - 1 }, "feature level"},
	{"a level to come", func(m *Machine) { m.state.level = m.level + 1 }, "feature level"},
	{"lineage", func(m *Machine) { m.state.lineage = strings.Repeat("x", maxLineageBytes) }, ""},
	{"long lineage", func(m *Machine) { m.state.lineage = strings.Repeat("x", maxLineageBytes+1) }, "lineage"},
	{"the last token", func(m *Machine) { m.state.token = maxToken }, ""},
	{"a token of 64 bits", func(m *Machine) { m.state.token = maxToken + 1 }, "more than 63 bits"},
	{"as many sessions as allowed", func(m *Machine) { m.state.settings.MaxSessions = 3 }, ""},
	{"a session too many", func(m *Machine) { m.state.settings.MaxSessions = 2 }, "3 sessions, at most 2"},
	{"as many locks as allowed", func(m *Machine) { m.state.settings.MaxLocks = 2 }, ""},
	{"a lock too many", func(m *Machine) { m.state.settings.MaxLocks = 1 }, "2 locks, at most 1"},
	{"a setting of 0", func(m *Machine) { m.state.settings.MaxWindow = 0 }, "settings: a limit is 0"},
	{"a setting out of range", func(m *Machine) { m.state.settings.MaxWindow = 1 << 40 }, "settings: max_window"},
}

var brokenBeginnings = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"a level", func(m *Machine) { m.state.level = 1 }, "before bootstrap"},
	{"suspended", func(m *Machine) { m.state.revision, m.state.suspended = 5, 1 }, "before bootstrap"},
	{"settings", func(m *Machine) { m.state.settings = DefaultSettings() }, "before bootstrap"},
	{"a session id", func(m *Machine) { m.state.revision, m.state.lastSession = 5, 1 }, "before bootstrap"},
	{"a lock id", func(m *Machine) { m.state.revision, m.state.lastLock = 5, 1 }, "before bootstrap"},
	{"a member", func(m *Machine) { m.members.put(&wire.Member{Id: "n1"}) }, "before bootstrap"},
	{"a removed member", func(m *Machine) { m.removed.put(&wire.RemovedMember{Id: "n1", Incarnation: "i"}) }, "before bootstrap"},
	{"a lock", func(m *Machine) { m.locks.put(&lock{lockKey: lockKey{1, "a"}, contention: noContention}) }, "before bootstrap"},
}

func putMembers(count int) func(*Machine) {
	return func(m *Machine) {
		for i := m.members.len(); i < count; i++ {
			m.members.put(&wire.Member{Id: fmt.Sprintf("x%d", i)})
		}
	}
}

var brokenMembers = []breakage{
	{"as many as allowed", putMembers(maxMembers), ""},
	{"a member too many", putMembers(maxMembers + 1), "65 members, at most 64"},
	{"a member of no level", func(m *Machine) { m.members.put(&wire.Member{Id: "n2", Level: 0}) }, ""},
	{"a member of a lower level", func(m *Machine) { m.state.level = 3; m.members.put(&wire.Member{Id: "n2", Level: 2}) }, "the cluster of 3"},
	{"a long address", func(m *Machine) { m.members.put(&wire.Member{Id: "n2", PeerAddr: strings.Repeat("x", 513)}) }, "of a member have at most 512 bytes"},
	{"members of one incarnation", func(m *Machine) {
		m.members.put(&wire.Member{Id: "n2", Incarnation: "i7"})
		m.members.put(&wire.Member{Id: "n3", Incarnation: "i7"})
	}, "the same incarnation"},
	{"members of no incarnation", func(m *Machine) { m.members.put(&wire.Member{Id: "n2"}); m.members.put(&wire.Member{Id: "n3"}) }, ""},
	{"a member that was removed", func(m *Machine) { m.removed.put(&wire.RemovedMember{Id: "n0", Incarnation: "i1", Revision: 1}) }, "which was removed"},
}

func putRemoved(count int) func(*Machine) {
	return func(m *Machine) {
		m.state.revision = 1_000
		for i := range count {
			m.removed.put(&wire.RemovedMember{Id: "n2", Incarnation: "j", Revision: uint64(i) + 1})
		}
	}
}

func putOneRemoved(r *wire.RemovedMember) func(*Machine) {
	return func(m *Machine) { m.removed.put(r) }
}

var brokenRemoved = []breakage{
	{"as many as allowed", putRemoved(maxRemoved), ""},
	{"one too many", putRemoved(maxRemoved + 1), "257 removed members, at most 256"},
	{"now", putOneRemoved(&wire.RemovedMember{Id: "n2", Incarnation: "j", Revision: 9}), ""},
	{"in the future", putOneRemoved(&wire.RemovedMember{Id: "n2", Incarnation: "j", Revision: 10}), "at revision 10 of 9"},
	{"before the beginning", putOneRemoved(&wire.RemovedMember{Id: "n2", Incarnation: "j"}), "at revision 0 of 9"},
	{"without an incarnation", putOneRemoved(&wire.RemovedMember{Id: "n2", Revision: 1}), `of incarnation ""`},
	{"with a long id", putOneRemoved(&wire.RemovedMember{Id: strings.Repeat("x", 513), Incarnation: "j", Revision: 1}), "of a member have at most 512 bytes"},
}

// describe gives session 1 a client info of so many bytes, and charges it for that.
func describe(size int) func(*Machine) {
	return func(m *Machine) {
		damage(&m.sessions, 1, func(s *session) {
			before := clientUnits(s.client)
			s.client = &wire.ClientInfo{Name: strings.Repeat("x", size-3)}
			if got := proto.Size(s.client); got != size {
				panic(fmt.Sprint("the client info has bytes: ", got))
			}
			grown := clientUnits(s.client) - before
			s.bytes += grown
			m.state.bytes += grown
		})
	}
}

var brokenSessions = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"units of all", func(m *Machine) { m.state.bytes++ }, "units, there are"},
	{"units of one", editSession(1, func(s *session) { s.bytes++ }), "further names: there are"},
	{"further names", editSession(1, func(s *session) { s.further++ }), "1 further names: there are"},
	{"a secret too many", func(m *Machine) { m.nonces.put(nonce{"x", 1}) }, "4 secret hashes for 3 sessions"},
	{"no id", editSession(1, func(s *session) { s.id = 0 }), "id 0, the last"},
	{"an id to come", func(m *Machine) { m.state.lastSession = 2 }, "id 3, the last"},
	{"a short hash", editSession(1, func(s *session) { s.secretHash = "x" }), "secret hash of 1 bytes"},
	{"a hash that leads nowhere", func(m *Machine) { m.nonces.delete(string(secretHash("ann"))); m.nonces.put(nonce{"x", 1}) }, "leads elsewhere"},
	{"a hash that leads elsewhere", func(m *Machine) { m.nonces.put(nonce{string(secretHash("ann")), 2}) }, "leads elsewhere"},
	{"the shortest TTL", editSession(1, func(s *session) { s.ttl = 5_000 }), ""},
	{"a short TTL, and all that comes later is not counted", editSession(1, func(s *session) { s.ttl = 4_999 }), "TTL 4999 ms"},
	{"the longest TTL", editSession(1, func(s *session) { s.ttl = 600_000 }), ""},
	{"a long TTL", editSession(1, func(s *session) { s.ttl = 600_001 }), "TTL 600001 ms"},
	{"no generation", editSession(1, func(s *session) { s.generation = 0 }), "generation 0"},
	{"the longest client info", describe(4_096 + maxAddressBytes + 8), ""},
	{"long client info", describe(4_096 + maxAddressBytes + 9), "client info of 4361 bytes"},
	{"the whole allowance", editSession(1, func(s *session) { s.searchAllowance = maxSearch }), ""},
	{"more than the allowance", editSession(1, func(s *session) { s.searchAllowance = maxSearch + 1 }), "units for deadlock searches"},
	{"as many claims as allowed", func(m *Machine) { m.state.settings.MaxClaimsPerSession = 2 }, ""},
	{"a claim too many", func(m *Machine) { m.state.settings.MaxClaimsPerSession = 1 }, "2 claims, at most 1"},
	{"final outcomes", editSession(1, func(s *session) { s.window.final++ }), "counts 2 holds"},
	{"a request that no longer waits", func(m *Machine) {
		editOutcome(2, func(o *outcome) { o.status = wire.Status_CANCELLED })(m)
		damage(&m.sessions, 2, func(s *session) { s.window.final++ })
	}, "counts 0 holds and 1 waits: there are 0 and 1, 0 requests that wait"},
	{"holds", editSession(1, func(s *session) { s.holds, s.waits = 1, 0 }), "counts 1 holds"},
	{"a wait that nobody owns", func(m *Machine) {
		c, _ := m.claims.get(8)
		m.owners.delete(ownerKey{2, 0, 1})
		damage(&m.sessions, 2, func(s *session) { s.bytes -= c.units() })
		m.state.bytes -= c.units()
	}, "counts 0 holds and 1 waits: there are 0 and 0, 1 requests that wait"},
}

var brokenFamilySessions = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"a lease of a request that was forgotten", func(m *Machine) {
		damage(&m.sessions, 6, func(s *session) {
			gone := s.window.outcomes[0].units()
			s.window.outcomes, s.window.final = nil, 0
			s.window.bytes -= gone
			m.state.bytes -= gone
		})
	}, "a lease with 1 holds and 0 waits, its request is there: false"},
	{"a lease whose hold nobody owns", func(m *Machine) {
		c, _ := m.claims.get(15)
		m.owners.delete(ownerKey{6, 0, 6})
		damage(&m.sessions, 6, func(s *session) { s.bytes -= c.units() })
		m.state.bytes -= c.units()
	}, "a lease with 0 holds and 0 waits, its request is there: true"},
	{"a lease of several holds", editSession(1, func(s *session) { s.leased = true }), "a lease with 2 holds"},
	{"a lease of no hold", editSession(5, func(s *session) { s.leased = true }), "a lease with 0 holds and 0 waits"},
}
