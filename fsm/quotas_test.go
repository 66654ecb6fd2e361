package fsm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// withQuotas returns a cluster in which everybody may acquire and the policy has these quotas.
func withQuotas(t tester, quotas ...*wire.Quota) *Machine {
	t.Helper()
	m := bootstrapped(t)
	policy := bindings("*", "user")
	policy.Quotas = quotas
	setPolicy(t, m, policy)
	return m
}

func acquireOf(session, seq uint64, names ...string) *wire.Command {
	op := &wire.Acquire{WaitForever: true}
	for _, name := range names {
		op.Locks = append(op.Locks, &wire.LockRequest{Name: name})
	}
	return &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_Acquire{Acquire: op}}
}

func leaseOf(identity string, names ...string) *wire.Command {
	op := &wire.OpenLease{SecretHash: secretHash("lease"), Acquire: acquireOf(0, 0, names...).GetAcquire()}
	return asCaller(identity, &wire.Command{Op: &wire.Command_OpenLease{OpenLease: op}})
}

// TestQuotasBeforeTheLog asks for the refusals of commands before they are logged, and applies them: both must agree.
func TestQuotasBeforeTheLog(t *testing.T) {
	m := withQuotas(t, &wire.Quota{Identity: "team-*", Sessions: 2, Claims: 3}, &wire.Quota{Identity: "small", Bytes: 2_500},
		&wire.Quota{Prefix: "jobs/", Claims: 2})
	a, b, small, free := openAs(t, m, "a", "team-a"), openAs(t, m, "b", "team-b"), openAs(t, m, "s", "small"), openAs(t, m, "f", "free")
	openAs(t, m, "a2", "team-a")
	applyOne(t, m, acquireOf(a, 1, "x", "y"))
	opening := func(identity string) *wire.Command {
		return asCaller(identity, &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: secretHash("another")}}})
	}
	for _, c := range []struct {
		what string
		cmd  *wire.Command
		want string // empty if no quota refuses it
	}{
		{"a third session", opening("team-a"), `quota sessions of "team-a": 2 of 2 used, this would take 1 more`},
		{"a third session for a lease", leaseOf("team-a", "z"), `quota sessions of "team-a": 2 of 2`},
		{"two names more", acquireOf(a, 2, "z", "u"), `quota claims of "team-a": 2 of 3 used, this would take 2 more`},
		{"one name more", acquireOf(a, 2, "z"), ""},
		{"a hold that it has", acquireOf(a, 2, "z", "x"), ""},
		{"a lock that another one holds", acquireOf(b, 1, "x", "y"), ""},
		{"four names of a lease", leaseOf("team-c", "p", "q", "r", "s"), `quota claims of "team-c": 0 of 3 used, this would take 4 more`},
		{"three names below", acquireOf(free, 1, "jobs/1", "jobs/2", "jobs/3"), `quota claims below "jobs/": 0 of 2 used, this would take 3 more`},
		{"two names below", acquireOf(free, 1, "jobs/1", "jobs/2", "jobs", "jobsx"), ""},
		{"a lease below", leaseOf("free", "jobs/1", "jobs/2", "jobs/3"), `quota claims below "jobs/"`},
		{"the bytes of many names", acquireOf(small, 1, strings.Repeat("n", 300)), `quota bytes of "small": `},
		{"a session without a quota", opening("free"), ""},
	} {
		got := m.Exhausted(c.cmd, 0)
		if (got == nil) != (c.want == "") || !strings.HasPrefix(got.GetMessage(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, got, c.want)
		}
		fork := restored(t, snapshotOf(t, m))
		applied := applyOne(t, fork, c.cmd).Results[0]
		if exhausted := applied.Status == wire.Status_RESOURCE_EXHAUSTED; exhausted != (c.want != "") {
			t.Errorf("%s is applied: %v, want %q", c.what, applied, c.want)
		}
	}
}

// TestNearQuota reports identities that use 80 % of one of their quotas.
func TestNearQuota(t *testing.T) {
	m := withQuotas(t, &wire.Quota{Identity: "s", Sessions: 5}, &wire.Quota{Identity: "c", Claims: 5, Sessions: 100},
		&wire.Quota{Identity: "b", Bytes: 4_000}, &wire.Quota{Identity: "w", Watches: 1})
	near := func(identity string, want bool) {
		t.Helper()
		if got := m.NearQuota(identity); got != want {
			used, quota := m.QuotaOf(identity)
			t.Errorf("%q uses %+v of %v: %v", identity, used, quota, got)
		}
	}
	near("s", false)
	for i := range 4 {
		near("s", false)
		openAs(t, m, fmt.Sprint("s", i), "s")
	}
	near("s", true) // 4 of 5
	c := openAs(t, m, "c", "c")
	applyOne(t, m, acquireOf(c, 1, "c1", "c2", "c3"))
	near("c", false)
	applyOne(t, m, acquireOf(c, 2, "c4"))
	near("c", true)
	b := openAs(t, m, "b", "b")
	near("b", false)
	applyOne(t, m, acquireOf(b, 1, strings.Repeat("n", 300)))
	near("b", true)
	openAs(t, m, "w", "w") // its quota has none of these limits
	near("w", false)
	openAs(t, m, "o", "other")
	near("other", false)
}

// TestEachAccount lists the identities with sessions from a name on, which need not exist.
func TestEachAccount(t *testing.T) {
	m := withQuotas(t, &wire.Quota{Identity: "b", Claims: 5})
	for _, identity := range []string{"a", "b", "c"} {
		openAs(t, m, identity, identity)
	}
	list := func(after string, most int) (all []string) {
		m.EachAccount(after, func(identity string, used Used, quota *wire.Quota) bool {
			all = append(all, fmt.Sprint(identity, " ", used.Sessions, " ", quota.GetClaims()))
			return len(all) < most
		})
		return all
	}
	for after, want := range map[string][]string{"": {"a 1 0", "b 1 5", "c 1 0"}, "a": {"b 1 5", "c 1 0"}, "aa": {"b 1 5", "c 1 0"}, "c": nil} {
		if got := list(after, 9); !slices.Equal(got, want) {
			t.Errorf("after %q: %q", after, got)
		}
	}
	if got := list("a", 1); !slices.Equal(got, []string{"b 1 5"}) {
		t.Errorf("one after a: %q", got)
	}
	m = bootstrapped(t)
	openSession(t, m, "nobody's")
	if got := list("", 9); !slices.Equal(got, []string{" 1 0"}) {
		t.Errorf("with a session of nobody: %q", got)
	}
}

// guardedByQuotas returns a cluster with a quota of an identity and one of a prefix, both in use.
func guardedByQuotas(t tester) *Machine {
	m := withQuotas(t, &wire.Quota{Identity: "ann", Claims: 5}, &wire.Quota{Prefix: "jobs/", Claims: 5})
	applyOne(t, m, acquireOf(openAs(t, m, "a", "ann"), 1, "jobs/1", "x"))
	return m
}

var brokenQuotas = []breakage{
	{"nothing", func(*Machine) {}, ""},
	{"a claim not counted", editAccount("ann", func(a *account) { a.used.Claims = 1 }), `identity "ann" has {Sessions:1 Claims:2 `},
	{"another quota", editAccount("ann", func(a *account) { a.quota = &wire.Quota{} }), `identity "ann" has other rights`},
	{"a quota of an older policy", editAccount("ann", func(a *account) { a.known, a.quota = 1, nil }), ""},
	{"a claim below not counted", func(m *Machine) { damage(&m.belows, "jobs/", func(b *below) { b.claims = 0 }) }, `1 claims are below "jobs/", 0 are counted`},
	{"a prefix without a count", func(m *Machine) { m.belows.delete("jobs/") }, "not every quota of a prefix has a count"},
	{"a count without a prefix", func(m *Machine) { m.belows.put(&below{prefix: "x/"}) }, "not every quota of a prefix has a count"},
}

// TestQuotaKeepsAnEarlierRefusal verifies that what the budget of a session refuses is not remembered, although the
// quota would allow it: an upgrade is checked against both.
func TestQuotaKeepsAnEarlierRefusal(t *testing.T) {
	m := guardedByQuotas(t)
	s, _ := m.sessions.get(1)
	m.outOfBudget = true
	if refusal := m.claimsOverQuota(s, []*wire.LockRequest{{Name: "y"}}, 0); refusal != nil || !m.outOfBudget {
		t.Errorf("refused with %v, remembered: %v", refusal, !m.outOfBudget)
	}
	if refusal := m.bytesOverQuota(s, 1); refusal != nil || !m.outOfBudget {
		t.Errorf("bytes refused with %v, remembered: %v", refusal, !m.outOfBudget)
	}
	m.outOfBudget = false
	if refusal := m.claimsOverQuota(s, nil, 0); refusal != nil || m.outOfBudget {
		t.Errorf("refused with %v, not remembered: %v", refusal, m.outOfBudget)
	}
}
