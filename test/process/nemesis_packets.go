package process

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/test/netns"
)

// packetNemeses drop and refuse packets between the hosts of a cluster that is Apart. Their effect is the
// number of packets.
var packetNemeses = []Nemesis{
	{Name: "isolate the leader from the nodes", needs: apart, strike: func(s *strike) uint64 {
		return s.replaced(func(old string) faults { return both(s.site.net, []string{old}, s.Others(old)) })
	}},
	{Name: "isolate the leader from everybody", needs: apart, strike: func(s *strike) uint64 {
		return s.replaced(func(old string) faults { return both(s.site.net, []string{old}, append(s.Others(old), Clients, Frail)) })
	}},
	{Name: "let nobody hear the leader", needs: apart, strike: func(s *strike) uint64 {
		return s.replaced(func(old string) faults { return single(s.site.net.Cut([]string{old}, s.Others(old))) })
	}},
	{Name: "let the leader hear nobody", needs: apart, strike: func(s *strike) uint64 {
		return s.replaced(func(old string) faults { return single(s.site.net.Cut(s.Others(old), []string{old})) })
	}},
	{Name: "isolate a follower", needs: apart, strike: func(s *strike) uint64 {
		id := s.one(s.Others(s.Leader()))
		return s.under(both(s.site.net, []string{id}, s.Others(id)), s.last)
	}},
	{Name: "part a minority from the rest", needs: apart, strike: func(s *strike) uint64 {
		few := s.some((len(s.nodes) - 1) / 2)
		return s.under(both(s.site.net, few, s.rest(few)), s.last)
	}},
	{Name: "leave no majority", needs: apart, strike: func(s *strike) uint64 {
		var all faults
		for i, id := range s.IDs()[1:] {
			all = all.and(both(s.site.net, []string{id}, s.IDs()[:i+1]))
		}
		return s.under(all, s.last)
	}},
	{Name: "leave one bridge between two halves", needs: func(o Options) bool { return apart(o) && o.Nodes >= 5 }, strike: func(s *strike) uint64 {
		five := s.some(5)
		return s.under(both(s.site.net, five[:2], five[3:]), s.last)
	}},
	{Name: "lose packets", needs: apart, strike: func(s *strike) uint64 {
		return s.under(single(s.site.net.Lose(3+s.random.IntN(25), s.IDs()...)), s.last)
	}},
	{Name: "cut and mend links quickly", needs: apart, strike: flap},
	{Name: "refuse connections to the leader", needs: apart, strike: refuse},
	{Name: "reset connections to the leader", needs: apart, strike: func(s *strike) uint64 {
		id := s.Leader()
		return s.under(single(s.site.net.Reset(s.ports(id), id)), func() { s.Pass(s.between(50*time.Millisecond, time.Second)) })
	}},
	{Name: "cut clients off the leader", needs: apart, strike: func(s *strike) uint64 {
		return s.under(both(s.site.net, []string{s.Leader()}, []string{Clients}), s.last)
	}},
}

func apart(o Options) bool { return o.Apart && !o.Lean }

// faults are packet faults, or the reason why they could not be injected.
type faults struct {
	netns.Faults
	err error
}

func single(f *netns.Fault, err error) faults { return faults{netns.Faults{f}, err} }

func both(n *netns.Net, some, others []string) faults {
	f, err := n.Part(some, others)
	return faults{f, err}
}

func (f faults) and(more faults) faults {
	f.Faults = append(f.Faults, more.Faults...)
	if f.err == nil {
		f.err = more.err
	}
	return f
}

// under calls meanwhile while faults are active, and returns how many packets they affected.
func (s *strike) under(f faults, meanwhile func()) (packets uint64) {
	s.t.Helper()
	defer func() {
		if err := f.Heal(); err != nil {
			s.t.Error(err)
		}
	}()
	if f.err != nil {
		s.t.Fatal(f.err)
	}
	meanwhile()
	packets, err := f.Packets()
	if err != nil {
		s.t.Error(err)
	}
	return packets
}

// replaced keeps a fault on the leader until another node leads.
func (s *strike) replaced(fault func(leader string) faults) uint64 {
	s.t.Helper()
	term, old := s.term(), s.Leader()
	packets := s.under(fault(old), func() {
		s.AwaitLeader(old)
		s.last()
	})
	s.deposed(old, term)
	return packets
}

// Isolate drops every packet between a node and some hosts, which may be nodes and clients, until mend. The
// cluster must be Apart.
func (c *Cluster) Isolate(id string, from ...string) (heal func()) {
	c.t.Helper()
	f := both(c.site.net, []string{id}, from)
	heal = func() {
		if err := f.Heal(); err != nil {
			c.t.Error(err)
		}
	}
	if f.err != nil {
		heal()
		c.t.Fatal(f.err)
	}
	return heal
}

// ports returns a node's peer and client port, and its Redis port if it has one.
func (s *strike) ports(id string) (all []int) {
	n := s.node(id)
	for _, addr := range []string{n.peer, n.client, n.redis} {
		if addr == "" {
			continue
		}
		_, port, _ := net.SplitHostPort(addr)
		number, _ := strconv.Atoi(port)
		all = append(all, number)
	}
	return all
}

// flap cuts links and mends them soon, about as fast as elections happen.
func flap(s *strike) (packets uint64) {
	const times = 8
	for range times {
		pair := s.some(2)
		packets += s.under(both(s.site.net, pair[:1], pair[1:]), func() { s.Pass(s.between(100*time.Millisecond, time.Second)) })
	}
	return packets
}

// declaredDead is the log message of a node that calls an election because the leader's process seems to have
// ended.
const declaredDead = "the leader is dead: calling an election"

// refuse puts a firewall in front of a live leader: existing connections continue, and no node may consider
// it dead.
func refuse(s *strike) uint64 {
	id, before := s.Leader(), s.logged(declaredDead)
	defer func() {
		if s.logged(declaredDead) != before {
			s.t.Errorf("%s was taken for dead behind a firewall", id)
		}
	}()
	dial := s.Dialer()
	return s.under(single(s.site.net.Reject(s.ports(id), id)), func() {
		ctx, cancel := context.WithTimeout(context.Background(), WaitTimeout)
		defer cancel()
		if conn, err := dial(ctx, s.node(id).client); err == nil {
			_ = conn.Close()
			s.t.Errorf("%s accepts connections behind a firewall that refuses them", id)
		}
		s.last()
	})
}

// logged returns how often all nodes have logged a text.
func (c *Cluster) logged(text string) (times int) {
	for _, id := range c.IDs() {
		times += strings.Count(c.Log(id), text)
	}
	return times
}
