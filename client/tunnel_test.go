package client

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// asked counts the hellos that asked for a tunnel.
func (f *fake) asked() (sum int) {
	f.set(func() {
		for _, n := range f.nodes {
			sum += n.asked
		}
	})
	return sum
}

// block cuts clients off from nodes: the nodes answer no hello and nothing on existing connections. Traffic
// through other nodes arrives.
func (f *fake) block(ids ...string) {
	f.set(func() {
		for _, id := range ids {
			f.node(id).hung = true
		}
		f.intercept = func(cn *fakeConn, _ *wire.Request) bool { return cn.node.hung && !cn.tunnel }
	})
}

// tunnelled reports whether the client's connection is a tunnel.
func (c *Client) tunnelled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn != nil && c.conn.direct != ""
}

func TestTunnelWhereTheLeaderIsOutOfReach(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		f.set(func() { f.node("n2").tunnels, f.node("n3").tunnels = true, true })
		s, err := c.NewSession(context.Background(), SessionOptions{TTL: 5 * time.Second})
		ok(t, err)
		f.block("n1")
		time.Sleep(4 * time.Second)
		if !c.tunnelled() {
			t.Error("there is no tunnel")
		}
		time.Sleep(time.Minute)
		ok(t, s.Err())
		if n := f.asked(); n != 1 {
			t.Errorf("%d tunnels were asked for, want one that stays", n)
		}
		f.set(func() { f.node("n1").hung = false })
		time.Sleep(directEvery + helloTimeout)
		if c.tunnelled() {
			t.Error("the leader can be reached again, and the tunnel stays")
		}
		time.Sleep(10 * time.Second)
		ok(t, s.Err())
	})
}

// TestTunnelForANewClient checks that a leader that was never reached is tried directly before a tunnel is
// requested.
func TestTunnelForANewClient(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		f.set(func() { f.node("n2").tunnels, f.node("n3").tunnels = true, true })
		f.block("n1")
		started := time.Now()
		_, err := c.NewSession(context.Background(), SessionOptions{})
		ok(t, err)
		if took := time.Since(started); took > 2*time.Second {
			t.Errorf("a session after %v", took)
		}
		f.set(func() {
			if f.node("n1").dials == 0 {
				t.Error("the leader was not tried")
			}
		})
	})
}

// TestNoTunnelWithoutNeed checks that no tunnel is requested if the leader is reachable or soon replaced.
func TestNoTunnelWithoutNeed(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		f.set(func() { f.node("n2").tunnels, f.node("n3").tunnels = true, true })
		s := f.session(c)
		time.Sleep(time.Minute)
		f.set(func() { f.node("n1").down = true })
		f.cut("n1")
		time.Sleep(tunnelAfter / 2)
		f.elect("n2", 2)
		time.Sleep(time.Minute)
		ok(t, s.Err())
		if n := f.asked(); n != 0 {
			t.Errorf("%d tunnels were asked for", n)
		}
	})
}

// TestNoTunnelToASlowLeader checks that a slow leader is not abandoned for a tunnel.
func TestNoTunnelToASlowLeader(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		f.set(func() { f.node("n2").tunnels, f.node("n3").tunnels = true, true })
		s := f.session(c)
		f.set(func() { f.intercept = func(*fakeConn, *wire.Request) bool { return true } })
		waiting := lockSoon(context.Background(), s, "x")
		time.Sleep(silenceMax - time.Second)
		if n := f.asked(); n != 0 {
			t.Errorf("%d tunnels were asked for", n)
		}
		f.set(func() { f.intercept = nil })
		f.cut("n1")
		ok(t, (<-waiting).err)
	})
}

// TestRefusedTunnelsAreAskedForSeldom checks that nodes that refuse tunnels are not asked endlessly.
func TestRefusedTunnelsAreAskedForSeldom(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		f.session(c)
		f.block("n1")
		time.Sleep(30 * time.Second)
		if n := f.asked(); n == 0 || n > 30 {
			t.Errorf("%d tunnels were asked for in 30 s", n)
		}
	})
}

// tunnelling opens a session with the shortest TTL, whose tunnel to n1 leads through n3.
func tunnelling(t *testing.T, f *fake, c *Client) *Session {
	t.Helper()
	f.set(func() { f.node("n2").tunnels, f.node("n3").tunnels = true, true })
	s, err := c.NewSession(context.Background(), SessionOptions{TTL: 5 * time.Second})
	ok(t, err)
	f.set(func() { f.node("n2").down = true })
	f.block("n1")
	time.Sleep(4 * time.Second)
	f.set(func() { f.node("n2").down = false })
	if !c.tunnelled() {
		t.Fatal("there is no tunnel")
	}
	return s
}

// TestEndOfTheTunnellingNode checks that another tunnel is requested soon when the node that has the tunnel dies, although
// the leader was out of reach before.
func TestEndOfTheTunnellingNode(t *testing.T) {
	for range 20 { // which member is asked first is random
		virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
			s := tunnelling(t, f, c)
			time.Sleep(2 * directEvery) // the leader was tried directly meanwhile
			f.set(func() { f.node("n3").down = true })
			f.cut("n3")
			time.Sleep(answerTimeout + tunnelAfter + 10*time.Millisecond)
			if !c.tunnelled() {
				t.Error("there is no tunnel")
			}
			ok(t, s.Err())
			f.set(func() { f.node("n3").down = false })
		})
	}
}

// TestHungTunnelIsReplacedWhileTheLeaderIsTried checks that a tunnel that hangs while the leader is tried
// directly is replaced as soon as any other.
func TestHungTunnelIsReplacedWhileTheLeaderIsTried(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		s := tunnelling(t, f, c)
		c.mu.Lock()
		hung := c.conn
		c.mu.Unlock()
		f.set(func() {
			var there []*fakeConn
			for _, n := range f.nodes {
				there = append(there, n.conns...)
			}
			f.intercept = func(cn *fakeConn, _ *wire.Request) bool { return slices.Contains(there, cn) }
		})
		for unanswered := false; !unanswered; {
			time.Sleep(time.Millisecond)
			c.mu.Lock()
			if unanswered = c.oldest() != nil; unanswered {
				hung.retry = c.clock.Now()
				c.search.arm()
			}
			c.mu.Unlock()
		}
		time.Sleep(2*c.hungAfter() + 10*time.Millisecond)
		c.mu.Lock()
		if c.conn == hung || c.conn == nil {
			t.Error("the tunnel that hangs is kept")
		}
		c.mu.Unlock()
		time.Sleep(10 * time.Second)
		ok(t, s.Err())
	})
}

// TestNextLeaderIsOutOfReachToo checks that the next leader is dialled beside a connection to another node,
// and that a tunnel to it is requested soon.
func TestNextLeaderIsOutOfReachToo(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		s := tunnelling(t, f, c)
		asked := f.asked()
		f.block("n2")
		f.elect("n2", 2)
		f.cut("n3")
		time.Sleep(2*answerTimeout + tunnelAfter + 10*time.Millisecond) // the last and the next leader may be asked first
		if n := f.asked(); n != asked+1 || !c.tunnelled() {
			t.Errorf("%d tunnels were asked for, want one more than %d", n, asked)
		}
		time.Sleep(time.Minute)
		ok(t, s.Err())
	})
}

// TestNextLeaderEndsTheDialToTheLast checks that a client that still dials one leader connects to the next one
// as soon as it hears of it.
func TestNextLeaderEndsTheDialToTheLast(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		s := tunnelling(t, f, c)
		f.set(func() { f.node("n2").down, f.node("n3").tunnels = true, false })
		f.cut("n3")
		dialling := func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.conn != nil && c.conn.node == "n3" && c.search.at("n1:7400").cancel != nil
		}
		for started := time.Now(); !dialling(); time.Sleep(time.Millisecond) {
			if time.Since(started) > helloTimeout {
				t.Fatal("the client does not dial the leader")
			}
		}
		f.set(func() { f.node("n2").down = false })
		f.elect("n2", 2)
		time.Sleep(10 * time.Millisecond)
		c.mu.Lock()
		connected := c.conn != nil && c.conn.node == "n2"
		c.mu.Unlock()
		if !connected {
			t.Error("the client is not connected to the next leader")
		}
		ok(t, s.Err())
	})
}

// TestNextLeaderIsWithinReach checks that a client that had a tunnel to one leader connects to the next one
// directly if possible.
func TestNextLeaderIsWithinReach(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		s := tunnelling(t, f, c)
		asked := f.asked()
		f.elect("n2", 2)
		f.cut("n3")
		time.Sleep(2*answerTimeout + tunnelAfter + 10*time.Millisecond) // by then a tunnel would be requested
		if n := f.asked(); n != asked || c.tunnelled() {
			t.Errorf("%d tunnels were asked for, want no more than %d", n, asked)
		}
		time.Sleep(time.Minute)
		ok(t, s.Err())
	})
}
