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

// Nemesis is one way to hurt a cluster under load.
type Nemesis struct {
	// Name says what it does.
	Name string
	// needs tells what a cluster must have for it; nil is nothing.
	needs func(Options) bool
	// strike hurts the cluster, and heals it again. It returns how often that took
	// effect: votes that were lost, packets that were dropped, bytes that came late. It
	// fails the test where the cluster does not answer as it must.
	strike func(*strike) (effect uint64)
}

// strike is one use of a nemesis.
type strike struct {
	*Cluster
	random *rand.Rand
}

// Strike hurts a cluster in a way that the generator decides upon, until it is healed
// again, and returns how often that took effect. The cluster need not have recovered by
// then.
func (n Nemesis) Strike(c *Cluster, random *rand.Rand) (effect uint64) {
	c.t.Helper()
	return n.strike(&strike{c, random})
}

// Fits tells whether such a cluster has what the nemesis needs. One that is Lean is for
// those alone that need it to be.
func (n Nemesis) Fits(o Options) bool {
	if n.needs == nil {
		return !o.Lean
	}
	return n.needs(o)
}

// Nemeses are all that there are.
func Nemeses() []Nemesis {
	return slices.Concat(processNemeses, memberNemeses, packetNemeses, proxyNemeses, clientNemeses, clockNemeses, snapshotNemeses, diskNemeses)
}

// NemesisNamed is one of Nemeses; it panics if there is none of that name.
func NemesisNamed(name string) Nemesis {
	all := Nemeses()
	i := slices.IndexFunc(all, func(n Nemesis) bool { return n.Name == name })
	if i < 0 {
		panic(fmt.Sprintf("process: no nemesis %q", name))
	}
	return all[i]
}

// between draws a duration.
func (s *strike) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.random.Int64N(int64(most-least)+1))
}

// last lets the fault go on for a while, from well below an election's time to well above.
func (s *strike) last() { s.Pass(s.between(200*time.Millisecond, 4*time.Second)) }

// one draws one of some nodes.
func (s *strike) one(ids []string) string { return ids[s.random.IntN(len(ids))] }

// some draws so many of the nodes.
func (s *strike) some(count int) []string {
	ids := s.IDs()
	s.random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids[:count]
}

// rest are the nodes but some.
func (s *strike) rest(ids []string) []string {
	return slices.DeleteFunc(s.IDs(), func(id string) bool { return slices.Contains(ids, id) })
}

// term is the cluster's, as its leader says.
func (s *strike) term() uint64 {
	s.t.Helper()
	return s.AwaitStatus("a leader", func(st *wire.StatusResponse) error {
		if st.GetLeaderId() == "" {
			return errors.New("none")
		}
		return nil
	}).GetTerm()
}

// later is how many terms the cluster has had since one.
func (s *strike) later(term uint64) uint64 { s.t.Helper(); return s.term() - term }

// deposed waits until a node leads no more and knows of a later term.
func (s *strike) deposed(id string, term uint64) {
	s.t.Helper()
	s.Await(id+" steps down", Patience, func(ctx context.Context) error {
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
