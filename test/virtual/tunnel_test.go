package virtual_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// apart is how long a client cannot reach the leader: several minimum TTLs.
const apart = 4 * frailTTL

// shopper is a client on its own machine, with a session of the minimum TTL and a hold.
type shopper struct {
	c       *cluster
	machine string
	client  *client.Client
	session *client.Session
	hold    *client.Hold
}

func (c *cluster) shopper(machine string) *shopper {
	c.t.Helper()
	h := &shopper{c: c, machine: machine, client: c.client(machine)}
	var err error
	if h.session, err = h.client.NewSession(c.t.Context(), client.SessionOptions{TTL: frailTTL}); err != nil {
		c.t.Fatal(err)
	}
	if h.hold, err = h.session.Lock(c.t.Context(), "held/"+machine); err != nil {
		c.t.Fatal(err)
	}
	return h
}

// address returns the client's address as the cluster knows it.
func (h *shopper) address(at *node) string {
	for _, s := range at.replica().Fork().ListSessions(&wire.ListSessionsRequest{}).GetSessions() {
		if s.GetSessionId() == h.session.ID() {
			return s.GetClient().GetAddress()
		}
	}
	return ""
}

// TestClientsThatReachFollowersOnly cuts clients off from the leader, entirely or in one direction, and from
// one follower. No session may be lost, and the cluster must know the clients by their own addresses.
func TestClientsThatReachFollowersOnly(t *testing.T) {
	eachSeed(t, 30, func(t *testing.T, seed uint64) counts {
		c := newCluster(t, seed, 3, nil)
		leader := c.leaderWithReports()
		h := c.shopper("shop")
		pause(c.between(0, 2*frailTTL))
		felt := c.effect("segments held back", c.held)
		if seed%3 != 1 {
			c.net.Cut(h.machine, leader.id)
		}
		if seed%3 != 2 {
			c.net.Cut(leader.id, h.machine)
		}
		if seed%2 == 0 {
			c.isolate(h.machine, c.except(leader)[seed/2%2])
		}
		pause(apart)
		felt()
		h.survived("the cut")
		if at := h.address(leader); !strings.HasPrefix(at, h.machine+":") {
			t.Errorf("the session's address is %q, want one of %s", at, h.machine)
		}
		return counts{}
	})
}

// tunnelled makes the client open a tunnel to the leader through one follower. The other follower is
// reachable again when it returns.
func (h *shopper) tunnelled(leader, through *node) {
	h.c.t.Helper()
	h.c.isolate(h.machine, h.c.except(through)...)
	pause(frailTTL)
	h.c.net.Heal()
	h.c.isolate(h.machine, leader)
	pause(h.c.between(0, 2*frailTTL))
	h.steady("the opening of a tunnel", 0)
}

// steady requires that the session stays active for a while, and is never in jeopardy.
func (h *shopper) steady(what string, lasts time.Duration) {
	h.c.t.Helper()
	for started := h.c.now(); ; {
		if s := h.session.State(); s != client.Active {
			h.c.t.Errorf("the session is %v %v after %s", s, h.c.now()-started, what)
			return
		}
		if h.c.now()-started >= lasts {
			return
		}
		pause(20 * time.Millisecond)
	}
}

// TestTunnelLasts lets clients dial the leader itself for minutes without success. None of that may disturb their
// tunnel.
func TestTunnelLasts(t *testing.T) {
	eachSeed(t, 8, func(t *testing.T, seed uint64) counts {
		c := newCluster(t, seed, 3, nil)
		leader := c.leaderWithReports()
		h := c.shopper("shop")
		h.tunnelled(leader, c.except(leader)[seed%2])
		felt := c.effect("segments held back", c.held)
		if seed%3 == 0 {
			c.isolate(h.machine, c.except(leader)[1-seed%2])
		}
		h.steady("the cut", 2*time.Minute)
		felt()
		h.survived("the cut")
		return counts{}
	})
}

// TestLeaderMovesWhileAClientTunnels moves leadership to the node that tunnels, to another one that the
// client reaches, and to one that it does not reach. A deliberate transfer must not even put the session into
// jeopardy; the crash of a leader must not end it.
func TestLeaderMovesWhileAClientTunnels(t *testing.T) {
	eachSeed(t, 24, func(t *testing.T, seed uint64) counts {
		c := newCluster(t, seed, 3, nil)
		leader := c.leaderWithReports()
		h := c.shopper("shop")
		followers := c.except(leader)
		through, next := followers[0], followers[seed%2]
		h.tunnelled(leader, through)
		if seed%4 == 1 { // the next leader is unreachable too
			c.isolate(h.machine, next)
		}
		felt := c.effect("terms", func() int { return int(c.leader().replica().Leader().GetTerm()) })
		if seed%3 > 0 {
			c.lead(next)
			h.steady("the leader's move", 2*apart)
		} else {
			leader.crash()
			c.successor(leader)
			pause(2 * frailTTL)
			leader.start()
			pause(apart)
		}
		felt()
		h.survived("the leader's move")
		return counts{}
	})
}

// TestTunnellingNodeEnds stops or kills the node that tunnels. Its client must find another one.
func TestTunnellingNodeEnds(t *testing.T) {
	eachSeed(t, 12, func(t *testing.T, seed uint64) counts {
		c := newCluster(t, seed, 3, nil)
		leader := c.leaderWithReports()
		h := c.shopper("shop")
		through := c.except(leader)[seed/2%2]
		h.tunnelled(leader, through)
		if seed%2 == 0 {
			through.stop()
		} else {
			through.crash()
		}
		h.steady("the end of the node", apart)
		h.survived("the end of the node")
		return counts{}
	})
}

// TestNoTunnelsWhereTheyAreSwitchedOff expects a client to lose its session as without tunnels, at its own
// deadline, and to open another one when it reaches the leader again.
func TestNoTunnelsWhereTheyAreSwitchedOff(t *testing.T) {
	eachSeed(t, 4, func(t *testing.T, seed uint64) counts {
		c := newCluster(t, seed, 3, func(_ int, cfg *server.Config) { cfg.NoTunnels = true })
		leader := c.leaderWithReports()
		h := c.shopper("shop")
		c.isolate(h.machine, leader)
		pause(frailTTL)
		if err := h.session.Err(); !errors.Is(err, client.ErrExpired) {
			t.Errorf("after its TTL the session's end is %v", err)
		}
		c.calm()
		var err error
		if h.session, err = h.client.NewSession(t.Context(), client.SessionOptions{TTL: frailTTL}); err != nil {
			t.Fatal(err)
		}
		if h.hold, err = h.session.Lock(t.Context(), "held/"+h.machine); err != nil {
			t.Fatal(err)
		}
		h.survived("the end of the cut")
		return counts{}
	})
}

// survived requires that the session is intact and usable.
func (h *shopper) survived(what string) {
	h.c.t.Helper()
	if err := h.session.Err(); err != nil {
		h.c.t.Errorf("the session did not survive %s: %v", what, err)
		return
	}
	if err := h.hold.Context().Err(); err != nil {
		h.c.t.Errorf("the hold did not survive %s: %v", what, err)
	}
	if other, err := h.session.Lock(h.c.t.Context(), "more/"+h.machine, client.WithTry()); err != nil {
		h.c.t.Errorf("the session is of no use after %s: %v", what, err)
	} else if err := other.Unlock(h.c.t.Context()); err != nil {
		h.c.t.Error(err)
	}
}
