package rights

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// ErrInvalid is returned for a policy that cannot be used. The message says what to change.
var ErrInvalid = errors.New("invalid policy")

// Bounds of a policy.
const (
	// MaxPolicyBytes bounds the encoded policy.
	MaxPolicyBytes = 256 << 10
	// MaxIdentityBytes bounds an identity or a pattern.
	MaxIdentityBytes = 256
	maxRoles         = 1_000
	maxBindings      = 10_000
	maxRoleBytes     = 64
)

// All is the prefix of all locks.
const All = "/"

// verbs is a set of verbs: bit v is set if verb v is in it.
type verbs uint32

func setOf(list ...wire.Verb) (set verbs) {
	for _, v := range list {
		set |= 1 << v
	}
	return set
}

// has reports whether a verb is in the set. A verb from outside may be any number.
func (s verbs) has(v wire.Verb) bool { return v >= 0 && s&(1<<v) != 0 }

// in returns those of a list that are in the set.
func (s verbs) in(list []wire.Verb) (present []wire.Verb) {
	for _, v := range list {
		if s.has(v) {
			present = append(present, v)
		}
	}
	return present
}

// LockVerbs returns the verbs on locks.
func LockVerbs() []wire.Verb { return []wire.Verb{wire.Verb_READ, wire.Verb_LOCK, wire.Verb_OPERATE} }

// ClusterVerbs returns the verbs on the cluster.
func ClusterVerbs() []wire.Verb {
	return []wire.Verb{wire.Verb_AUDIT, wire.Verb_BACKUP, wire.Verb_MEMBERS, wire.Verb_RESTORE, wire.Verb_POLICY}
}

var onLocks, onCluster = setOf(LockVerbs()...), setOf(ClusterVerbs()...)

// BuiltIn returns the roles that exist in every policy.
func BuiltIn() []*wire.Role {
	every := func(v ...wire.Verb) []*wire.LockRule { return []*wire.LockRule{{Prefix: All, Verbs: v}} }
	return []*wire.Role{
		{Name: "reader", Locks: every(wire.Verb_READ)},
		{Name: "user", Locks: every(wire.Verb_READ, wire.Verb_LOCK)},
		{Name: "operator", Locks: every(wire.Verb_READ, wire.Verb_OPERATE), Cluster: []wire.Verb{wire.Verb_AUDIT, wire.Verb_BACKUP, wire.Verb_MEMBERS}},
		{Name: "admin", Locks: every(LockVerbs()...), Cluster: ClusterVerbs()},
	}
}

// Policy is a compiled policy. It is immutable.
type Policy struct {
	roles map[string]*wire.Role
	// exact are the roles bound to identities, patterns those bound to patterns.
	exact    map[string][]string
	patterns []*wire.Binding
	quotas   quotas
	// grants are those of the sets of roles that were asked for, by the roles' names.
	grants sync.Map
}

// Compile checks a policy and indexes it. It returns ErrInvalid. It keeps parts of p, which must not change any more.
func Compile(p *wire.Policy) (*Policy, error) {
	if size := proto.Size(p); size > MaxPolicyBytes {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrInvalid, size, MaxPolicyBytes)
	}
	if len(p.GetRoles()) > maxRoles || len(p.GetBindings()) > maxBindings {
		return nil, fmt.Errorf("%w: at most %d roles and %d bindings are allowed", ErrInvalid, maxRoles, maxBindings)
	}
	c := &Policy{roles: map[string]*wire.Role{}, exact: map[string][]string{}}
	for _, role := range BuiltIn() {
		c.roles[role.Name] = role
	}
	for _, role := range p.GetRoles() {
		if err := c.addRole(role); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{}
	for _, binding := range p.GetBindings() {
		if seen[binding.GetIdentity()] {
			return nil, fmt.Errorf("%w: %.80q has two bindings: merge them", ErrInvalid, binding.GetIdentity())
		}
		seen[binding.GetIdentity()] = true
		if err := c.addBinding(binding); err != nil {
			return nil, err
		}
	}
	var err error
	if c.quotas, err = compileQuotas(p.GetQuotas()); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Policy) addRole(role *wire.Role) error {
	if !validRoleName(role.GetName()) {
		return fmt.Errorf("%w: role %.80q: a name has 1 to %d lower-case letters, digits and '-', and does not begin with '-'", ErrInvalid, role.GetName(), maxRoleBytes)
	}
	if c.roles[role.Name] != nil {
		return fmt.Errorf("%w: role %.80q exists already: reader, user, operator and admin are built in, other names may be used once", ErrInvalid, role.Name)
	}
	for _, rule := range role.GetLocks() {
		if err := checkRule(rule); err != nil {
			return fmt.Errorf("%w: role %.80q: %w", ErrInvalid, role.Name, err)
		}
	}
	for _, v := range role.GetCluster() {
		if !onCluster.has(v) {
			return fmt.Errorf("%w: role %.80q: %s is not a verb on the cluster: those are audit, backup, members, restore and policy", ErrInvalid, role.Name, VerbName(v))
		}
	}
	c.roles[role.Name] = role
	return nil
}

func validRoleName(name string) bool {
	return name != "" && len(name) <= maxRoleBytes && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && !strings.HasPrefix(name, "-")
}

// VerbName returns the name of a verb as policies in files, docs and errors have it: in lower case.
func VerbName(v wire.Verb) string { return strings.ToLower(v.String()) }

func checkRule(rule *wire.LockRule) error {
	switch {
	case (rule.GetPrefix() == "") == (rule.GetName() == ""):
		return errors.New("a rule has either a prefix or a name")
	case len(rule.GetVerbs()) == 0:
		return errors.New("a rule needs verbs: read, lock or operate")
	}
	for _, v := range rule.Verbs {
		if !onLocks.has(v) {
			return fmt.Errorf("%s is not a verb on locks: those are read, lock and operate", VerbName(v))
		}
	}
	if rule.Name != "" {
		return wire.ValidName(rule.Name)
	}
	return checkPrefix(rule.Prefix)
}

func checkPrefix(prefix string) error {
	if prefix == All {
		return nil
	}
	below, slash := strings.CutSuffix(prefix, "/")
	if !slash {
		return fmt.Errorf("prefix %.80q must end with '/': it covers the locks whose names begin with it; give a name for one lock", prefix)
	}
	return wire.ValidName(below)
}

func (c *Policy) addBinding(b *wire.Binding) error {
	if err := ValidIdentity(b.GetIdentity()); err != nil {
		return fmt.Errorf("%w: binding of %.80q: %w", ErrInvalid, b.GetIdentity(), err)
	}
	if len(b.GetRoles()) == 0 {
		return fmt.Errorf("%w: binding of %.80q: it has no roles", ErrInvalid, b.Identity)
	}
	for _, name := range b.Roles {
		if c.roles[name] == nil {
			return fmt.Errorf("%w: binding of %.80q: there is no role %.80q", ErrInvalid, b.Identity, name)
		}
	}
	if strings.Contains(b.Identity, "*") {
		c.patterns = append(c.patterns, b)
	} else {
		c.exact[b.Identity] = b.Roles
	}
	return nil
}

// NodePrefix begins the identity under which nodes act by themselves. No client has such an identity, and no policy
// concerns it.
const NodePrefix = "node "

// IsNode reports whether an identity is that of a node.
func IsNode(identity string) bool { return strings.HasPrefix(identity, NodePrefix) }

// ValidIdentity returns an error for a text that can be neither a client's identity nor a pattern.
func ValidIdentity(identity string) error {
	switch {
	case identity == "":
		return errors.New("the identity is empty")
	case len(identity) > MaxIdentityBytes:
		return fmt.Errorf("the identity has %d bytes, at most %d are allowed", len(identity), MaxIdentityBytes)
	case IsNode(identity):
		return fmt.Errorf("the identity %q is that of a node: no client has it, and no policy concerns it", identity)
	}
	return wire.ValidText("the identity", identity)
}

// matches reports whether an identity matches a pattern, in which '*' stands for any characters.
func matches(pattern, identity string) bool {
	parts := strings.Split(pattern, "*")
	rest, ok := strings.CutPrefix(identity, parts[0])
	if !ok {
		return false
	}
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return strings.HasSuffix(rest, last)
}

// covers reports whether a binding gives its roles to an identity. None gives any to the empty identity, which stands for a
// command that nobody sent.
func covers(b *wire.Binding, identity string) bool {
	return identity != "" && matches(b.Identity, identity)
}

// RolesOf returns the names of the roles of an identity, sorted.
func (c *Policy) RolesOf(identity string) []string {
	if c == nil {
		return nil
	}
	names := slices.Clone(c.exact[identity])
	for _, b := range c.patterns {
		if covers(b, identity) {
			names = append(names, b.Roles...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Unbinds reports whether a binding that gives roles to the identity is not in the next policy, whatever the roles.
func (c *Policy) Unbinds(next *Policy, identity string) bool {
	if c == nil {
		return false
	}
	if _, bound := c.exact[identity]; bound && !next.binds(identity) {
		return true
	}
	return slices.ContainsFunc(c.patterns, func(b *wire.Binding) bool { return covers(b, identity) && !next.binds(b.Identity) })
}

// binds reports whether a binding is that of exactly this identity or pattern.
func (c *Policy) binds(identity string) bool {
	if c == nil {
		return false
	}
	_, exact := c.exact[identity]
	return exact || slices.ContainsFunc(c.patterns, func(b *wire.Binding) bool { return b.Identity == identity })
}

// Administrators returns the identities that may change the policy because a binding names them, sorted. Patterns do not
// count, because nobody may match them.
func (c *Policy) Administrators() (names []string) {
	if c == nil {
		return nil
	}
	for identity, roles := range c.exact {
		if slices.ContainsFunc(roles, func(role string) bool { return slices.Contains(c.roles[role].Cluster, wire.Verb_POLICY) }) {
			names = append(names, identity)
		}
	}
	slices.Sort(names)
	return names
}
