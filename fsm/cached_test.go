package fsm

import (
	"fmt"
	"slices"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// caching returns a machine with cached holds: claims 5 and 6 are holds of ann, of which bob's claim 7 has recalled the
// first, and waits for a cached hold. Claim 8 is a lock-delay. max_hold is 300 ms for all.
func caching(t tester) *Machine {
	t.Helper()
	m := New(Level)
	applyOne(t, m, bootCommand(&wire.Bootstrap{ClusterId: "c", TokenFloor: 100, Settings: &wire.Settings{MaxCachedIdleMs: 2_000}, Members: []*wire.Member{{Id: "n1", Level: Level}}}))
	applyOne(t, m, &wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 1, LeaderId: "n1"}}})
	ann, bob := openSession(t, m, "ann"), openSession(t, m, "bob")
	do := func(session, seq uint64, name string, tokens uint32) *wire.Result {
		t.Helper()
		cmd := acquiringCached(name, tokens)
		cmd.SessionId, cmd.Seq = session, seq
		return applyOne(t, m, cmd).Results[0]
	}
	do(ann, 1, "c", 4)
	do(ann, 2, "d", maxCachedTokens)
	do(bob, 1, "c", 2)
	dead := do(bob, 2, "e", 3)
	force := &wire.ForceRelease{HoldId: dead.HoldId, Token: dead.Token + 2, Reason: "stuck"}
	applyOne(t, m, &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: force}})
	return m
}

var brokenCachedClaims = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"the level", func(m *Machine) { m.state.level = 1 }, "cached at level 1"},
	{"too many tokens", editClaim(5, func(c *claim) { c.vary().tokens = maxCachedTokens + 1 }), "has 16385 tokens"},
	{"no time unused", editClaim(5, func(c *claim) { c.vary().idleMs = 0 }), "is kept 0 ms unused"},
	{"unused and not cached", editClaim(5, func(c *claim) { c.vary().tokens = 0 }), "kept 1000 ms unused without being cached"},
	{"shared", editClaim(6, func(c *claim) { c.one[0].mode = wire.Mode_SHARED }), "not an exclusive hold"},
	{"a value", editClaim(6, func(c *claim) { c.vary().value = []byte("v") }), "without a value"},
	{"a token of the next one", editClaim(5, func(c *claim) { c.vary().tokens = 5 }), "two claims have token 105"},
	{"tokens to come", func(m *Machine) { m.state.token-- }, "the last one issued is"},
	{"a deadline without max_hold", editClaim(6, func(c *claim) { c.vary().maxHoldMs, c.extra().holdGeneration = 0, 1 }), "generations 1 and 0"},
	{"a recall without its deadline", editClaim(5, func(c *claim) { c.vary().holdGeneration = 0 }), "generations 0 and 0"},
	{"a recall while it waits", editClaim(7, func(c *claim) { c.vary().wanted = true }), "told without asking"},
}

var brokenCachedSessions = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"recalls", editSession(1, func(s *session) { s.recalls = 2 }), "counts 2 recalled holds: there are 1"},
	{"no recalls", editSession(1, func(s *session) { s.recalls = 0 }), "counts 0 recalled holds: there are 1"},
}

// TestRecalled verifies that the recalls of a session are found until the release, in every state that a node may have
// them in.
func TestRecalled(t *testing.T) {
	want := []string{`hold_id:5 token:101 wanted:true`}
	for name, m := range map[string]*Machine{"live": caching(t), "fork": caching(t).Fork(), "restored": restored(t, snapshotOf(t, caching(t)))} {
		if got := recalls(m, 1); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if got := slices.Concat(recalls(m, 2), recalls(m, 3)); len(got) > 0 {
			t.Errorf("%s: recalls of others: %v", name, got)
		}
		second := acquiringCached("d", 1)
		second.SessionId, second.Seq = 2, 3
		applyOne(t, m, second)
		if got := recalls(m, 1); len(got) != 2 || got[1] != `hold_id:6 token:105 wanted:true` {
			t.Errorf("%s: after another waiter: %v", name, got)
		}
		for hold, token := range map[uint64]uint64{5: 104, 6: 105} {
			applyOne(t, m, &wire.Command{SessionId: 1, Seq: hold, Op: &wire.Command_Release{Release: &wire.Release{HoldId: hold, Token: token}}})
		}
		if got := recalls(m, 1); len(got) > 0 {
			t.Errorf("%s: after the releases: %v", name, got)
		}
		if err := m.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// recalls returns the recalls of a session in short.
func recalls(m *Machine, session uint64) (all []string) {
	for _, n := range m.Recalled(session) {
		all = append(all, fmt.Sprintf("hold_id:%d token:%d wanted:%v", n.HoldId, n.Token, n.Wanted))
	}
	return all
}

// TestBootstrapNeedsTheLevelOfItsSettings verifies that settings about cached holds start a cluster at level 2, and only
// with members that understand it.
func TestBootstrapNeedsTheLevelOfItsSettings(t *testing.T) {
	for name, c := range map[string]struct {
		settings *wire.Settings
		member   uint32
		status   wire.Status_Code
		level    uint32
	}{
		"none":              {&wire.Settings{}, 1, wire.Status_OK, 1},
		"a bound":           {&wire.Settings{MaxCachedIdleMs: 100}, 2, wire.Status_OK, 2},
		"none cached":       {&wire.Settings{NoCachedHolds: true}, 2, wire.Status_OK, 2},
		"not reported yet":  {&wire.Settings{NoCachedHolds: true}, 0, wire.Status_OK, 2},
		"an earlier member": {&wire.Settings{NoCachedHolds: true}, 1, wire.Status_INVALID_ARGUMENT, 0},
	} {
		m := New(Level)
		cmd := bootCommand(&wire.Bootstrap{ClusterId: "c", Settings: c.settings, Members: []*wire.Member{{Id: "n1", Level: c.member}}})
		if r := applyOne(t, m, cmd).Results[0]; r.Status != c.status || m.FeatureLevel() != c.level {
			t.Errorf("%s: %v, level %d", name, r, m.FeatureLevel())
		}
		if got, want := LevelOf(cmd), LevelOfSettings(c.settings); got != want {
			t.Errorf("%s: the bootstrap is of level %d, its settings of %d", name, got, want)
		}
	}
}
