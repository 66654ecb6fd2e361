package rights

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// FuzzCompile checks that any bytes of a policy lead to an error or to a policy that answers every question, and that
// its explanations agree with its answers.
func FuzzCompile(f *testing.F) {
	add := func(p *wire.Policy) {
		data, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "ann", "a/b")
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		add(randomPolicy(r))
	}
	add(policyOf(prefix("a/", read, -1, 1<<31-1)))
	add(&wire.Policy{Roles: []*wire.Role{{Name: "r", Cluster: []wire.Verb{-1 << 31}}}})
	add(&wire.Policy{Bindings: bind("*a*n*", "admin")})
	f.Fuzz(func(t *testing.T, data []byte, identity, lockName string) {
		p := &wire.Policy{}
		if proto.Unmarshal(data, p) != nil {
			return
		}
		c, err := Compile(p)
		if err != nil {
			if !errors.Is(err, ErrInvalid) || len(err.Error()) > 500 {
				t.Fatalf("%v", err)
			}
			return
		}
		asked := []string{identity, "", "anonymous"}
		for _, b := range p.Bindings {
			asked = append(asked, b.Identity)
		}
		administrators := c.Administrators()
		for _, who := range asked[:min(len(asked), 20)] {
			g := c.Grants(who)
			for v := wire.Verb(-2); v < 40; v++ {
				_, why := c.Why(who, v, lockName)
				onLock := slices.Contains(LockVerbs(), v)
				if onLock && why != g.OnLock(lockName, v) || !onLock && why != g.OnCluster(v) || g.OnLock(lockName, v) && !g.OnSomeLock(v) {
					t.Fatalf("%q, %v on %q: %v, %v, because %v", who, v, lockName, g.OnLock(lockName, v), g.OnCluster(v), why)
				}
			}
			if next, ok := g.NextReadable(lockName); ok && (next < lockName || !g.OnLock(next, read)) {
				t.Fatalf("%q after %q: %q", who, lockName, next)
			}
			if !g.Covers(g) || slices.Contains(administrators, who) && !g.OnCluster(wire.Verb_POLICY) {
				t.Fatalf("%q covers itself: %v, administrators %q", who, g.Covers(g), administrators)
			}
		}
	})
}
