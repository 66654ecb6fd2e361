package virtual_test

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/client"
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
