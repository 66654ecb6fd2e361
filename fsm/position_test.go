package fsm

import (
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// begun returns a machine in which terms began at revisions, with nonces, and whose revision is last.
func begun(last uint64, starts ...*wire.TermStart) *Machine {
	m := New(Level)
	m.state.starts, m.state.revision = starts, last
	return m
}

func start(term, nonce, revision uint64) *wire.TermStart {
	return &wire.TermStart{Term: term, Nonce: nonce, Revision: revision}
}

// TestContains checks that a position belongs to a history only if its leadership began there and the next one began
// after its revision.
func TestContains(t *testing.T) {
	m := begun(50, start(2, 7, 10), start(3, 8, 20), start(5, 7, 40))
	for _, test := range []struct {
		term, nonce, revision uint64
		want                  bool
	}{
		{2, 7, 10, true},
		{2, 7, 19, true},
		{2, 7, 5, true},   // seen before that leadership
		{2, 7, 20, false}, // the next leader did not have it
		{3, 8, 39, true},
		{3, 8, 45, false}, // the history has run past it
		{5, 7, 50, true},
		{5, 7, 51, false}, // the history is shorter
		{3, 7, 30, false}, // another leader of the same term
		{4, 7, 30, false}, // a term that never began
		{1, 7, 5, false},
		{6, 7, 50, false},
	} {
		if got := m.Contains(&wire.Position{Term: test.term, Nonce: test.nonce, Revision: test.revision}); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
	if begun(0).Contains(&wire.Position{Term: 1}) {
		t.Error("a history without a term contains one")
	}
}

// TestContainsBeforeTheRememberedTerms checks that a position from before the remembered terms is not taken for a lost
// one, unless its revision shows that it is.
func TestContainsBeforeTheRememberedTerms(t *testing.T) {
	var starts []*wire.TermStart
	for i := range uint64(maxTermStarts) {
		starts = append(starts, start(100+i, 1, 1000+i))
	}
	m := begun(5000, starts...)
	for revision, want := range map[uint64]bool{1: true, 999: true, 1000: false, 4000: false} {
		if got := m.Contains(&wire.Position{Term: 99, Nonce: 9, Revision: revision}); got != want {
			t.Errorf("revision %d: %v", revision, got)
		}
	}
}

// TestContainsEverythingOfItsOwn checks in histories of random lengths that whatever was seen under any leadership stays
// contained, also after a restart from a snapshot, and that nothing of a fork is.
func TestContainsEverythingOfItsOwn(t *testing.T) {
	m := bootstrapped(t)
	var seen []*wire.Position
	var copied []byte
	note := func(m *Machine) {
		latest := m.LatestTerm()
		seen = append(seen, &wire.Position{Term: latest.GetTerm(), Nonce: latest.GetNonce(), Revision: m.Revision()})
	}
	lead := func(m *Machine, nonce uint64) {
		applyOne(t, m, &wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: m.Term() + 1, LeaderId: "n1", Nonce: nonce}}})
	}
	lost := 0
	for round := range uint64(40) {
		lead(m, round)
		for i := range round % 4 {
			note(m)
			openSession(t, m, fmt.Sprintf("%d of %d", i, round))
			note(m)
		}
		if round == 20 {
			copied, lost = snapshotOf(t, m), len(seen)
		}
	}
	m = restored(t, snapshotOf(t, m))
	for _, at := range seen {
		if !m.Contains(at) {
			t.Errorf("%v is missing", at)
		}
	}
	fork := restored(t, copied)
	for range 3 {
		for i, at := range seen {
			if got := fork.Contains(at); got != (i < lost) {
				t.Errorf("%v: the fork at revision %d contains it: %v", at, fork.Revision(), got)
			}
		}
		lead(fork, 1_000)
		for i := range 40 {
			openSession(t, fork, fmt.Sprintf("%d of fork %d", i, fork.Term()))
		}
	}
}
