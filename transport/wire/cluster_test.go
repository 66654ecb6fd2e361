package wire_test

import (
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestRecoveredClusterKeepsItsName verifies that a recovery changes the id, leaves the name that certificates have, and
// that the cluster before it is recognised.
func TestRecoveredClusterKeepsItsName(t *testing.T) {
	once := wire.RecoveredID("prod", "a1")
	twice, other := wire.RecoveredID(once, "b2"), wire.RecoveredID("prod", "c3")
	if once == "prod" || twice == once || other == once {
		t.Errorf("recovered as %q, then as %q, and as %q", once, twice, other)
	}
	for _, c := range []struct {
		name, id string
		want     bool
	}{{"prod", "prod", true}, {"prod", once, true}, {"prod", twice, true}, {once, twice, false}, {"pro", once, false}, {"prod", "production", false}, {"prod", "", false}} {
		if got := wire.NamesCluster(c.name, c.id); got != c.want {
			t.Errorf("%q names %q: %v", c.name, c.id, got)
		}
	}
	for _, c := range []struct {
		id, old string
		want    bool
	}{{once, "prod", true}, {other, "prod", true}, {twice, once, true}, {twice, "prod", false}, {"prod", once, false}, {once, other, false}, {other, once, false}, {once, once, false}, {once, "test", false}, {"prod", "prod", false}, {once, "", false}} {
		if got := wire.RecoveredFrom(c.id, c.old); got != c.want {
			t.Errorf("%q is recovered from %q: %v", c.id, c.old, got)
		}
	}
}
