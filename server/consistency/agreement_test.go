package consistency

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// stateOf returns the hash of the state that a letter stands for.
func stateOf(letter string) [sha256.Size]byte { return sha256.Sum256([]byte(letter)) }

// saying returns a report. Its letters stand for the states at the indexes 10, 20, 30, and so on; a dot is a
// point that was skipped.
func saying(letters string) *wire.StateHashes {
	said := &wire.StateHashes{Format: fsm.HashFormat}
	for i, letter := range strings.Split(letters, "") {
		if sum := stateOf(letter); letter != "." {
			said.Points = append(said.Points, &wire.StateHash{Index: uint64(10 * (i + 1)), Sha256: sum[:]})
		}
	}
	return said
}

// heard returns the agreement of n1 with the given states of its own, after reports of the others.
func heard(own string, others map[string]string) *agreement {
	a := &agreement{self: "n1", reports: map[string]report{}}
	for _, p := range saying(own).Points {
		a.add(point{index: p.Index, revision: p.Index + 1, sum: [sha256.Size]byte(p.Sha256)})
	}
	for id, said := range others {
		a.record(id, "1", saying(said))
	}
	return a
}

func nodes(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint("n", i+1))
	}
	return ids
}

func TestAgreement(t *testing.T) {
	for name, c := range map[string]struct {
		voters            []string
		own               string
		others            map[string]string
		agreed, differing uint64
		// divergences is the index at which this node finds a majority against it, 0 if it does not.
		divergences uint64
	}{
		"alone":                       {voters: nodes(1), own: "ab", agreed: 20},
		"nobody has answered":         {voters: nodes(3), own: "ab"},
		"one of two others":           {voters: nodes(3), own: "abc", others: map[string]string{"n2": "ab"}, agreed: 20},
		"skipped points":              {voters: nodes(3), own: "a.c", others: map[string]string{"n2": ".bc", "n3": "ab"}, agreed: 30},
		"another is wrong":            {voters: nodes(3), own: "ab", others: map[string]string{"n2": "ab", "n3": "ax"}, agreed: 20},
		"this node is wrong":          {voters: nodes(3), own: "ax", others: map[string]string{"n2": "ab", "n3": "ab"}, agreed: 10, divergences: 20},
		"two of three differ":         {voters: nodes(3), own: "ab", others: map[string]string{"n2": "ax"}, agreed: 10, differing: 20},
		"all three differ":            {voters: nodes(3), own: "ab", others: map[string]string{"n2": "ax", "n3": "ay"}, agreed: 10, differing: 20},
		"they agree again":            {voters: nodes(3), own: "abc", others: map[string]string{"n2": "axc"}, agreed: 30, differing: 20},
		"two sides of four":           {voters: nodes(4), own: "a", others: map[string]string{"n2": "a", "n3": "x", "n4": "x"}, differing: 10},
		"two of five are no majority": {voters: nodes(5), own: "a", others: map[string]string{"n2": "x", "n3": "x"}, differing: 10},
		"three of five":               {voters: nodes(5), own: "a", others: map[string]string{"n2": "x", "n3": "x", "n4": "x"}, divergences: 10},
		"who does not vote":           {voters: nodes(3), own: "a", others: map[string]string{"n2": "a", "n4": "x", "n5": "x"}, agreed: 10},
		"not voting, right":           {voters: []string{"n2", "n3"}, own: "a", others: map[string]string{"n2": "a", "n3": "a"}, agreed: 10},
		"not voting, wrong":           {voters: []string{"n2", "n3"}, own: "x", others: map[string]string{"n2": "a", "n3": "a"}, divergences: 10},
		"not voting, one answered":    {voters: []string{"n2", "n3"}, own: "x", others: map[string]string{"n2": "a"}},
		"before raft runs":            {own: "a", others: map[string]string{"n2": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := heard(c.own, c.others)
			d := a.compare(c.voters)
			if (d != nil) != (c.divergences != 0) || d != nil && d.Index != c.divergences {
				t.Errorf("dissent %+v, want one at %d", d, c.divergences)
			}
			if a.agreed.index != c.agreed || a.differing != c.differing {
				t.Errorf("agreed at %d, differing at %d; want %d, %d", a.agreed.index, a.differing, c.agreed, c.differing)
			}
			if want := c.differing > c.agreed; a.undecided() != want {
				t.Errorf("undecided: %v", !want)
			}
		})
	}
}

func TestDivergenceNamesTheMajority(t *testing.T) {
	d := heard("x", map[string]string{"n2": "a", "n3": "a"}).compare(nodes(3))
	if d == nil || !slices.Equal(d.Majority, []string{"n2", "n3"}) || d.Voters != 3 || d.Theirs != stateOf("a") || d.Own != stateOf("x") {
		t.Errorf("%+v", d)
	}
}

// TestOtherFormatsAreNotCompared verifies that reports of programs with another hash format are not compared.
func TestOtherFormatsAreNotCompared(t *testing.T) {
	a := heard("a", map[string]string{"n2": "a"})
	other := saying("x")
	other.Format++
	a.record("n2", "1", other)
	a.record("n3", "1", other)
	if d := a.compare(nodes(3)); d != nil || a.agreed.index != 0 || a.differing != 0 {
		t.Errorf("%+v, agreed at %d, differing at %d", d, a.agreed.index, a.differing)
	}
}

func TestReportsAreBoundedAndRefusedIfMalformed(t *testing.T) {
	a := heard("a", nil)
	long := saying(strings.Repeat("x", 100))
	long.Points[99].Sha256 = []byte("short")
	long.Points = append(long.Points, nil)
	a.record("n2", "1", long)
	a.record("n3", "1", &wire.StateHashes{})
	a.record("stranger", "1", saying("x"))
	if n := len(a.reports["n2"].sums); n >= maxPoints {
		t.Errorf("%d points are kept", n)
	}
	a.compare(nodes(3))
	if _, kept := a.reports["stranger"]; kept {
		t.Error("a stranger's report is kept")
	}
	for range 100 {
		a.add(point{})
	}
	if len(a.own) != maxPoints || len(a.hashes().Points) != maxPoints {
		t.Errorf("%d points of its own are kept", len(a.own))
	}
}

// TestReportsOfANode verifies that a node's later report is kept even if an earlier one arrives after it, and
// that nothing is kept of a node that was replaced.
func TestReportsOfANode(t *testing.T) {
	a := heard("ab", map[string]string{"n2": "ab"})
	a.record("n2", "1", saying("x"))
	if a.compare(nodes(3)); a.agreed.index != 20 || a.differing != 0 {
		t.Errorf("agreed at %d, differing at %d", a.agreed.index, a.differing)
	}
	newer := saying("ab")
	newer.Format++
	a = heard("ab", nil)
	a.record("n2", "1", newer)
	a.record("n2", "1", saying("ab")) // from an older program on the same disk
	if a.compare(nodes(3)); a.agreed.index != 20 {
		t.Errorf("the same points in a format that is known: agreed at %d", a.agreed.index)
	}
	a = heard("ab", map[string]string{"n2": "ax"})
	a.record("n2", "2", saying("."))
	if a.compare(nodes(3)); a.differing != 0 {
		t.Errorf("differing at %d from a node that is gone", a.differing)
	}
}
