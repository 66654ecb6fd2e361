package replica_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/replica"
	"github.com/quorumlock/quorumlock/test/scrape"
	"github.com/quorumlock/quorumlock/test/simnet"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// watched starts a cluster whose followers hold connections to the leader.
func watched(t *testing.T, n int, tune func(*replica.Config)) (*cluster, *node) {
	t.Helper()
	c := newCluster(t, n)
	for _, m := range c.nodes {
		m.cfg.Registry = prometheus.NewRegistry()
		m.cfg.Network = &mortal{Host: m.host}
		if tune != nil {
			tune(&m.cfg)
		}
	}
	return c, c.startAll().waitForReports()
}

// count returns the sum of a metric over all nodes since they were started.
func (c *cluster) count(metric string) (sum float64) {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.up {
			sum += scrape.Values(c.t, n.cfg.Registry.(*prometheus.Registry))[metric]
		}
	}
	return sum
}

// mortal is a host whose process can die; from then on it cannot dial.
type mortal struct {
	*simnet.Host
	dead atomic.Bool
}

func (m *mortal) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if m.dead.Load() {
		return nil, net.ErrClosed
	}
	return m.Host.Dial(ctx, addr)
}

// die ends the node's process as the others see it: all its connections are reset, and new ones are refused.
// bury ends what is left of it here.
func (n *node) die() (bury func()) {
	n.set(nil)
	n.cfg.Network.(*mortal).dead.Store(true)
	n.host.Kill()
	return func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = n.Close(ctx)
		n.cfg.Network = &mortal{Host: n.host}
		n.cfg.Registry = prometheus.NewRegistry()
	}
}

// outage kills the leader and returns the next one, and how long no node served.
func (c *cluster) outage(leader *node) (next *node, took time.Duration) {
	c.t.Helper()
	begin := time.Now()
	bury := leader.die()
	next = c.leader()
	took = time.Since(begin)
	bury()
	return next, took
}

// unmoved fails the test unless the leader keeps leading in its term for that long, without any called
// election.
func (c *cluster) unmoved(leader *node, term uint64, during time.Duration) {
	c.t.Helper()
	for begin := time.Now(); time.Since(begin) < during; time.Sleep(5 * time.Millisecond) {
		if now := leader.Leader(); !leader.Serving() || now.Term != term {
			c.t.Fatalf("after %v %s leads in term %d (serving: %v), it was %s in term %d",
				time.Since(begin), now.Id, now.Term, leader.Serving(), leader.id, term)
		}
	}
	if n := c.count("failover_hints_total agreed"); n != 0 {
		c.t.Errorf("%v elections were called", n)
	}
}

func TestDeadLeaderIsReplacedAtOnce(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				c, leader := watched(t, nodes, nil)
				for round := range 10 {
					term := leader.Leader().Term
					next, took := c.outage(leader)
					t.Logf("round %d: %s replaced by %s after %v", round, leader.id, next.id, took)
					if took > 100*time.Millisecond || next.Leader().Term != term+1 {
						t.Errorf("it took %v and %d terms", took, next.Leader().Term-term)
					}
					leader.start()
					c.eventually("everybody follows", func() bool { return leader.Leader().GetId() == next.id })
					time.Sleep(time.Second)
					leader = next
				}
				if n := c.count("leader_losses_total"); n == 0 {
					t.Error("nobody counted")
				}
			})
		})
	}
}

// TestDeadLeaderOfFiveWithAnotherNodeDown verifies that a node that is down as well cannot be asked and costs
// no time.
func TestDeadLeaderOfFiveWithAnotherNodeDown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, leader := watched(t, 5, nil)
		down := c.followers()[0]
		down.die()()
		time.Sleep(2 * time.Second)
		if _, took := c.outage(leader); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// TestDeadLeaderOfFiveWithASilentNode verifies that the others give a silent node its turn, since it might
// call an election too.
func TestDeadLeaderOfFiveWithASilentNode(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, leader := watched(t, 5, nil)
		silent := c.followers()[0]
		c.net.Isolate(silent.id, c.except(silent)...)
		if _, took := c.outage(leader); took > 450*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		c.net.Heal()
	})
}

// TestDeadLeaderIsReplacedByTheLongestLog verifies that the node with the longest log calls the election.
func TestDeadLeaderIsReplacedByTheLongestLog(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, leader := watched(t, 3, nil)
		s := c.openSession("a", time.Minute)
		ahead, behind := c.followers()[1], c.followers()[0]
		c.net.Cut(leader.id, behind.id)
		if r := leader.do(acquireCommand(s, 1, "last/words", 0)); r.GetHoldId() == 0 {
			t.Fatalf("got %v", r)
		}
		c.net.Reject(leader.id, behind.id) // nothing that is in flight arrives
		c.net.Heal()
		next, took := c.outage(leader)
		if took > 450*time.Millisecond || next != ahead || next.holder("last/words") != s {
			t.Errorf("%s (%s was ahead) after %v, held by %d", next.id, ahead.id, took, next.holder("last/words"))
		}
	})
}

func TestSwitchedOffTheTimeoutsDecide(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, leader := watched(t, 3, func(cfg *replica.Config) { cfg.NoFailoverHint = true })
		if _, took := c.outage(leader); took < 500*time.Millisecond {
			t.Errorf("replaced after %v", took)
		}
	})
}

// TestAmongNodesThatDoNotTakePartTheTimeoutsDecide verifies that nodes that do not know the question, as
// during an upgrade, do not count as observers.
func TestAmongNodesThatDoNotTakePartTheTimeoutsDecide(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, leader := watched(t, 3, func(cfg *replica.Config) { cfg.NoFailoverHint = true })
		one := c.followers()[0]
		one.stop()
		one.cfg.NoFailoverHint = false
		one.cfg.Registry = prometheus.NewRegistry()
		one.start()
		time.Sleep(2 * time.Second)
		if _, took := c.outage(leader); took < 500*time.Millisecond || c.count("leader_losses_total") != 1 {
			t.Errorf("replaced after %v, seen by %v", took, c.count("leader_losses_total"))
		}
	})
}

// harmless are faults of connections to a leader that is alive.
var harmless = map[string]func(c *cluster, leader *node){
	"its connections are closed": func(c *cluster, leader *node) { leader.host.Reset() },
	"they are closed again and again": func(c *cluster, leader *node) {
		for range 50 {
			leader.host.Reset()
			time.Sleep(7 * time.Millisecond)
		}
	},
	"a firewall rejects what is dialled to it": func(c *cluster, leader *node) {
		for _, o := range c.except(leader) {
			c.net.Reject(o, leader.id)
		}
	},
	"it rejects what one follower dials": func(c *cluster, leader *node) {
		c.net.Reject(c.except(leader)[0], leader.id)
	},
	"one follower sees it close and refuse": func(c *cluster, leader *node) {
		one := c.except(leader)[0]
		c.net.Reject(one, leader.id)
		c.net.Reject(leader.id, one)
	},
	"it is silent for a moment": func(c *cluster, leader *node) {
		c.net.Isolate(leader.id, c.except(leader)...)
		time.Sleep(300 * time.Millisecond)
		c.net.Heal()
	},
	"it is silent and its connections close": func(c *cluster, leader *node) {
		c.net.Isolate(leader.id, c.except(leader)...)
		leader.host.Reset()
		time.Sleep(300 * time.Millisecond)
		c.net.Heal()
	},
	"a follower dies": func(c *cluster, leader *node) { c.followers()[0].die()() },
}

// TestLivingLeaderIsNotDeposed verifies that a live leader is not deposed, whatever happens to its
// connections.
func TestLivingLeaderIsNotDeposed(t *testing.T) {
	for name, hurt := range harmless {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				c, leader := watched(t, 3, nil)
				term := leader.Leader().Term
				hurt(c, leader)
				c.unmoved(leader, term, 5*time.Second)
				c.net.Heal()
			})
		})
	}
}

// TestRollingRestartCallsNoElection verifies that no election is called when nodes are stopped gracefully,
// since they hand over first. A follower that learns of the next leader late may see the previous one go, and
// learns of the next one by asking.
func TestRollingRestartCallsNoElection(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, _ := watched(t, 3, nil)
		var calls float64
		for range 2 {
			for _, p := range c.peers {
				n, before := c.nodes[p.ID], c.leader()
				term := before.Leader().Term
				n.stop()
				after := c.leader()
				if n != before && after.Leader().Term != term || after.Leader().Term > term+1 {
					t.Errorf("%s stopped, %s led: term %d after %d", n.id, before.id, after.Leader().Term, term)
				}
				calls += c.count("failover_hints_total agreed")
				n.cfg.Registry = prometheus.NewRegistry()
				n.start()
				time.Sleep(2 * time.Second)
			}
		}
		if calls != 0 {
			t.Errorf("%v elections were called", calls)
		}
	})
}

// TestSilentLeaderIsNotSeenDead closes a leader's connections and silences it. It is not seen dead; raft's
// timeouts replace it.
func TestSilentLeaderIsNotSeenDead(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, leader := watched(t, 3, nil)
		c.net.Isolate(leader.id, c.except(leader)...)
		leader.host.Reset()
		c.eventually("another leader", func() bool { n := c.serving(); return n != nil && n != leader })
		time.Sleep(5 * time.Second)
		c.net.Heal()
		if n := c.count("leader_losses_total"); n != 0 {
			t.Errorf("seen dead %v times", n)
		}
	})
}

// TestTheOthersAreAsked verifies that a node asks all voters except the leader in question and itself.
func TestTheOthersAreAsked(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 4).startAll()
		leader := c.waitForReports()
		one := c.followers()[0]
		voters, answered := one.Heard(t.Context(), leader.id)
		others := slices.DeleteFunc(c.except(one), func(id string) bool { return id == leader.id })
		slices.Sort(others)
		if !slices.Equal(voters, []string{"n1", "n2", "n3", "n4"}) || !slices.Equal(answered, others) {
			t.Errorf("of %v, %v answered, want %v", voters, answered, others)
		}
	})
}

// TestMembersAnswerForOthers verifies that a member's answer counts only under its recorded incarnation.
func TestMembersAnswerForOthers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		member, about := c.followers()[0].id, c.followers()[1].id
		for _, q := range []struct {
			incarnation, its string
			want             wire.Standing
		}{
			{member + "-1", about + "-1", wire.Standing_MEMBER}, {member + "-1", about + "-2", wire.Standing_REPLACED},
			{member + "-2", about + "-1", wire.Standing_UNKNOWN}, {"", about + "-1", wire.Standing_UNKNOWN},
		} {
			if got := leader.AskStanding(t.Context(), member, q.incarnation, about, q.its); got != q.want {
				t.Errorf("%s with %q says that %s with %q is %v, want %v", member, q.incarnation, about, q.its, got, q.want)
			}
		}
		c.net.Isolate(leader.id, member)
		if got := leader.AskStanding(t.Context(), member, "", about, about+"-1"); got != wire.Standing_UNKNOWN {
			t.Errorf("a silent one says %v", got)
		}
		c.net.Heal()
	})
}
