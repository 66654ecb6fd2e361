package rights

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Short names of verbs.
const (
	read    = wire.Verb_READ
	lock    = wire.Verb_LOCK
	operate = wire.Verb_OPERATE
)

var (
	lockVerbs    = []wire.Verb{read, lock, operate}
	clusterVerbs = []wire.Verb{wire.Verb_AUDIT, wire.Verb_BACKUP, wire.Verb_MEMBERS, wire.Verb_RESTORE, wire.Verb_POLICY}
)

// policyOf returns a policy with one role "r" of these rules, bound to ann.
func policyOf(rules ...*wire.LockRule) *wire.Policy {
	return &wire.Policy{Roles: []*wire.Role{{Name: "r", Locks: rules}}, Bindings: bind("ann", "r")}
}

func bind(identity string, roles ...string) []*wire.Binding {
	return []*wire.Binding{{Identity: identity, Roles: roles}}
}

func prefix(p string, v ...wire.Verb) *wire.LockRule { return &wire.LockRule{Prefix: p, Verbs: v} }

func name(n string, v ...wire.Verb) *wire.LockRule { return &wire.LockRule{Name: n, Verbs: v} }

func compiled(t testing.TB, p *wire.Policy) *Policy {
	t.Helper()
	c, err := Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestErrorsOfCompile checks that each fault of a policy is refused, and that the message says where it is and what is
// allowed instead.
func TestErrorsOfCompile(t *testing.T) {
	role := func(r *wire.Role) *wire.Policy { return &wire.Policy{Roles: []*wire.Role{r}} }
	binding := func(identity string, roles ...string) *wire.Policy {
		return &wire.Policy{Bindings: bind(identity, roles...)}
	}
	for what, c := range map[string]struct {
		policy *wire.Policy
		want   []string
	}{
		"a role without a name":     {role(&wire.Role{}), []string{`role ""`, "1 to 64 lower-case letters, digits and '-'"}},
		"a role that is missing":    {role(nil), []string{`role ""`, "1 to 64 lower-case letters"}},
		"an upper-case role":        {role(&wire.Role{Name: "Ops"}), []string{`role "Ops"`, "lower-case"}},
		"a role with a space":       {role(&wire.Role{Name: "my ops"}), []string{`role "my ops"`, "lower-case"}},
		"a role with a dash first":  {role(&wire.Role{Name: "-ops"}), []string{`role "-ops"`, "lower-case"}},
		"a role of a built-in name": {role(&wire.Role{Name: "admin"}), []string{`role "admin" exists already`, "reader, user, operator and admin are built in"}},
		"a role twice": {&wire.Policy{Roles: []*wire.Role{{Name: "r"}, {Name: "r"}}},
			[]string{`role "r" exists already`, "other names may be used once"}},
		"a rule without a place":    {policyOf(&wire.LockRule{Verbs: lockVerbs}), []string{`role "r"`, "a rule has either a prefix or a name"}},
		"a rule that is missing":    {policyOf(nil), []string{`role "r"`, "either a prefix or a name"}},
		"a rule with two places":    {policyOf(&wire.LockRule{Prefix: "a/", Name: "a", Verbs: lockVerbs}), []string{"either a prefix or a name"}},
		"a rule without verbs":      {policyOf(prefix("a/")), []string{"a rule needs verbs: read, lock or operate"}},
		"a rule with no verb":       {policyOf(prefix("a/", wire.Verb_VERB_UNSPECIFIED)), []string{"verb_unspecified is not a verb on locks", "read, lock and operate"}},
		"a rule with a cluster's":   {policyOf(name("a", read, wire.Verb_POLICY)), []string{"policy is not a verb on locks", "read, lock and operate"}},
		"a rule with a later verb":  {policyOf(name("a", 99)), []string{"99 is not a verb on locks"}},
		"a rule with a shift of 32": {policyOf(name("a", 32+read)), []string{"33 is not a verb on locks"}},
		"a rule with a negative":    {policyOf(name("a", -1)), []string{"-1 is not a verb on locks"}},
		"a prefix without its end":  {policyOf(prefix("orders", read)), []string{`prefix "orders" must end with '/'`, "give a name for one lock"}},
		"an empty segment":          {policyOf(prefix("a//", read)), []string{"empty segment", "no leading, trailing or double '/'"}},
		"only slashes":              {policyOf(prefix("//", read)), []string{"empty segment"}},
		"a leading slash":           {policyOf(prefix("/a/", read)), []string{"empty segment"}},
		"a dotted prefix":           {policyOf(prefix("a/../", read)), []string{`segment ".."`}},
		"a control character":       {policyOf(prefix("a\n/", read)), []string{"control character U+000A"}},
		"a name like a prefix":      {policyOf(name("a/", read)), []string{"empty segment"}},
		"a long name":               {policyOf(name(strings.Repeat("n", 513), read)), []string{"513 bytes", "at most 512"}},
		"a verb of locks":           {role(&wire.Role{Name: "r", Cluster: []wire.Verb{read}}), []string{`role "r"`, "read is not a verb on the cluster", "audit, backup, members, restore and policy"}},
		"a negative verb":           {role(&wire.Role{Name: "r", Cluster: []wire.Verb{-5}}), []string{"-5 is not a verb on the cluster"}},
		"a binding of nobody":       {binding("", "admin"), []string{`binding of ""`, "the identity is empty"}},
		"a binding that is missing": {&wire.Policy{Bindings: []*wire.Binding{nil}}, []string{"the identity is empty"}},
		"a long identity":           {binding(strings.Repeat("i", 257), "admin"), []string{"257 bytes", "at most 256"}},
		"an identity of two lines":  {binding("ann\nben", "admin"), []string{"control character U+000A"}},
		"an identity not in UTF-8":  {binding("\xff", "admin"), []string{"not valid UTF-8"}},
		"a binding without roles":   {binding("ann"), []string{`binding of "ann"`, "it has no roles"}},
		"a binding of no role":      {binding("ann", "reader", "chief"), []string{`binding of "ann"`, `there is no role "chief"`}},
		"two bindings of one":       {&wire.Policy{Bindings: append(bind("ann", "user"), bind("ann", "reader")...)}, []string{`"ann" has two bindings`, "merge them"}},
	} {
		_, err := Compile(c.policy)
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", what, err, want)
			}
		}
	}
}

// TestMessagesOfCompileAreShort puts long texts into every place that a message quotes.
func TestMessagesOfCompileAreShort(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, p := range []*wire.Policy{
		{Roles: []*wire.Role{{Name: long}}},
		policyOf(prefix(long, read)),
		policyOf(name(long, read)),
		policyOf(prefix(long+"/", read)),
		{Bindings: bind(long, "admin")},
		{Bindings: bind("ann", long)},
		{Bindings: append(bind(long, "admin"), bind(long, "admin")...)},
	} {
		if _, err := Compile(p); err == nil || len(err.Error()) > 500 {
			t.Errorf("%.600v", err)
		}
	}
}

// TestSizesOfPolicies tries the largest policy of each kind, and one more.
func TestSizesOfPolicies(t *testing.T) {
	many := func(roles, bindings int) *wire.Policy {
		p := &wire.Policy{}
		for i := range roles {
			p.Roles = append(p.Roles, &wire.Role{Name: fmt.Sprint("r", i)})
		}
		for i := range bindings {
			p.Bindings = append(p.Bindings, &wire.Binding{Identity: fmt.Sprint("i", i), Roles: []string{"user"}})
		}
		return p
	}
	sized := func(size int) *wire.Policy {
		p := policyOf()
		for i := 0; proto.Size(p) < size-600; i++ {
			p.Roles[0].Locks = append(p.Roles[0].Locks, name(fmt.Sprintf("%0400d", i), read))
		}
		last := name("n", read)
		p.Roles[0].Locks = append(p.Roles[0].Locks, last)
		last.Name = strings.Repeat("n", size-proto.Size(p)-1) // its length takes a byte more from 128 on
		for proto.Size(p) < size {
			last.Name += "n"
		}
		if got := proto.Size(p); got != size {
			t.Fatalf("%d bytes, not %d", got, size)
		}
		return p
	}
	for what, c := range map[string]struct {
		policy *wire.Policy
		want   string // "" if the policy is accepted
	}{
		"all roles":         {many(1_000, 0), ""},
		"a role more":       {many(1_001, 0), "at most 1000 roles and 10000 bindings"},
		"all bindings":      {many(0, 10_000), ""},
		"a binding more":    {many(0, 10_001), "at most 1000 roles and 10000 bindings"},
		"all bytes":         {sized(256 << 10), ""},
		"a byte more":       {sized(256<<10 + 1), "it has 262145 bytes, at most 262144 are allowed"},
		"the longest role":  {&wire.Policy{Roles: []*wire.Role{{Name: strings.Repeat("r", 64)}}}, ""},
		"a longer role":     {&wire.Policy{Roles: []*wire.Role{{Name: strings.Repeat("r", 65)}}}, "1 to 64"},
		"the longest name":  {&wire.Policy{Bindings: bind(strings.Repeat("i", 256), "user")}, ""},
		"the longest lock":  {policyOf(name(strings.Repeat("n", 512), read)), ""},
		"the longest below": {policyOf(prefix(strings.Repeat("n", 512)+"/", read)), ""},
		"a longer below":    {policyOf(prefix(strings.Repeat("n", 513)+"/", read)), "513 bytes"},
		"nothing":           {&wire.Policy{}, ""},
		"no policy":         {nil, ""},
	} {
		_, err := Compile(c.policy)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

func TestPatterns(t *testing.T) {
	for pattern, c := range map[string]struct{ yes, no string }{
		"*":           {"a cn:a anonymous", ""},
		"**":          {"a ab", ""},
		"cn:*":        {"cn: cn:app cn:a:b", "cn app xcn:a"},
		"*@corp":      {"ann@corp @corp a@b@corp", "ann@corp2 ann@cor"},
		"a*a":         {"aa aba aXa", "a ab ba"},
		"a*b*c":       {"abc axbxc abbc acbc", "ac acb abca xabc"},
		"ab*b*":       {"abb abab abxb", "ab aab abx"},
		"*ab*ab*":     {"abab xabyabz ababab", "ab aab aba"},
		"*a*":         {"a ba ab", "b"},
		"spiffe://*/": {"spiffe://corp/ spiffe:///", "spiffe:// spiffe:/x/"},
	} {
		p := compiled(t, &wire.Policy{Bindings: bind(pattern, "user")})
		for _, identity := range strings.Fields(c.yes) {
			if got := p.RolesOf(identity); !slices.Equal(got, []string{"user"}) {
				t.Errorf("%q does not match %q", identity, pattern)
			}
		}
		for _, identity := range strings.Fields(c.no) {
			if got := p.RolesOf(identity); len(got) > 0 {
				t.Errorf("%q matches %q", identity, pattern)
			}
		}
	}
}

// TestRolesOf collects roles from the exact binding and from every pattern, once each. An identity loses a binding only if
// it had one.
func TestRolesOf(t *testing.T) {
	p := compiled(t, &wire.Policy{
		Roles:    []*wire.Role{{Name: "r"}, {Name: "a"}},
		Bindings: slices.Concat(bind("ann", "r", "user"), bind("a*", "user", "reader"), bind("*", "a"), bind("ben", "admin")),
	})
	for identity, want := range map[string]string{"ann": "[a r reader user]", "alf": "[a reader user]", "ben": "[a admin]", "cid": "[a]", "a*": "[a reader user]", "": "[]"} {
		if got := fmt.Sprint(p.RolesOf(identity)); got != want {
			t.Errorf("%q has %s, want %s", identity, got, want)
		}
		if got := p.Unbinds(nil, identity); got != (want != "[]") {
			t.Errorf("%q loses a binding: %v", identity, got)
		}
	}
	if got := fmt.Sprint(p.Roles()); got != "[a admin operator r reader user]" {
		t.Errorf("roles %s", got)
	}
	if (*Policy)(nil).RolesOf("ann") != nil {
		t.Error("roles without a policy")
	}
}

// TestAdministrators counts identities that are bound by their exact name to a role with POLICY.
func TestAdministrators(t *testing.T) {
	keeping := &wire.Role{Name: "keeping", Cluster: []wire.Verb{wire.Verb_AUDIT, wire.Verb_POLICY}}
	auditing := &wire.Role{Name: "auditing", Cluster: []wire.Verb{wire.Verb_AUDIT, wire.Verb_RESTORE}}
	p := compiled(t, &wire.Policy{
		Roles: []*wire.Role{keeping, auditing},
		Bindings: slices.Concat(bind("zoe", "admin"), bind("ann", "reader", "keeping"), bind("ben", "auditing", "operator"),
			bind("c*", "admin"), bind("*", "keeping")),
	})
	if got := fmt.Sprint(p.Administrators()); got != "[ann zoe]" {
		t.Errorf("administrators %s", got)
	}
	if got := (*Policy)(nil).Administrators(); got != nil {
		t.Errorf("administrators without a policy: %s", got)
	}
}
