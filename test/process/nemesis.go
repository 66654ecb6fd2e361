package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Nemesis injects one kind of fault into a cluster under load.
type Nemesis struct {
	// Name describes the fault.
	Name string
	// needs reports whether a cluster has what the nemesis needs; nil means that it needs nothing.
	needs func(Options) bool
	// strike injects the fault and heals it. It returns how often that took effect: lost elections, dropped
	// packets, delayed bytes. It fails the test if the cluster does not respond correctly.
	strike func(*strike) (effect uint64)
}

// strike is one use of a nemesis.
type strike struct {
	*Cluster
	random *rand.Rand
}

// Strike injects a fault whose details the generator determines, heals it, and returns how often it took
// effect. The cluster may not have recovered yet when Strike returns.
func (n Nemesis) Strike(c *Cluster, random *rand.Rand) (effect uint64) {
	c.t.Helper()
	return n.strike(&strike{c, random})
}

// Fits reports whether a cluster with these options suits the nemesis. A cluster that is Lean suits only
// those that need that.
func (n Nemesis) Fits(o Options) bool {
	if n.needs == nil {
		return !o.Lean
	}
	return n.needs(o)
}

// Nemeses returns all nemeses.
func Nemeses() []Nemesis {
	return slices.Concat(processNemeses, memberNemeses, packetNemeses, proxyNemeses, clientNemeses, clockNemeses, snapshotNemeses, diskNemeses)
}

// NemesisNamed returns the nemesis of that name. It panics if there is none.
func NemesisNamed(name string) Nemesis {
	all := Nemeses()
	i := slices.IndexFunc(all, func(n Nemesis) bool { return n.Name == name })
	if i < 0 {
		panic(fmt.Sprintf("process: no nemesis %q", name))
	}
	return all[i]
}

// between returns a random duration.
func (s *strike) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.random.Int64N(int64(most-least)+1))
}

// last keeps the fault active for a random time, from far below an election's duration to far above.
func (s *strike) last() { s.Pass(s.between(200*time.Millisecond, 4*time.Second)) }

// one returns a random element.
func (s *strike) one(ids []string) string { return ids[s.random.IntN(len(ids))] }

// some returns count random nodes.
func (s *strike) some(count int) []string {
	ids := s.IDs()
	s.random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids[:count]
}

// rest returns all nodes except some.
func (s *strike) rest(ids []string) []string {
	return slices.DeleteFunc(s.IDs(), func(id string) bool { return slices.Contains(ids, id) })
}

// term returns the cluster's term, according to its leader.
func (s *strike) term() uint64 {
	s.t.Helper()
	return s.AwaitStatus("a leader", func(st *wire.StatusResponse) error {
		if st.GetLeaderId() == "" {
			return errors.New("none")
		}
		return nil
	}).GetTerm()
}

// later returns how many terms have started since the given one.
func (s *strike) later(term uint64) uint64 { s.t.Helper(); return s.term() - term }

// deposed waits until a node no longer leads and knows a later term.
func (s *strike) deposed(id string, term uint64) {
	s.t.Helper()
	s.Await(id+" steps down", WaitTimeout, func(ctx context.Context) error {
		m, err := s.Metrics(ctx, id)
		if err != nil {
			return err
		}
		if m["quorumlock_is_leader"] != 0 || m["quorumlock_term"] <= float64(term) {
			return fmt.Errorf("it leads: %v, in term %v", m["quorumlock_is_leader"], m["quorumlock_term"])
		}
		return nil
	})
}
