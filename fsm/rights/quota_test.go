package rights

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func bounded(quotas ...*wire.Quota) *wire.Policy { return &wire.Policy{Quotas: quotas} }

// TestErrorsOfQuotas checks that each fault of a quota is refused, and that the message says where it is and what is
// allowed instead.
func TestErrorsOfQuotas(t *testing.T) {
	for what, c := range map[string]struct {
		policy *wire.Policy
		want   []string
	}{
		"of nobody":          {bounded(&wire.Quota{Claims: 1}), []string{`quota of ""`, "a quota has either an identity or a prefix"}},
		"that is missing":    {bounded(nil), []string{`quota of ""`, "either an identity or a prefix"}},
		"of two":             {bounded(&wire.Quota{Identity: "ann", Prefix: "a/", Claims: 1}), []string{`quota of "ann"`, "either an identity or a prefix"}},
		"without a limit":    {bounded(&wire.Quota{Identity: "ann"}), []string{`quota of "ann"`, "it has no limit", "remove the quota"}},
		"of no prefix limit": {bounded(&wire.Quota{Prefix: "a/"}), []string{`quota of "a/"`, "it has no limit"}},
		"of a long identity": {bounded(&wire.Quota{Identity: strings.Repeat("i", 257), Claims: 1}), []string{"257 bytes", "at most 256"}},
		"of two lines":       {bounded(&wire.Quota{Identity: "a\nb", Claims: 1}), []string{"control character U+000A"}},
		"of a name":          {bounded(&wire.Quota{Prefix: "jobs", Claims: 1}), []string{`quota of "jobs"`, `prefix "jobs" must end with '/'`}},
		"of an empty part":   {bounded(&wire.Quota{Prefix: "jobs//", Claims: 1}), []string{"empty segment"}},
		"sessions below":     {bounded(&wire.Quota{Prefix: "a/", Claims: 1, Sessions: 1}), []string{`quota of "a/"`, "the quota of a prefix can bound only claims"}},
		"bytes below":        {bounded(&wire.Quota{Prefix: "a/", Claims: 1, Bytes: 1}), []string{"only claims"}},
		"watches below":      {bounded(&wire.Quota{Prefix: "a/", Claims: 1, Watches: 1}), []string{"only claims"}},
		"connections below":  {bounded(&wire.Quota{Prefix: "a/", Claims: 1, Connections: 1}), []string{"only claims"}},
		"requests below":     {bounded(&wire.Quota{Prefix: "a/", Claims: 1, RequestsPerSecond: 1}), []string{"only claims"}},
		"twice":              {bounded(&wire.Quota{Identity: "ann", Claims: 1}, &wire.Quota{Identity: "ann", Bytes: 1}), []string{`"ann" has two quotas`, "merge them"}},
		"a pattern twice":    {bounded(&wire.Quota{Identity: "a*", Claims: 1}, &wire.Quota{Identity: "a*", Claims: 2}), []string{`"a*" has two quotas`}},
		"a prefix twice":     {bounded(&wire.Quota{Prefix: "a/", Claims: 1}, &wire.Quota{Prefix: "a/", Claims: 2}), []string{`"a/" has two quotas`}},
		"the second":         {bounded(&wire.Quota{Identity: "ann", Claims: 1}, &wire.Quota{Identity: "ben"}), []string{`quota of "ben"`}},
	} {
		_, err := Compile(c.policy)
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("a quota %s: %v", what, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("a quota %s: %q does not say %q", what, err, want)
			}
		}
	}
}

// TestLimitsOfQuotas checks that each limit alone makes a quota, that of a prefix only claims, and how many there may be.
func TestLimitsOfQuotas(t *testing.T) {
	for _, q := range []*wire.Quota{
		{Sessions: 1}, {Claims: 1}, {Bytes: 1}, {Watches: 1}, {Connections: 1}, {RequestsPerSecond: 1}, {Claims: 1<<64 - 1},
	} {
		q.Identity = "ann"
		if got := compiled(t, bounded(q)).Quota("ann"); got != q {
			t.Errorf("%v has the quota %v", q, got)
		}
	}
	for _, below := range []string{"/", "a/", "a/b/"} {
		compiled(t, bounded(&wire.Quota{Prefix: below, Claims: 1}))
	}
	compiled(t, bounded(&wire.Quota{Identity: "a/", Claims: 1}, &wire.Quota{Prefix: "a/", Claims: 1})) // not the same
	many := bounded()
	for i := range 10_000 {
		many.Quotas = append(many.Quotas, &wire.Quota{Identity: fmt.Sprint("i", i), Claims: 1})
	}
	compiled(t, many)
	many.Quotas = append(many.Quotas, &wire.Quota{Identity: "i", Claims: 1})
	if _, err := Compile(many); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "10001 quotas, at most 10000 are allowed") {
		t.Errorf("one more: %v", err)
	}
}

// TestMessagesOfQuotasAreShort puts long texts into every place that a message quotes.
func TestMessagesOfQuotasAreShort(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, p := range []*wire.Policy{
		bounded(&wire.Quota{Identity: long, Claims: 1}),
		bounded(&wire.Quota{Identity: long, Prefix: long}),
		bounded(&wire.Quota{Prefix: long, Claims: 1}),
		bounded(&wire.Quota{Prefix: long + "/", Claims: 1}),
	} {
		if _, err := Compile(p); err == nil || len(err.Error()) > 500 {
			t.Errorf("%.600v", err)
		}
	}
}

// TestQuotaOfAnIdentity checks which of several quotas applies: the exact one, then the longest pattern, and of two of
// the same length the first.
func TestQuotaOfAnIdentity(t *testing.T) {
	of := func(identity string) *wire.Quota { return &wire.Quota{Identity: identity, Claims: 1} }
	p := compiled(t, bounded(of("*"), of("team-*"), of("*-a"), of("a*b"), of("*ab"), of("team-big-*"), of("team-a"), of("t"),
		&wire.Quota{Prefix: "team-c/", Claims: 1}))
	for identity, want := range map[string]string{
		"team-a":      "team-a",
		"team-b":      "team-*",
		"team-b-a":    "team-*", // longer than *-a
		"team-big-a":  "team-big-*",
		"other-a":     "*-a",
		"aab":         "a*b", // as long as *ab, which comes later
		"bab":         "*ab",
		"t":           "t",
		"team-c/":     "team-*",
		"anonymous":   "*",
		"cn:anything": "*",
	} {
		if got := p.Quota(identity).GetIdentity(); got != want {
			t.Errorf("%q has the quota of %q, want %q", identity, got, want)
		}
	}
	reversed := compiled(t, bounded(of("*ab"), of("a*b")))
	if got := reversed.Quota("aab").GetIdentity(); got != "*ab" {
		t.Errorf("the first of the same length is %q", got)
	}
	if got := reversed.Quota("ann"); got != nil {
		t.Errorf("ann has %v", got)
	}
}

// TestQuotasOfPrefixes checks which prefixes cover a lock, and in which order.
func TestQuotasOfPrefixes(t *testing.T) {
	below := func(prefix string) *wire.Quota { return &wire.Quota{Prefix: prefix, Claims: 1} }
	p := compiled(t, bounded(below("b/"), below("a/b/"), below("/"), below("a/")))
	covering := func(lock string, most int) (found []string) {
		p.QuotasBelow(lock, func(q *wire.Quota) bool {
			found = append(found, q.Prefix)
			return len(found) < most
		})
		return found
	}
	for lock, want := range map[string]string{
		"a/b/c": "[/ a/ a/b/]", "a/b": "[/ a/]", "a": "[/]", "ab/c": "[/]", "b/a/b/c": "[/ b/]", "a/bc": "[/ a/]", "c": "[/]",
	} {
		if got := fmt.Sprint(covering(lock, 9)); got != want {
			t.Errorf("%q is below %s, want %s", lock, got, want)
		}
	}
	for most, want := range map[int]string{1: "[/]", 2: "[/ a/]"} {
		if got := fmt.Sprint(covering("a/b/c", most)); got != want {
			t.Errorf("%d: %s, want %s", most, got, want)
		}
	}
	var all []string
	for _, q := range p.PrefixQuotas() {
		all = append(all, q.Prefix)
	}
	if !slices.Equal(all, []string{"/", "a/", "a/b/", "b/"}) {
		t.Errorf("ordered %q", all)
	}
}

// TestWhetherThereAreQuotas distinguishes quotas of identities from those of prefixes, and none from no policy.
func TestWhetherThereAreQuotas(t *testing.T) {
	var none *Policy
	for what, c := range map[string]struct {
		policy           *Policy
		identity, prefix bool
	}{
		"no policy": {none, false, false},
		"no quotas": {compiled(t, bounded()), false, false},
		"exact":     {compiled(t, bounded(&wire.Quota{Identity: "ann", Claims: 1})), true, false},
		"pattern":   {compiled(t, bounded(&wire.Quota{Identity: "a*", Claims: 1})), true, false},
		"prefix":    {compiled(t, bounded(&wire.Quota{Prefix: "a/", Claims: 1})), false, true},
	} {
		called := false
		c.policy.QuotasBelow("x/a/b", func(*wire.Quota) bool { called = true; return true })
		if called {
			t.Errorf("%s: x/a/b is below a quota", what)
		}
		c.policy.QuotasBelow("a/b", func(*wire.Quota) bool { called = true; return true })
		if c.policy.HasQuotas() != c.identity || c.policy.HasPrefixQuotas() != c.prefix || called != c.prefix ||
			(c.policy.Quota("ann") != nil) != c.identity || len(c.policy.PrefixQuotas()) > 0 != c.prefix {
			t.Errorf("%s: %v, %v", what, c.policy.HasQuotas(), c.policy.HasPrefixQuotas())
		}
	}
}
