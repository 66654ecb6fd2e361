package fsm

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func snapshotOf(t tester, m *Machine) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.WriteSnapshot(&b); err != nil {
		t.Fatalf("%v", err)
	}
	return b.Bytes()
}

func restored(t tester, snapshot []byte) *Machine {
	t.Helper()
	m, err := Restore(bytes.NewReader(snapshot), Level)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return m
}

// replay applies a log and returns all results and events.
func replay(t testing.TB, m *Machine, log []*wire.Command) (results []*wire.Result, events []*wire.Event) {
	t.Helper()
	for _, cmd := range log {
		applied := applyOne(t, m, cmd)
		results = append(results, applied.Results...)
		events = append(events, applied.Events...)
	}
	return results, events
}

// TestReplay checks that a snapshot at every index, followed by the rest of the log, leads to the same
// bytes and the same answers as a full replay.
func TestReplay(t *testing.T) {
	logs := scaled(200)
	for seed := range logs {
		log := walk(uint64(seed)+1e6, 60)
		m := New(Level)
		results, _ := replay(t, m, log)
		want := snapshotOf(t, m)
		again := New(Level)
		for k := range log {
			short := restored(t, snapshotOf(t, again))
			rest, _ := replay(t, short, log[k:])
			if got := snapshotOf(t, short); !bytes.Equal(got, want) {
				t.Fatalf("seed %d: a snapshot after %d commands leads elsewhere\n%s", seed, k, lines(log))
			}
			compareResults(t, rest, results[k:])
			applyOne(t, again, log[k])
		}
		if got := snapshotOf(t, again); !bytes.Equal(got, want) {
			t.Fatalf("seed %d: two replays differ\n%s", seed, lines(log))
		}
	}
	fmt.Printf("fsm: %d logs replayed from a snapshot at every index\n", logs)
}

func compareResults(t testing.TB, got, want []*wire.Result) {
	t.Helper()
	for i := range want {
		if got[i].String() != want[i].String() {
			t.Fatalf("answer %d differs:\n%v\n%v", i, got[i], want[i])
		}
	}
}

// TestBatching checks that the distribution of commands over entries changes neither the state nor an
// answer, and that entries without commands change nothing.
func TestBatching(t *testing.T) {
	for seed := range uint64(20) {
		log := walk(seed+2e6, 60)
		single := New(Level)
		results, events := replay(t, single, log)
		batched, roll := New(Level), seeded(seed)
		var gotResults []*wire.Result
		var gotEvents []*wire.Event
		for rest := log; len(rest) > 0; {
			n := min(roll(12), len(rest))
			data, err := marshal.Marshal(&wire.Entry{Level: 1, WallUnixMs: 5, Commands: rest[:n]})
			if err != nil {
				t.Fatal(err)
			}
			applied, err := batched.Apply(data)
			if err != nil {
				t.Fatal(err)
			}
			gotResults = append(gotResults, applied.Results...)
			gotEvents = append(gotEvents, applied.Events...)
			rest = rest[n:]
		}
		compareResults(t, gotResults, results)
		if fmt.Sprint(gotEvents) != fmt.Sprint(events) {
			t.Fatal("the events differ")
		}
		if !bytes.Equal(snapshotOf(t, single), snapshotOf(t, batched)) {
			t.Fatal("the states differ")
		}
	}
}

// TestForksAreIndependent applies different commands to both sides of forks, and writes a fork out while
// the machine keeps applying.
func TestForksAreIndependent(t *testing.T) {
	for seed := range uint64(10) {
		log := walk(seed+3e6, 120)
		m := New(Level)
		replay(t, m, log[:60])
		before := snapshotOf(t, m)
		fork, idle := m.Fork(), m.Fork()
		written := make(chan []byte)
		go func() {
			var b bytes.Buffer
			_ = idle.WriteSnapshot(&b)
			written <- b.Bytes()
		}()
		replay(t, m, log[60:])
		after := snapshotOf(t, m)
		if got := <-written; !bytes.Equal(got, before) {
			t.Fatal("the machine's later commands reached a fork")
		}
		replay(t, fork, walk(seed+4e6, 40)[1:])
		if err := fork.Check(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(snapshotOf(t, m), after) {
			t.Fatal("the fork's commands reached the machine")
		}
		if !bytes.Equal(snapshotOf(t, idle), before) {
			t.Fatal("one fork reached another")
		}
	}
}

// TestTokensNeverRepeat checks that tokens are not reused after the end of the lock or the session, or
// after a restore.
func TestTokensNeverRepeat(t *testing.T) {
	m, last := New(Level), uint64(walkFloor)
	boot := &wire.Bootstrap{ClusterId: "c", TokenFloor: walkFloor}
	applyOne(t, m, &wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: boot}})
	for i := range 50 {
		id := openSession(t, m, fmt.Sprint(i))
		r := acquireNow(t, m, id, 1, "the/lock")
		if r.Token <= last {
			t.Fatalf("token %d after %d", r.Token, last)
		}
		last = r.Token
		if i%2 == 0 {
			releaseNow(t, m, id, 2, r)
		} else {
			applyOne(t, m, &wire.Command{SessionId: id, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}})
		}
		if m.Totals().Locks != 0 {
			t.Fatal("the lock is still there")
		}
		m = restored(t, snapshotOf(t, m))
	}
}

func openSession(t tester, m *Machine, name string) uint64 {
	t.Helper()
	r := applyOne(t, m, &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{
		SecretHash: secretHash(name), Client: &wire.ClientInfo{Name: name},
	}}}).Results[0]
	if r.Status != wire.Status_OK {
		t.Fatalf("open: %v", r)
	}
	return r.Session.SessionId
}

func acquireNow(t tester, m *Machine, session, seq uint64, name string) *wire.Result {
	t.Helper()
	r := applyOne(t, m, &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
		Locks: []*wire.LockRequest{{Name: name}}, WaitForever: true,
	}}}).Results[0]
	if r.HoldId == 0 {
		t.Fatalf("acquire: %v", r)
	}
	return r
}

func releaseNow(t tester, m *Machine, session, seq uint64, hold *wire.Result) *Applied {
	t.Helper()
	applied := applyOne(t, m, &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_Release{Release: &wire.Release{
		HoldId: hold.HoldId, Token: hold.Token,
	}}})
	if r := applied.Results[0]; r.Status != wire.Status_OK {
		t.Fatalf("release: %v", r)
	}
	return applied
}

// bootstrapped returns a machine with default limits.
func bootstrapped(t tester) *Machine {
	t.Helper()
	m := New(Level)
	applyOne(t, m, &wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{
		ClusterId: "c", TokenFloor: 100, Members: []*wire.Member{{Id: "n1", Incarnation: "i1", Level: 1}},
	}}})
	applyOne(t, m, &wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 1, LeaderId: "n1"}}})
	return m
}

// busy returns a machine after a random log that has left something in every table.
func busy(t tester, seed uint64) *Machine {
	t.Helper()
	for {
		m := New(Level)
		for _, cmd := range walk(seed, 80) {
			applyOne(t, m, cmd)
		}
		remembered := 0
		m.sessions.each(0, func(s *session) bool {
			remembered += len(s.remembered())
			return true
		})
		if totals := m.Totals(); totals.Holds > 2 && totals.Waiters > 3 && remembered > 3 && m.audit.len() > 0 {
			return m
		}
		seed++
	}
}
