package fsm

import (
	"bytes"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestFailedHandlerIsUndone makes every command of random logs fail at its first, its second, … write,
// and compares the state with the one before. Half of the logs fail on forks, where every row is copied,
// half where rows are changed in place.
func TestFailedHandlerIsUndone(t *testing.T) {
	failed := 0
	for seed := range uint64(scaled(100)) {
		m := New(Level)
		for _, cmd := range walk(seed+5e6, 60) {
			on := func() *Machine { return m }
			if seed%2 == 0 {
				on = m.Fork
			}
			for at := 1; failAt(t, m, on(), cmd, at); at++ {
				failed++
			}
			if seed%2 == 0 {
				applyOne(t, m, cmd)
			}
		}
	}
	if failed < 1_000 {
		t.Errorf("only %d handlers failed", failed)
	}
}

// failAt applies the command to a machine or its fork, and makes write number at fail. It returns false
// if the command made fewer writes and was applied.
func failAt(t tester, m, on *Machine, cmd *wire.Command, at int) bool {
	t.Helper()
	was, revision, discarded := snapshotOf(t, m), m.state.revision, m.state.discarded
	writes := 0
	on.setFault(func() {
		if writes++; writes == at {
			panic("on purpose")
		}
	})
	applied, err := on.Apply(entry(t, cmd))
	if err != nil {
		t.Fatalf("%v", err)
	}
	on.setFault(nil)
	if writes < at {
		return false
	}
	r := applied.Results[0]
	if r.Status != wire.Status_INTERNAL || r.Seq != cmd.Seq || r.Revision != revision+1 || len(applied.Events) != 0 {
		t.Fatalf("%v\nfailed with %v, events %v", cmd, r, applied.Events)
	}
	if len(applied.Failures) != 1 || !strings.Contains(applied.Failures[0].Panic, "on purpose") {
		t.Fatalf("failures %+v", applied.Failures)
	}
	if on.Discarded() != discarded+1 {
		t.Fatalf("%d discarded", on.Discarded())
	}
	// Apart from the revision and the count, the state must be the same.
	on.state.revision, on.state.discarded = revision, discarded
	if !bytes.Equal(snapshotOf(t, on), was) {
		t.Fatalf("%v\nfailed at write %d and left something behind", cmd, at)
	}
	if err := on.Check(); err != nil {
		t.Fatalf("%v\nfailed at write %d: %v", cmd, at, err)
	}
	return true
}

func (m *Machine) setFault(fn func()) {
	for _, t := range m.tables() {
		t.setFault(fn)
	}
}

// TestFailedCommandDoesNotAffectItsEntry checks that the other commands of the entry are applied, and that
// a retry of the failed one is executed.
func TestFailedCommandDoesNotAffectItsEntry(t *testing.T) {
	m := bootstrapped(t)
	id := openSession(t, m, "s")
	acquire := func(seq uint64, name string) *wire.Command {
		return &wire.Command{SessionId: id, Seq: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}}}}
	}
	m.locks.setFault(func() {
		if m.state.revision == 5 {
			panic("on purpose")
		}
	})
	applied, err := m.Apply(entry(t, acquire(1, "a"), acquire(2, "b"), acquire(3, "c")))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []wire.Status_Code{wire.Status_GRANTED, wire.Status_INTERNAL, wire.Status_GRANTED} {
		if got := applied.Results[i]; got.Status != want {
			t.Errorf("command %d: %v", i, got)
		}
	}
	if applied.Results[2].Token != applied.Results[0].Token+1 {
		t.Errorf("the failed command took a token: %v", applied.Results)
	}
	if f := applied.Failures; len(f) != 1 || f[0].Command != 1 || !strings.HasSuffix(f[0].Operation, "Acquire") {
		t.Errorf("failures %+v", f)
	}
	m.setFault(nil)
	if r := applyOne(t, m, acquire(2, "b")).Results[0]; r.Status != wire.Status_GRANTED {
		t.Errorf("the retry: %v", r)
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
}
