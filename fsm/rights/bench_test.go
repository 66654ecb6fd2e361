package rights

import (
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// large returns a policy with 100 roles of three rules each, and 1,000 bindings of identities and patterns.
func large(t testing.TB) *Policy {
	t.Helper()
	p := &wire.Policy{}
	for i := range 100 {
		team := fmt.Sprint("team-", i)
		p.Roles = append(p.Roles, &wire.Role{Name: team, Locks: []*wire.LockRule{
			prefix(team+"/", read, lock), name("shared/"+team, lock), prefix("archive/"+team+"/", read),
		}})
	}
	for i := range 990 {
		team := fmt.Sprint("team-", i%100)
		p.Bindings = append(p.Bindings, &wire.Binding{Identity: fmt.Sprint(team, "-", i/100), Roles: []string{team, "reader"}})
	}
	for i := range 10 {
		p.Bindings = append(p.Bindings, &wire.Binding{Identity: fmt.Sprint("team-", i, "-*"), Roles: []string{fmt.Sprint("team-", i+50)}})
	}
	return compiled(t, p)
}

// BenchmarkOnLock measures the check of one request: with a rule for all locks, with one for a prefix of the name, and
// with none.
func BenchmarkOnLock(b *testing.B) {
	g := large(b).Grants("team-7-4")
	for _, c := range []struct {
		what, name string
		verb       wire.Verb
	}{
		{"all", "any/lock", read}, {"prefix", "team-7/some/lock", lock}, {"none", "team-8/some/lock", lock},
	} {
		b.Run("rule="+c.what, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				g.OnLock(c.name, c.verb)
			}
		})
	}
}

// BenchmarkGrants measures the lookup of an identity's grants, once they are known, and the first time.
func BenchmarkGrants(b *testing.B) {
	p := large(b)
	b.Run("known", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p.Grants("team-7-4")
		}
	})
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p.collect(p.RolesOf("team-7-4"))
		}
	})
}
