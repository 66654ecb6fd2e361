package fsm

import (
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestSizesOfCommands gives each kind of command as many bytes as one of its kind may need, and one more.
func TestSizesOfCommands(t *testing.T) {
	limits := DefaultSettings()
	ordinary := 64<<10 + int(limits.MaxValueBytes) + int(limits.MaxClientInfoBytes) + 10*int(limits.MaxWindow+limits.MaxClaimsPerSession)
	for _, kind := range commandKinds() {
		most := ordinary
		switch kind.Name() {
		case "restore_backup":
			most = 1 << 20
		case "bootstrap":
			most = 64<<10 + 64*5*512
		case "set_policy":
			most = 64<<10 + 256<<10
		}
		cmd := soundCommand(t, kind)
		for _, size := range []int{0, 64 << 10, 64<<10 + 1, most} {
			if r := ValidateSize(cmd, size, limits); r != nil {
				t.Errorf("%s of %d bytes: %v", kind.Name(), size, r)
			}
		}
		if r := ValidateSize(cmd, most+1, limits); r.GetStatus() != wire.Status_RESOURCE_EXHAUSTED {
			t.Errorf("%s of %d bytes: %v", kind.Name(), most+1, r)
		}
	}
}

// TestLengthsOfLists tries lists of the maximum length, and with one more element.
func TestLengthsOfLists(t *testing.T) {
	list := func(n int, more func(i int)) {
		for i := range n {
			more(i)
		}
	}
	for name, c := range map[string]struct {
		most int
		make func(n int) *wire.Command
	}{
		"locks of an acquire": {64, func(n int) *wire.Command {
			op := &wire.Acquire{}
			list(n, func(i int) { op.Locks = append(op.Locks, &wire.LockRequest{Name: fmt.Sprint("l", i)}) })
			return &wire.Command{Seq: 1, Op: &wire.Command_Acquire{Acquire: op}}
		}},
		"members of a cluster": {64, func(n int) *wire.Command {
			op := &wire.Bootstrap{ClusterId: "c"}
			list(n, func(i int) { op.Members = append(op.Members, &wire.Member{Id: fmt.Sprint("n", i)}) })
			return &wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: op}}
		}},
		"audit records of a backup": {512, func(n int) *wire.Command {
			op := &wire.RestoreBackup{Lineage: "l", Reason: "r"}
			list(n, func(i int) {
				op.Audit = append(op.Audit, &wire.AuditRecord{Id: uint64(i) + 1, Action: wire.AuditRecord_REVOKE, Reason: "r"})
			})
			return &wire.Command{Op: &wire.Command_RestoreBackup{RestoreBackup: op}}
		}},
	} {
		if r := Validate(c.make(c.most), DefaultSettings()); r != nil {
			t.Errorf("%d %s: %v", c.most, name, r)
		}
		if r := Validate(c.make(c.most+1), DefaultSettings()); r == nil {
			t.Errorf("%d %s: %v", c.most+1, name, r)
		}
	}
}

// TestTimesToLiveAscend sets all three to the same value, and each pair in the wrong order.
func TestTimesToLiveAscend(t *testing.T) {
	for _, c := range []struct {
		low, usual, high uint32
		good             bool
	}{{7_000, 7_000, 7_000, true}, {7_000, 8_000, 9_000, true}, {8_001, 8_000, 9_000, false}, {7_000, 9_001, 9_000, false}} {
		s, err := completeSettings(&wire.Settings{MinTtlMs: c.low, DefaultTtlMs: c.usual, MaxTtlMs: c.high})
		if (err == nil) != c.good || c.good && (s.MinTtlMs != c.low || s.MaxTtlMs != c.high) {
			t.Errorf("%+v: %v, %v", c, s, err)
		}
	}
}

// TestSessionBudgetFollowsThatOfTheState sets only the budget of the state.
func TestSessionBudgetFollowsThatOfTheState(t *testing.T) {
	usual := DefaultSettings()
	for _, most := range []uint64{MinStateBytes, usual.MaxSessionBytes, usual.MaxStateBytes} {
		s, err := completeSettings(&wire.Settings{MaxStateBytes: most})
		if err != nil || s.MaxStateBytes != most || s.MaxSessionBytes != min(most, usual.MaxSessionBytes) {
			t.Errorf("max_state_bytes %d: %v, %v", most, s, err)
		}
	}
	if _, err := completeSettings(&wire.Settings{MaxStateBytes: MinStateBytes, MaxSessionBytes: MinStateBytes + 1}); err == nil {
		t.Error("a session may take more than all of them")
	}
}

// TestNearTheBudget asks right below the room reserved for operators, and at it.
func TestNearTheBudget(t *testing.T) {
	r := NewReplicated(Level, nil)
	if r.Near(1 << 60) {
		t.Error("a budget before there is a cluster")
	}
	r.Apply(&raft.Log{Index: 1, Data: bootEntry(t)})
	left := r.Limits().MaxStateBytes - r.Units() - operatorUnits
	if r.Near(left) || !r.Near(left+1) {
		t.Errorf("near with %d units: %v, with one more: %v", left, r.Near(left), r.Near(left+1))
	}
}

// fullMachine returns a machine whose budgets are used up: ann's request 1 was granted, request 2 waits
// and request 3 was answered; there is also a lease.
func fullMachine(t *testing.T) (m *Machine, ann uint64) {
	m = bootstrapped(t)
	ann = openSession(t, m, "ann")
	acquireNow(t, m, ann, 1, "a")
	acquireNow(t, m, openSession(t, m, "bob"), 1, "b")
	if r := acquireNow(t, m, ann, 2, "b"); r.Status != wire.Status_QUEUED {
		t.Fatal(r)
	}
	acquireNow(t, m, ann, 3, "c")
	applyOne(t, m, &wire.Command{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{SecretHash: secretHash("lease"), Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "e"}}}}}})
	m.state.settings.MaxStateBytes = m.Units()
	return m, ann
}

// TestExhaustedBeforeTheLog asks what a leader asks before it logs a command.
func TestExhaustedBeforeTheLog(t *testing.T) {
	m, ann := fullMachine(t)
	acquire := &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "z"}}}}
	open := func(secret string) *wire.Command {
		return &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: secretHash(secret)}}}
	}
	lease := func(secret string) *wire.Command {
		return &wire.Command{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{SecretHash: secretHash(secret), Acquire: acquire.Acquire}}}
	}
	for name, c := range map[string]struct {
		cmd     *wire.Command
		refused bool
	}{
		"a new request":                    {&wire.Command{SessionId: ann, Seq: 4, Op: acquire}, true},
		"a retry of what was granted":      {&wire.Command{SessionId: ann, Seq: 1, Op: acquire}, false},
		"a retry of what waits":            {&wire.Command{SessionId: ann, Seq: 2, Op: acquire}, false},
		"an acknowledgement below":         {&wire.Command{SessionId: ann, Seq: 4, AckedBelow: 2, Op: acquire}, false},
		"an acknowledgement of nothing":    {&wire.Command{SessionId: ann, Seq: 4, AckedBelow: 1, Op: acquire}, true},
		"an acknowledgement of a wait":     {&wire.Command{SessionId: ann, Seq: 4, Acked: []uint64{2}, Op: acquire}, true},
		"an acknowledgement of no request": {&wire.Command{SessionId: ann, Seq: 4, Acked: []uint64{9}, Op: acquire}, true},
		"a session that is gone":           {&wire.Command{SessionId: 99, Seq: 1, Op: acquire}, false},
		"a lease's session":                {&wire.Command{SessionId: 3, Seq: 9, Op: acquire}, false},
		"a release":                        {&wire.Command{SessionId: ann, Seq: 4, Op: &wire.Command_Release{Release: &wire.Release{HoldId: 4}}}, false},
		"a new session":                    {open("new"), true},
		"a retry of one":                   {open("ann"), false},
		"a new lease":                      {lease("new"), true},
		"a retry of it":                    {lease("lease"), false},
	} {
		if r := m.Exhausted(c.cmd, 0); (r != nil) != c.refused || r != nil && r.Status != wire.Status_RESOURCE_EXHAUSTED {
			t.Errorf("%s: %v", name, r)
		}
	}
	m.state.settings.MaxStateBytes = m.Units() + operatorUnits + GrowthUnits(open("new"))
	if r := m.Exhausted(open("new"), 0); r != nil {
		t.Errorf("the last room: %v", r)
	}
	if r := m.Exhausted(open("new"), 1); r.GetStatus() != wire.Status_RESOURCE_EXHAUSTED {
		t.Errorf("the last room, with what is ahead: %v", r)
	}
	s, _ := m.sessions.get(ann)
	m.state.settings.MaxStateBytes, m.state.settings.MaxSessionBytes = 1<<40, s.units()
	if r := m.Exhausted(&wire.Command{SessionId: ann, Seq: 4, Op: acquire}, 0); r.GetStatus() != wire.Status_RESOURCE_EXHAUSTED {
		t.Errorf("a session without room: %v", r)
	}
	if r := New(Level).Exhausted(open("new"), 0); r != nil {
		t.Errorf("before there is a cluster: %v", r)
	}
}

// TestRefusalsForWantOfRoomAreForgotten repeats requests once there is room, after refusals because of
// the budgets of the state and the session and because of the window.
func TestRefusalsForWantOfRoomAreForgotten(t *testing.T) {
	for name, shrink := range map[string]func(*wire.Settings, *Machine, *session){
		"the state":   func(s *wire.Settings, m *Machine, _ *session) { s.MaxStateBytes = m.Units() },
		"the session": func(s *wire.Settings, _ *Machine, of *session) { s.MaxSessionBytes = of.units() },
		"the window":  func(s *wire.Settings, _ *Machine, of *session) { s.MaxWindow = of.window.final },
		"the claims":  func(s *wire.Settings, _ *Machine, of *session) { s.MaxClaimsPerSession = of.claims() },
	} {
		m, ann := fullMachine(t)
		s, _ := m.sessions.get(ann)
		roomy := DefaultSettings()
		m.state.settings = DefaultSettings()
		shrink(m.state.settings, m, s)
		ask := func() *wire.Result {
			op := &wire.Acquire{Locks: []*wire.LockRequest{{Name: "z"}}}
			return applyOne(t, m, &wire.Command{SessionId: ann, Seq: 4, Op: &wire.Command_Acquire{Acquire: op}}).Results[0]
		}
		if r := ask(); r.Status != wire.Status_RESOURCE_EXHAUSTED {
			t.Fatalf("%s: %v", name, r)
		}
		s, _ = m.sessions.get(ann)
		_, remembered := s.outcome(4)
		m.state.settings = roomy
		if r := ask(); remembered == (name != "the claims") || (r.Status == wire.Status_GRANTED) == remembered {
			t.Errorf("%s: remembered: %v, asked again: %v", name, remembered, r)
		}
	}
}

// TestAcknowledgedRequestsAreFinal asks for room for a request that was acknowledged already.
func TestAcknowledgedRequestsAreFinal(t *testing.T) {
	m, ann := fullMachine(t)
	cmd := &wire.Command{SessionId: ann, Seq: 4, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "z"}}}}}
	for below, refused := range map[uint64]bool{4: true, 5: false} {
		damage(&m.sessions, ann, func(s *session) { s.ackedBelow = below })
		if r := m.Exhausted(cmd, 0); (r != nil) != refused {
			t.Errorf("request 4, acknowledged below %d: %v", below, r)
		}
	}
}

// TestAheadAppliesToACopy yields an entry of the cluster, one of raft itself and a malformed one.
func TestAheadAppliesToACopy(t *testing.T) {
	r := NewReplicated(Level, nil)
	r.Apply(&raft.Log{Index: 5, Data: bootEntry(t)})
	term := entry(t, &wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 4}}})
	entries := func(last error, logs ...*raft.Log) func(uint64) iter.Seq2[*raft.Log, error] {
		return func(after uint64) iter.Seq2[*raft.Log, error] {
			if after != 5 {
				t.Errorf("asked for what follows %d", after)
			}
			return func(yield func(*raft.Log, error) bool) {
				for _, log := range logs {
					if !yield(log, nil) {
						return
					}
				}
				if last != nil {
					yield(nil, last)
				}
			}
		}
	}
	m, index, err := r.Ahead(entries(nil, &raft.Log{Index: 6, Data: term}, &raft.Log{Index: 7, Type: raft.LogNoop, Data: bootEntry(t)}, &raft.Log{Index: 8, Data: []byte{0xff}}))
	if err != nil || index != 8 || m.Term() != 4 || m.state.index != 8 || r.AppliedIndex() != 5 || r.Fork().Term() != 0 {
		t.Errorf("index %d, %v", index, err)
	}
	if m, index, err = r.Ahead(entries(nil)); err != nil || index != 5 || m.Term() != 0 {
		t.Errorf("nothing ahead: index %d, %v", index, err)
	}
	if _, _, err = r.Ahead(entries(nil, &raft.Log{Index: 6, Data: newerEntry(t)})); !errors.Is(err, ErrUpgrade) {
		t.Errorf("an entry of a newer level: %v", err)
	}
	broken := errors.New("disk broken")
	if _, _, err = r.Ahead(entries(broken, &raft.Log{Index: 6, Data: term})); !errors.Is(err, broken) {
		t.Errorf("a log that cannot be read: %v", err)
	}
}

// TestSingleOwner checks which owners have nothing but a place in one queue.
func TestSingleOwner(t *testing.T) {
	m := twoLocks(t)
	for id, want := range map[uint64]bool{6: false, 8: true, 9: true} {
		if c, _ := m.claims.get(id); m.single(c) != want {
			t.Errorf("claim %d is all that its owner has: %v", id, !want)
		}
	}
}

// TestUsedClusters checks which clusters a restore must name.
func TestUsedClusters(t *testing.T) {
	m := bootstrapped(t)
	if m.used() {
		t.Error("a cluster is used at once")
	}
	for name, use := range map[string]func(m *Machine){
		"sessions": func(m *Machine) { m.state.lastSession++ },
		"an act":   func(m *Machine) { m.state.firstAct = 1 },
		"a lock":   putLock(1, "a"),
	} {
		m := bootstrapped(t)
		if use(m); !m.used() {
			t.Errorf("%s, and it is not used", name)
		}
	}
}
