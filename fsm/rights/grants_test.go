package rights

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestBuiltInRoles states what each role that every policy has allows.
func TestBuiltInRoles(t *testing.T) {
	for role, want := range map[string]struct{ locks, cluster []wire.Verb }{
		"reader":   {[]wire.Verb{read}, nil},
		"user":     {[]wire.Verb{read, lock}, nil},
		"operator": {[]wire.Verb{read, operate}, []wire.Verb{wire.Verb_AUDIT, wire.Verb_BACKUP, wire.Verb_MEMBERS}},
		"admin":    {lockVerbs, clusterVerbs},
	} {
		g := compiled(t, &wire.Policy{Bindings: bind("ann", role)}).Grants("ann")
		for _, v := range lockVerbs {
			given := slices.Contains(want.locks, v)
			if g.OnLock("any/lock", v) != given || g.OnSomeLock(v) != given || g.OnAllLocks(v) != given || g.OnCluster(v) {
				t.Errorf("%s with %v: want %v", role, v, given)
			}
		}
		if operates := slices.Contains(want.locks, operate) || len(want.cluster) > 0; g.Operates() != operates {
			t.Errorf("%s operates: want %v", role, operates)
		}
		for _, v := range clusterVerbs {
			if given := slices.Contains(want.cluster, v); g.OnCluster(v) != given || g.OnLock("any/lock", v) {
				t.Errorf("%s with %v: want %v", role, v, given)
			}
		}
	}
}

// TestRules checks that the rules of an identity are in order and, as a role of their own, give the same rights.
func TestRules(t *testing.T) {
	policy := policyOf(name("jobs/nightly", lock), prefix("orders/", operate), prefix("a/", lock), prefix("orders/", read), prefix(All, read), name("a", lock))
	policy.Roles[0].Cluster = []wire.Verb{wire.Verb_POLICY, wire.Verb_AUDIT}
	g := compiled(t, policy).Grants("ann")
	locks, cluster := g.Rules()
	want := []*wire.LockRule{prefix(All, read), prefix("a/", lock), prefix("orders/", read, operate), name("a", lock), name("jobs/nightly", lock)}
	same := func(a, b *wire.LockRule) bool { return proto.Equal(a, b) }
	if !slices.EqualFunc(locks, want, same) || !slices.Equal(cluster, []wire.Verb{wire.Verb_AUDIT, wire.Verb_POLICY}) {
		t.Errorf("%v, %v", locks, cluster)
	}
	again := policyOf(locks...)
	again.Roles[0].Cluster = cluster
	if other := compiled(t, again).Grants("ann"); !other.Covers(g) || !g.Covers(other) {
		t.Errorf("%v give other rights", locks)
	}
	var none *Policy
	if locks, cluster := none.Grants("ann").Rules(); locks != nil || cluster != nil {
		t.Errorf("without a policy: %v, %v", locks, cluster)
	}
}

// TestPrefixesEndAtSegments checks what a prefix covers: only locks below it.
func TestPrefixesEndAtSegments(t *testing.T) {
	g := compiled(t, policyOf(prefix("orders/", lock), name("jobs/nightly", lock), prefix("a/b/", read))).Grants("ann")
	for lockName, want := range map[string]bool{
		"orders/1": true, "orders/1/2": true, "orders": false, "ordersx": false, "ordersx/1": false, "order/1": false,
		"my/orders/1": false, "jobs/nightly": true, "jobs": false, "jobs/nightly/1": false, "jobs/nightlyx": false, "jobs/daily": false, "a/b/c": false,
	} {
		if g.OnLock(lockName, lock) != want {
			t.Errorf("LOCK on %q: want %v", lockName, want)
		}
	}
	if !g.OnLock("a/b/c", read) || g.OnLock("a/b", read) || g.OnLock("a/bc", read) || g.OnLock("orders/1", read) {
		t.Error("READ has other places than a/b/")
	}
	if g.OnAllLocks(lock) || !g.OnSomeLock(lock) || g.OnSomeLock(operate) || !g.Any() {
		t.Error("some and all")
	}
}

// TestGrantsWithoutAPolicy checks that a cluster without a policy allows everything, and that a policy without a
// binding for an identity allows it nothing.
func TestGrantsWithoutAPolicy(t *testing.T) {
	var none *Policy
	all, nothing := none.Grants("ann"), compiled(t, &wire.Policy{}).Grants("ann")
	if all != nil || nothing == nil {
		t.Fatalf("grants %v and %v", all, nothing)
	}
	for _, v := range slices.Concat(lockVerbs, clusterVerbs) {
		if !all.OnLock("a", v) || !all.OnSomeLock(v) || !all.OnAllLocks(v) || !all.OnCluster(v) {
			t.Errorf("%v is refused without a policy", v)
		}
		if nothing.OnLock("a", v) || nothing.OnSomeLock(v) || nothing.OnAllLocks(v) || nothing.OnCluster(v) {
			t.Errorf("%v is allowed without a binding", v)
		}
	}
	if !all.Any() || nothing.Any() {
		t.Error("Any")
	}
	if next, ok := all.NextReadable("x"); !ok || next != "x" {
		t.Errorf("next after x: %q, %v", next, ok)
	}
	if _, ok := nothing.NextReadable(""); ok {
		t.Error("something is readable without a binding")
	}
	if !all.Covers(nothing) || !all.Covers(nil) || nothing.Covers(nil) || !nothing.Covers(nothing) {
		t.Error("Covers")
	}
}

// TestCovers compares pairs of rules.
func TestCovers(t *testing.T) {
	grants := func(cluster []wire.Verb, rules ...*wire.LockRule) *Grants {
		p := policyOf(rules...)
		p.Roles[0].Cluster = cluster
		return compiled(t, p).Grants("ann")
	}
	admin := compiled(t, &wire.Policy{Bindings: bind("ann", "admin")}).Grants("ann")
	for what, c := range map[string]struct {
		a, b *Grants
		want bool
	}{
		"a prefix and a name below":    {grants(nil, prefix("a/", read)), grants(nil, name("a/b", read)), true},
		"a prefix and its own name":    {grants(nil, prefix("a/", read)), grants(nil, name("a", read)), false},
		"a prefix and a longer one":    {grants(nil, prefix("a/", read)), grants(nil, prefix("a/b/", read)), true},
		"a prefix and a shorter one":   {grants(nil, prefix("a/b/", read)), grants(nil, prefix("a/", read)), false},
		"a prefix and a neighbour":     {grants(nil, prefix("a/", read)), grants(nil, prefix("ab/", read)), false},
		"all and a prefix":             {grants(nil, prefix("/", read)), grants(nil, prefix("a/", read)), true},
		"a prefix and all":             {grants(nil, prefix("a/", read)), grants(nil, prefix("/", read)), false},
		"verbs from two rules":         {grants(nil, prefix("/", read), prefix("a/", lock)), grants(nil, name("a/b", read, lock)), true},
		"another verb":                 {grants(nil, prefix("a/", read)), grants(nil, name("a/b", read, lock)), false},
		"the cluster":                  {grants(clusterVerbs[:2]), grants(clusterVerbs[:1]), true},
		"more on the cluster":          {grants(clusterVerbs[:1]), grants(clusterVerbs[:2]), false},
		"an admin and no policy":       {admin, nil, true},
		"less than all and no policy":  {grants(clusterVerbs, prefix("/", read, lock)), nil, false},
		"less of cluster, no policy":   {grants(clusterVerbs[1:], prefix("/", lockVerbs...)), nil, false},
		"a prefix and one that is not": {grants(nil, name("a/b", read)), grants(nil, prefix("a/", read)), false},
	} {
		if c.a.Covers(c.b) != c.want {
			t.Errorf("%s: want %v", what, c.want)
		}
	}
}

// TestOnSomeBelow compares rules with prefixes of locks.
func TestOnSomeBelow(t *testing.T) {
	for what, c := range map[string]struct {
		rule  *wire.LockRule
		below string
		want  bool
	}{
		"all and a prefix":             {prefix("/", lock), "a/", true},
		"a prefix and all":             {prefix("a/", lock), "/", true},
		"a name and all":               {name("b", lock), "/", true},
		"the same":                     {prefix("a/", lock), "a/", true},
		"a longer prefix":              {prefix("a/b/", lock), "a/", true},
		"a shorter prefix":             {prefix("a/", lock), "a/b/", true},
		"a neighbour":                  {prefix("ab/", lock), "a/", false},
		"a name below":                 {name("a/b", lock), "a/", true},
		"a name above":                 {name("a", lock), "a/", false},
		"a name beside":                {name("b", lock), "a/", false},
		"another verb on all":          {prefix("/", read), "/", false},
		"another verb on a prefix":     {prefix("a/", read), "a/", false},
		"another verb on a longer one": {prefix("a/b/", read), "a/", false},
		"another verb on a name":       {name("a/b", read), "a/", false},
	} {
		if got := compiled(t, policyOf(c.rule)).Grants("ann").OnSomeBelow(c.below, lock); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	if all := (*Grants)(nil); !all.OnSomeBelow("a/", lock) || !all.OnSomeBelow("/", lock) {
		t.Error("without a policy, something is not allowed")
	}
}

// TestWhy names the binding, the role and the rule. The exact binding comes before patterns, and roles are in the
// order of their names.
func TestWhy(t *testing.T) {
	p := compiled(t, &wire.Policy{
		Roles: []*wire.Role{
			{Name: "z", Locks: []*wire.LockRule{prefix("/", read)}},
			{Name: "b", Locks: []*wire.LockRule{name("x", read), prefix("a/", lock), name("a/b", lock)}},
		},
		Bindings: slices.Concat(bind("*", "operator"), bind("a*", "b"), bind("ann", "z", "b")),
	})
	for _, c := range []struct {
		identity string
		verb     wire.Verb
		lock     string
		want     Rule // empty if nothing allows it
	}{
		{"ann", read, "x", Rule{"ann", "b", "x"}},
		{"ann", read, "y", Rule{"ann", "z", "/"}},
		{"ann", lock, "a/b", Rule{"ann", "b", "a/"}},
		{"ann", lock, "a", Rule{}},
		{"alf", lock, "a/c", Rule{"a*", "b", "a/"}},
		{"ben", lock, "a/c", Rule{}},
		{"ann", lock, "", Rule{}},
		{"ben", read, "a/c", Rule{"*", "operator", "/"}},
		{"ann", wire.Verb_AUDIT, "", Rule{"*", "operator", "the cluster"}},
		{"ann", wire.Verb_POLICY, "", Rule{}},
		{"ann", wire.Verb_VERB_UNSPECIFIED, "x", Rule{}},
		{"ann", -1, "x", Rule{}},
	} {
		got, ok := p.Why(c.identity, c.verb, c.lock)
		if got != c.want || ok != (c.want != Rule{}) {
			t.Errorf("%s, %v on %q: %v, want %v", c.identity, c.verb, c.lock, got, c.want)
		}
	}
}

// TestGrantsAreShared checks that identities with the same roles share their grants, so that a million of them take
// the memory of one.
func TestGrantsAreShared(t *testing.T) {
	p := compiled(t, &wire.Policy{Bindings: slices.Concat(bind("ann", "user", "reader"), bind("*", "reader"), bind("b*", "user"))})
	if p.Grants("ann") != p.Grants("ben") || p.Grants("ann") == p.Grants("cid") {
		t.Error("grants are not shared by roles")
	}
}

// TestOnLockAllocatesNothing bounds what each command pays for its check.
func TestOnLockAllocatesNothing(t *testing.T) {
	g := large(t).Grants("team-7-42")
	if n := testing.AllocsPerRun(100, func() { g.OnLock("team-7/some/lock/of/many", lock) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
