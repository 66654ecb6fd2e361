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

// apart is how long a client cannot reach the leader: several of the shortest TTLs.
const apart = 4 * frailTTL

// shopper is a client on a machine of its own, with a session of the shortest TTL and a hold.
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

// address is where the cluster believes the client to be.
func (h *shopper) address(at *node) string {
	for _, s := range at.replica().Fork().ListSessions(&wire.ListSessionsRequest{}).GetSessions() {
		if s.GetSessionId() == h.session.ID() {
			return s.GetClient().GetAddress()
		}
	}
	return ""
}

// TestClientsThatReachFollowersOnly cuts clients off the leader, all or one way, and off one
// of the followers: none of them loses its session, and what the cluster knows of them is
// their own address.
func TestClientsThatReachFollowersOnly(t *testing.T) {
	eachSeed(t, 30, func(t *testing.T, seed uint64) counts {
		c := newCluster(t, seed, 3, nil)
		leader := c.settled()
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

// tunnelled gives the client a tunnel to the leader that leads through one follower, and returns
// with the other follower within reach again.
func (h *shopper) tunnelled(leader, through *node) {
	h.c.t.Helper()
	h.c.isolate(h.machine, h.c.except(through)...)
	pause(frailTTL)
	h.c.net.Heal()
	h.c.isolate(h.machine, leader)
	pause(h.c.between(0, 2*frailTTL))
	h.steady("the opening of a tunnel", 0)
}

// steady wants the session active for a while, and never in jeopardy.
func (h *shopper) steady(what string, lasts time.Duration) {
	h.c.t.Helper()
	for begun := h.c.now(); ; {
		if s := h.session.State(); s != client.Active {
			h.c.t.Errorf("the session is %v %v after %s", s, h.c.now()-begun, what)
			return
		}
		if h.c.now()-begun >= lasts {
			return
		}
		pause(20 * time.Millisecond)
	}
}

// TestTunnelLasts has clients try the leader itself for minutes, in vain: nothing that they do
// beside a tunnel disturbs it.
func TestTunnelLasts(t *testing.T) {
	eachSeed(t, 8, func(t *testing.T, seed uint64) counts {
		c := newCluster(t, seed, 3, nil)
		leader := c.settled()
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

// TestLeaderMovesWhileAClientTunnels moves leadership to the node that tunnels, to one that the
// client reaches, and to one that it does not reach either. A move that is meant does not even
// bring the session into jeopardy; that of a leader that died costs no session.
func TestLeaderMovesWhileAClientTunnels(t *testing.T) {
	eachSeed(t, 24, func(t *testing.T, seed uint64) counts {
		c := newCluster(t, seed, 3, nil)
		leader := c.settled()
		h := c.shopper("shop")
		followers := c.except(leader)
		through, next := followers[0], followers[seed%2]
		h.tunnelled(leader, through)
		if seed%4 == 1 { // the next one is out of reach as well
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

// TestTunnellingNodeEnds stops or kills the node that tunnels: its client finds another one.
func TestTunnellingNodeEnds(t *testing.T) {
	eachSeed(t, 12, func(t *testing.T, seed uint64) counts {
		c := newCluster(t, seed, 3, nil)
		leader := c.settled()
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

// TestNoTunnelsWhereTheyAreSwitchedOff has a client lose its session as it does without tunnels,
// at its own deadline, and open another one when it reaches the leader again.
func TestNoTunnelsWhereTheyAreSwitchedOff(t *testing.T) {
	eachSeed(t, 4, func(t *testing.T, seed uint64) counts {
		c := newCluster(t, seed, 3, func(_ int, cfg *server.Config) { cfg.NoTunnels = true })
		leader := c.settled()
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

// survived wants the session as it was, and of use.
func (h *shopper) survived(what string) {
	h.c.t.Helper()
	if err := h.session.Err(); err != nil {
		h.c.t.Errorf("the session did not survive %s: %v", what, err)
		return
	}
	if err := h.hold.Context().Err(); err != nil {
		h.c.t.Errorf("the hold did not survive %s: %v", what, err)
	}
	if other, err := h.session.TryLock(h.c.t.Context(), "more/"+h.machine); err != nil {
		h.c.t.Errorf("the session is of no use after %s: %v", what, err)
	} else if err := other.Unlock(h.c.t.Context()); err != nil {
		h.c.t.Error(err)
	}
}
