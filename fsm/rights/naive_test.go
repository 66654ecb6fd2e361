package rights

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// naive answers questions about a policy by trying every binding and every rule. It shares nothing with the package.
type naive struct {
	policy *wire.Policy
	// Answers that were given before.
	roles map[string][]*wire.Role
	locks map[onLock]bool
}

type onLock struct {
	identity, lock string
	verb           wire.Verb
}

func newNaive(p *wire.Policy) *naive {
	return &naive{p, map[string][]*wire.Role{}, map[onLock]bool{}}
}

func (n *naive) rolesOf(identity string) []*wire.Role {
	roles, ok := n.roles[identity]
	if !ok {
		roles = n.findRoles(identity)
		n.roles[identity] = roles
	}
	return roles
}

// findRoles returns the roles of an identity, with the built-in ones written out.
func (n *naive) findRoles(identity string) (roles []*wire.Role) {
	all := []*wire.LockRule{{Prefix: "/", Verbs: []wire.Verb{1}}, {Prefix: "/", Verbs: []wire.Verb{1, 2}}, {Prefix: "/", Verbs: []wire.Verb{1, 3}}, {Prefix: "/", Verbs: []wire.Verb{1, 2, 3}}}
	known := append([]*wire.Role{
		{Name: "reader", Locks: all[:1]},
		{Name: "user", Locks: all[1:2]},
		{Name: "operator", Locks: all[2:3], Cluster: []wire.Verb{8, 9, 10}},
		{Name: "admin", Locks: all[3:], Cluster: []wire.Verb{8, 9, 10, 11, 12}},
	}, n.policy.Roles...)
	for _, b := range n.policy.Bindings {
		if identity == "" || !patternOf(b.Identity).MatchString(identity) {
			continue
		}
		for _, role := range known {
			if slices.Contains(b.Roles, role.Name) && !slices.Contains(roles, role) {
				roles = append(roles, role)
			}
		}
	}
	return roles
}

var patterns = map[string]*regexp.Regexp{}

// patternOf returns the regular expression for an identity or a pattern.
func patternOf(identity string) *regexp.Regexp {
	known := patterns[identity]
	if known == nil {
		known = regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(identity), `\*`, `(?s:.*)`) + "$")
		patterns[identity] = known
	}
	return known
}

// applies reports whether a rule is about a lock, segment by segment.
func applies(rule *wire.LockRule, lock string) bool {
	if rule.Name != "" {
		return rule.Name == lock
	}
	segments, of := strings.Split(strings.Trim(rule.Prefix, "/"), "/"), strings.Split(lock, "/")
	if rule.Prefix == "/" {
		return true
	}
	return len(of) > len(segments) && slices.Equal(segments, of[:len(segments)])
}

func (n *naive) onLock(identity, lock string, v wire.Verb) bool {
	key := onLock{identity, lock, v}
	allowed, ok := n.locks[key]
	if !ok {
		allowed = slices.ContainsFunc(n.rules(identity, v), func(rule *wire.LockRule) bool { return applies(rule, lock) })
		n.locks[key] = allowed
	}
	return allowed
}

// rules returns the rules that give a verb on locks to an identity.
func (n *naive) rules(identity string, v wire.Verb) (rules []*wire.LockRule) {
	for _, role := range n.rolesOf(identity) {
		for _, rule := range role.Locks {
			if slices.Contains(rule.Verbs, v) {
				rules = append(rules, rule)
			}
		}
	}
	return rules
}

func (n *naive) onCluster(identity string, v wire.Verb) bool {
	return slices.ContainsFunc(n.rolesOf(identity), func(role *wire.Role) bool { return slices.Contains(role.Cluster, v) })
}

// covers reports whether each rule of b has a rule of a that is as wide.
func (n *naive) covers(a, b string) bool {
	for _, v := range lockVerbs {
		for _, narrow := range n.rules(b, v) {
			if !slices.ContainsFunc(n.rules(a, v), func(wide *wire.LockRule) bool { return asWide(wide, narrow) }) {
				return false
			}
		}
	}
	return !slices.ContainsFunc(clusterVerbs, func(v wire.Verb) bool { return n.onCluster(b, v) && !n.onCluster(a, v) })
}

func asWide(wide, narrow *wire.LockRule) bool {
	switch {
	case wide.Prefix == "/":
		return true
	case narrow.Name != "":
		return applies(wide, narrow.Name)
	case narrow.Prefix == "/":
		return false
	}
	return wide.Name == "" && applies(wide, narrow.Prefix+"any")
}

// The names and identities of random policies. '!' comes before '/' in the order of names, and '0' after it.
var (
	alphabet   = []string{"a", "a!", "a0", "b"}
	names      = namesOf(alphabet, 3)
	identities = []string{"", "a", "b", "ab", "ba", "aab", "cn:a", "a\nb"}
)

// namesOf returns all lock names of at most so many segments, sorted.
func namesOf(segments []string, depth int) []string {
	all := slices.Clone(segments)
	if depth > 1 {
		for _, below := range namesOf(segments, depth-1) {
			for _, s := range segments {
				all = append(all, s+"/"+below)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// randomPolicy returns a policy that Compile mostly accepts.
func randomPolicy(r *rand.Rand) *wire.Policy {
	pick := func(from []string) string { return from[r.IntN(len(from))] }
	p := &wire.Policy{}
	roles := []string{"reader", "user", "operator", "admin"}[:r.IntN(5)]
	for i := range r.IntN(4) {
		role := &wire.Role{Name: fmt.Sprint("r", i)}
		for range r.IntN(4) {
			rule := &wire.LockRule{Verbs: lockVerbs[r.IntN(3):]}
			switch r.IntN(10) {
			case 0:
				rule.Prefix = "/"
			case 1, 2, 3:
				rule.Name = pick(names)
			default:
				rule.Prefix = pick(names) + "/"
			}
			if r.IntN(3) == 0 {
				rule.Verbs = rule.Verbs[:1]
			}
			role.Locks = append(role.Locks, rule)
		}
		for _, v := range clusterVerbs {
			if r.IntN(6) == 0 {
				role.Cluster = append(role.Cluster, v)
			}
		}
		p.Roles, roles = append(p.Roles, role), append(roles, role.Name, role.Name)
	}
	for range r.IntN(5) {
		identity := ""
		for range 1 + r.IntN(4) {
			identity += pick([]string{"a", "b", "*"})
		}
		b := &wire.Binding{Identity: identity}
		for range 1 + r.IntN(2) {
			if len(roles) > 0 {
				b.Roles = append(b.Roles, pick(roles))
			}
		}
		p.Bindings = append(p.Bindings, b)
	}
	return p
}

// TestAgainstNaive compares random policies with the naive evaluator: every identity, lock and verb.
func TestAgainstNaive(t *testing.T) {
	policies := 2_000
	switch {
	case raced:
		policies = 100
	case os.Getenv("QUORUMLOCK_CHECK") == "1":
		policies = 20_000
	}
	r, seen := rand.New(rand.NewPCG(1, 2)), map[string]int{}
	for range policies {
		p := randomPolicy(r)
		c, err := Compile(p)
		if err != nil {
			seen["refused"]++
			continue
		}
		seen["accepted"]++
		n := newNaive(p)
		for _, identity := range identities {
			compareLocks(t, c, n, identity, seen)
			compareCluster(t, c, n, identity, seen)
			walkReadable(t, c.Grants(identity), n, identity, seen)
			for _, other := range identities {
				compareCovers(t, c, n, identity, other, seen)
			}
		}
		if t.Failed() {
			t.Fatalf("policy %v", p)
		}
	}
	t.Log(seen)
	for _, what := range []string{"accepted", "allowed", "denied", "allowed on the cluster", "denied on the cluster", "readable", "skipped", "covers", "covers not"} {
		if seen[what] < policies/4 {
			t.Errorf("%s only %d times in %d policies", what, seen[what], policies)
		}
	}
}

func compareLocks(t *testing.T, c *Policy, n *naive, identity string, seen map[string]int) {
	t.Helper()
	g := c.Grants(identity)
	for _, v := range lockVerbs {
		for _, lockName := range names {
			want := n.onLock(identity, lockName, v)
			rule, why := c.Why(identity, v, lockName)
			if g.OnLock(lockName, v) != want || why != want || why && !n.justifies(rule, identity, v, lockName) {
				t.Errorf("%q, %v on %q: %v, because %v; want %v", identity, v, lockName, g.OnLock(lockName, v), rule, want)
			}
			if want {
				seen["allowed"]++
			} else {
				seen["denied"]++
			}
		}
		rules := n.rules(identity, v)
		all := slices.ContainsFunc(rules, func(rule *wire.LockRule) bool { return rule.Prefix == "/" })
		if g.OnAllLocks(v) != all || g.OnSomeLock(v) != (len(rules) > 0) {
			t.Errorf("%q, %v: all %v, some %v; want %v, %d rules", identity, v, g.OnAllLocks(v), g.OnSomeLock(v), all, len(rules))
		}
	}
}

// justifies reports whether an explanation names a rule that exists and gives the verb.
func (n *naive) justifies(why Rule, identity string, v wire.Verb, lockName string) bool {
	alone := newNaive(&wire.Policy{Roles: n.policy.Roles, Bindings: bind(why.Binding, why.Role)})
	bound := slices.ContainsFunc(n.policy.Bindings, func(b *wire.Binding) bool {
		return b.Identity == why.Binding && slices.Contains(b.Roles, why.Role)
	})
	return bound && slices.ContainsFunc(alone.rules(identity, v), func(rule *wire.LockRule) bool {
		return rule.Name+rule.Prefix == why.On && applies(rule, lockName)
	})
}

func compareCluster(t *testing.T, c *Policy, n *naive, identity string, seen map[string]int) {
	t.Helper()
	g, any := c.Grants(identity), false
	for _, v := range clusterVerbs {
		want := n.onCluster(identity, v)
		rule, why := c.Why(identity, v, "a")
		if g.OnCluster(v) != want || why != want || why && rule.On != "the cluster" {
			t.Errorf("%q, %v: %v, because %v; want %v", identity, v, g.OnCluster(v), rule, want)
		}
		if any = any || want; want {
			seen["allowed on the cluster"]++
		} else {
			seen["denied on the cluster"]++
		}
	}
	for _, v := range lockVerbs {
		any = any || len(n.rules(identity, v)) > 0
	}
	if g.Any() != any {
		t.Errorf("%q: any right: %v, want %v", identity, g.Any(), any)
	}
	var roles []string
	for _, role := range n.rolesOf(identity) {
		roles = append(roles, role.Name)
	}
	if slices.Sort(roles); !slices.Equal(c.RolesOf(identity), roles) {
		t.Errorf("%q has the roles %v, want %v", identity, c.RolesOf(identity), roles)
	}
	keeps := slices.ContainsFunc(n.policy.Bindings, func(b *wire.Binding) bool {
		return b.Identity == identity && newNaive(&wire.Policy{Roles: n.policy.Roles, Bindings: []*wire.Binding{b}}).onCluster(identity, wire.Verb_POLICY)
	})
	if slices.Contains(c.Administrators(), identity) != keeps {
		t.Errorf("administrators %v, want %q: %v", c.Administrators(), identity, keeps)
	}
}

// walkReadable checks NextReadable at every position, and a listing that skips with it.
func walkReadable(t *testing.T, g *Grants, n *naive, identity string, seen map[string]int) {
	t.Helper()
	var readable []string
	for _, lockName := range names {
		if n.onLock(identity, lockName, read) {
			readable = append(readable, lockName)
		}
	}
	positions := []string{"", "~"}
	for _, lockName := range names {
		positions = append(positions, lockName, lockName+"/", lockName+"\x00")
	}
	for _, position := range positions {
		next, ok := g.NextReadable(position)
		at, _ := slices.BinarySearch(readable, position)
		again, _ := g.NextReadable(next)
		switch {
		case at < len(readable) && (!ok || next > readable[at]):
			t.Errorf("%q after %q: %q, %v skips %q", identity, position, next, ok, readable[at])
		case ok && (next < position || again != next):
			t.Errorf("%q after %q: %q, and then %q", identity, position, next, again)
		case ok && next > position:
			seen["skipped"]++
		}
	}
	var visited []string
	steps := 0
	for position, ok := g.NextReadable(""); ok; position, ok = g.NextReadable(position) {
		at, _ := slices.BinarySearch(names, position)
		if at == len(names) {
			break
		}
		if steps++; steps > 2*len(names) {
			t.Fatalf("%q: the walk does not end", identity)
		}
		if next, ok := g.NextReadable(names[at]); !ok || next != names[at] {
			position = names[at] // not readable
			continue
		}
		visited, position = append(visited, names[at]), names[at]+"\x00"
	}
	if !slices.Equal(visited, readable) {
		t.Errorf("%q: the walk visits %q, readable are %q", identity, visited, readable)
	}
	seen["readable"] += len(visited)
}

// compareCovers checks what Covers promises, and that it compares rule by rule.
func compareCovers(t *testing.T, c *Policy, n *naive, a, b string, seen map[string]int) {
	t.Helper()
	got := c.Grants(a).Covers(c.Grants(b))
	if got != n.covers(a, b) {
		t.Errorf("%q covers %q: %v", a, b, got)
	}
	if !got {
		seen["covers not"]++
		return
	}
	seen["covers"]++
	for _, v := range lockVerbs {
		for _, lockName := range names {
			if n.onLock(b, lockName, v) && !n.onLock(a, lockName, v) {
				t.Errorf("%q covers %q but has no %v on %q", a, b, v, lockName)
			}
		}
	}
	for _, v := range clusterVerbs {
		if n.onCluster(b, v) && !n.onCluster(a, v) {
			t.Errorf("%q covers %q but has no %v", a, b, v)
		}
	}
}
