package process

import (
	"time"

	"github.com/quorumlock/quorumlock/test/proxy"
)

// proxyNemeses slow down or break connections. Their effect is the number of late bytes, broken connections
// and stalls.
var proxyNemeses = []Nemesis{
	{Name: "delay between nodes", needs: proxied, strike: func(s *strike) uint64 {
		late := s.between(2*time.Millisecond, 60*time.Millisecond)
		return s.behave(s.peers(s.IDs()...), proxy.Manners{Delay: late, Jitter: late})
	}},
	{Name: "delay between clients and nodes", needs: proxied, strike: func(s *strike) uint64 {
		late := s.between(2*time.Millisecond, 200*time.Millisecond)
		return s.behave(s.fronts(s.IDs()...), proxy.Manners{Delay: late, Jitter: late})
	}},
	{Name: "slow bytes to a follower", needs: proxied, strike: func(s *strike) uint64 {
		return s.behave(s.peers(s.one(s.Others(s.Leader()))), proxy.Manners{Rate: 200 + s.random.IntN(5_000)})
	}},
	{Name: "slow bytes to clients", needs: proxied, strike: func(s *strike) uint64 {
		return s.behave(s.fronts(s.IDs()...), proxy.Manners{Rate: 2_000 + s.random.IntN(20_000)})
	}},
	{Name: "stall a follower's port", needs: proxied, strike: func(s *strike) uint64 {
		return s.behave(s.peers(s.one(s.Others(s.Leader()))), proxy.Manners{Stall: true})
	}},
	{Name: "stall the leader's port for clients", needs: proxied, strike: func(s *strike) uint64 {
		return s.behave(s.fronts(s.Leader()), proxy.Manners{Stall: true})
	}},
	{Name: "break connections", needs: proxied, strike: breakAll},
}

func proxied(o Options) bool { return o.Proxied && !o.Lean }

// peers returns the proxies in front of the nodes' peer ports.
func (s *strike) peers(ids ...string) (all []*proxy.Proxy) {
	for _, id := range ids {
		all = append(all, s.node(id).proxies.peer)
	}
	return all
}

// fronts returns the proxies in front of the nodes' client and Redis ports.
func (s *strike) fronts(ids ...string) (all []*proxy.Proxy) {
	for _, id := range ids {
		if all = append(all, s.node(id).proxies.client); s.opts.Redis {
			all = append(all, s.node(id).proxies.redis)
		}
	}
	return all
}

// behave changes the manners of proxies temporarily.
func (s *strike) behave(all []*proxy.Proxy, m proxy.Manners) uint64 {
	before := effects(all)
	defer func() {
		for _, p := range all {
			p.Behave(proxy.Manners{})
		}
	}()
	for _, p := range all {
		p.Behave(m)
	}
	s.last()
	return effects(all) - before
}

// breakAll breaks every connection several times.
func breakAll(s *strike) uint64 {
	const times = 5
	all := append(s.peers(s.IDs()...), s.fronts(s.IDs()...)...)
	before := effects(all)
	for range times {
		for _, p := range all {
			p.Break()
		}
		s.Pass(s.between(0, time.Second))
	}
	return effects(all) - before
}

func effects(all []*proxy.Proxy) (sum uint64) {
	for _, p := range all {
		c := p.Counts()
		sum += c.Late + c.Broken + c.Stalled
	}
	return sum
}
