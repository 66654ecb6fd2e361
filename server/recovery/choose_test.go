package recovery_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/server/internal/retired"
	"github.com/quorumlock/quorumlock/server/recovery"
	"github.com/quorumlock/quorumlock/server/status"
)

// TestMostAdvancedIsChosen verifies that the last term counts before the length of the log, in any order.
func TestMostAdvancedIsChosen(t *testing.T) {
	long, later := began(t, "n1", "prod"), began(t, "n2", "prod")
	long.grants()
	long.grants()
	later.term = 2
	later.commits()
	a, b := long.usable(), later.usable()
	b.Retired = status.ErrRolledBack // two of three that start are a majority
	for _, all := range [][]*recovery.Survivor{{a, b}, {b, a}} {
		if best, err := recovery.Choose(all); err != nil || best != b {
			t.Errorf("%+v, %v", best, err)
		}
	}
	b.LastTerm = a.LastTerm
	if best, err := recovery.Choose([]*recovery.Survivor{b, a}); err != nil || best != a {
		t.Errorf("of one term: %+v, %v", best, err)
	}
}

// TestMajorityIsNotLost verifies that nothing is made if a majority of the voters only has to be started.
func TestMajorityIsNotLost(t *testing.T) {
	one, two := began(t, "n1", "prod").usable(), began(t, "n2", "prod").usable()
	if _, err := recovery.Choose([]*recovery.Survivor{one, two}); !errors.Is(err, recovery.ErrAlive) || !strings.Contains(err.Error(), "n1, n2") {
		t.Errorf("two of three: %v", err)
	}
	if best, err := recovery.Choose([]*recovery.Survivor{one, one}); err != nil || best != one {
		t.Errorf("one of three twice: %v", err)
	}
	d := began(t, "n2", "prod")
	if err := retired.Retire(d.Values, status.ErrRolledBack, "an old copy"); err != nil {
		t.Fatal(err)
	}
	if _, err := recovery.Choose([]*recovery.Survivor{one, d.usable()}); err != nil {
		t.Errorf("two of three, of which one does not start: %v", err)
	}
}

// TestUnfitSurvivors verifies that directories of different clusters are never compared, and that a removal counts of
// which another node knows.
func TestUnfitSurvivors(t *testing.T) {
	one, foreign := began(t, "n1", "prod").usable(), began(t, "n2", "test").usable()
	for _, all := range [][]*recovery.Survivor{{one, foreign}, {foreign, one}} {
		if _, err := recovery.Choose(all); !errors.Is(err, recovery.ErrMixed) || !strings.Contains(err.Error(), `"prod"`) || !strings.Contains(err.Error(), `"test"`) {
			t.Errorf("of two clusters: %v", err)
		}
	}
	removed := began(t, "n2", "prod")
	removed.term = 9
	removed.commits()
	gone := removed.usable()
	knower := began(t, "n1", "prod")
	self, _ := gone.State.Member("n2")
	knower.commits(drop("n2"), put(self), drop("n2"))
	if best, err := recovery.Choose([]*recovery.Survivor{gone, knower.usable()}); err != nil || best.NodeID != "n1" || !errors.Is(gone.Problem, recovery.ErrRemoved) {
		t.Errorf("%+v, %v; the removed node: %v", best, err, gone.Problem)
	}
	if _, err := recovery.Choose([]*recovery.Survivor{gone}); !errors.Is(err, recovery.ErrNoSurvivor) {
		t.Errorf("only a removed one: %v", err)
	}
}
