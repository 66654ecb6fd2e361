package rights

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Grants is what a policy gives to one identity. It is immutable. A nil *Grants gives everything.
type Grants struct {
	// all are the verbs on all locks, names those on single locks, prefixes those on the locks below a prefix.
	all      verbs
	names    map[string]verbs
	prefixes map[string]verbs
	cluster  verbs
	// some are the verbs on at least one lock.
	some verbs
	// starts are the names and prefixes with READ, sorted.
	starts []string
}

// Grants returns what the policy gives to an identity. Identities with the same roles share it.
func (c *Policy) Grants(identity string) *Grants {
	if c == nil {
		return nil
	}
	roles := c.RolesOf(identity)
	key := strings.Join(roles, " ")
	known, ok := c.grants.Load(key)
	if !ok {
		known, _ = c.grants.LoadOrStore(key, c.collect(roles))
	}
	return known.(*Grants)
}

func (c *Policy) collect(roles []string) *Grants {
	g := &Grants{names: map[string]verbs{}, prefixes: map[string]verbs{}}
	for _, name := range roles {
		g.add(c.roles[name])
	}
	for _, m := range []map[string]verbs{g.names, g.prefixes} {
		for at, set := range m {
			if set.has(wire.Verb_READ) {
				g.starts = append(g.starts, at)
			}
		}
	}
	slices.Sort(g.starts)
	return g
}

func (g *Grants) add(role *wire.Role) {
	for _, rule := range role.Locks {
		set := setOf(rule.Verbs...)
		g.some |= set
		switch {
		case rule.Name != "":
			g.names[rule.Name] |= set
		case rule.Prefix == All:
			g.all |= set
		default:
			g.prefixes[rule.Prefix] |= set
		}
	}
	g.cluster |= setOf(role.Cluster...)
}

// OnLock reports whether the identity may do this to the lock of that name.
func (g *Grants) OnLock(name string, v wire.Verb) bool {
	if g == nil || g.all.has(v) || g.names[name].has(v) {
		return true
	}
	return g.below(name, v)
}

// below reports whether a prefix of name gives the verb.
func (g *Grants) below(name string, v wire.Verb) bool {
	if len(g.prefixes) == 0 {
		return false
	}
	for i := range len(name) {
		if name[i] == '/' && g.prefixes[name[:i+1]].has(v) {
			return true
		}
	}
	return false
}

// OnSomeLock reports whether there is a lock to which the identity may do this.
func (g *Grants) OnSomeLock(v wire.Verb) bool { return g == nil || g.some.has(v) }

// OnSomeBelow reports whether there is a lock below a prefix to which the identity may do this.
func (g *Grants) OnSomeBelow(prefix string, v wire.Verb) bool {
	if g == nil || g.all.has(v) || prefix == All {
		return g.OnSomeLock(v)
	}
	within := func(m map[string]verbs) bool {
		for at, set := range m {
			if set.has(v) && strings.HasPrefix(at, prefix) {
				return true
			}
		}
		return false
	}
	return g.onPrefix(prefix).has(v) || within(g.prefixes) || within(g.names)
}

// OnAllLocks reports whether the identity may do this to every lock.
func (g *Grants) OnAllLocks(v wire.Verb) bool { return g == nil || g.all.has(v) }

// OnCluster reports whether the identity has a verb on the cluster.
func (g *Grants) OnCluster(v wire.Verb) bool { return g == nil || g.cluster.has(v) }

// Any reports whether the identity may do anything at all.
func (g *Grants) Any() bool { return g == nil || g.some|g.cluster != 0 }

// Operates reports whether the identity has a right of operators: OPERATE on some lock, or any verb on the cluster.
func (g *Grants) Operates() bool { return g.OnSomeLock(wire.Verb_OPERATE) || g.cluster != 0 }

// NextReadable returns the first position at or after a position in the order of names at which the identity may read
// a lock, and false if there is none. It lets a listing skip what the identity may not read.
func (g *Grants) NextReadable(position string) (string, bool) {
	if g.OnLock(position, wire.Verb_READ) {
		return position, true
	}
	at, _ := slices.BinarySearch(g.starts, position)
	if at == len(g.starts) {
		return "", false
	}
	return g.starts[at], true
}

// Covers reports whether g gives everything that other gives, and is expressed by the same or wider rules.
func (g *Grants) Covers(other *Grants) bool {
	if g == nil || other == nil {
		return g == nil || g.everything()
	}
	within := func(m map[string]verbs, has func(string) verbs) bool {
		for at, set := range m {
			if set&^(has(at)|g.all) != 0 {
				return false
			}
		}
		return true
	}
	return other.all&^g.all == 0 && other.cluster&^g.cluster == 0 &&
		within(other.prefixes, g.onPrefix) && within(other.names, func(name string) verbs { return g.names[name] | g.onPrefix(name) })
}

// onPrefix returns the verbs that prefixes of a name or a prefix give.
func (g *Grants) onPrefix(name string) (set verbs) {
	for i := range len(name) {
		if name[i] == '/' {
			set |= g.prefixes[name[:i+1]]
		}
	}
	return set
}

func (g *Grants) everything() bool { return g.all == onLocks && g.cluster == onCluster }

// Rules returns what is given as rules: all locks first, then prefixes, then names, each in ascending order; and the verbs
// on the cluster. A nil *Grants needs no rules.
func (g *Grants) Rules() (locks []*wire.LockRule, cluster []wire.Verb) {
	if g == nil {
		return nil, nil
	}
	if g.all != 0 {
		locks = append(locks, &wire.LockRule{Prefix: All, Verbs: g.all.in(LockVerbs())})
	}
	for _, prefix := range slices.Sorted(maps.Keys(g.prefixes)) {
		locks = append(locks, &wire.LockRule{Prefix: prefix, Verbs: g.prefixes[prefix].in(LockVerbs())})
	}
	for _, name := range slices.Sorted(maps.Keys(g.names)) {
		locks = append(locks, &wire.LockRule{Name: name, Verbs: g.names[name].in(LockVerbs())})
	}
	return locks, g.cluster.in(ClusterVerbs())
}

// Rule is one line of an explanation of an identity's rights.
type Rule struct {
	// Binding is the identity or the pattern of the binding, Role the role that it gives.
	Binding, Role string
	// On is the lock, the prefix, or "the cluster".
	On string
}

// Why returns the rule that gives a verb to an identity, and false if there is none. For a verb on locks, lock is the
// name. Of several rules, the first by binding and role counts.
func (c *Policy) Why(identity string, v wire.Verb, lock string) (Rule, bool) {
	bindings := []*wire.Binding{{Identity: identity, Roles: c.exact[identity]}}
	for _, b := range c.patterns {
		if covers(b, identity) {
			bindings = append(bindings, b)
		}
	}
	for _, b := range bindings {
		for _, name := range slices.Sorted(slices.Values(b.Roles)) {
			if on, ok := gives(c.roles[name], v, lock); ok {
				return Rule{b.Identity, name, on}, true
			}
		}
	}
	return Rule{}, false
}

// gives returns where a role gives a verb.
func gives(role *wire.Role, v wire.Verb, lock string) (on string, ok bool) {
	if !onLocks.has(v) {
		return "the cluster", slices.Contains(role.Cluster, v)
	}
	for _, rule := range role.Locks {
		within := rule.Prefix == All || rule.Prefix != "" && strings.HasPrefix(lock, rule.Prefix) || rule.Name != "" && rule.Name == lock
		if within && slices.Contains(rule.Verbs, v) {
			return cmp.Or(rule.Name, rule.Prefix), true
		}
	}
	return "", false
}

// Roles returns the names of all roles of the policy, sorted.
func (c *Policy) Roles() []string { return slices.Sorted(maps.Keys(c.roles)) }
