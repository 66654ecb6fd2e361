package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestProbesDoNotDelayElections is a regression test: a thousand clients without a leader asked every
// node so often that the nodes, on a busy machine, had no time left to elect a leader for a minute.
func TestProbesDoNotDelayElections(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		f.set(func() { f.node("n1").down = true; f.leader = &wire.LeaderHint{} })
		before := f.dials()
		f.cut("n1")
		waiting := lockSoon(context.Background(), s, "x")
		time.Sleep(time.Second)
		if n := f.dials() - before; n > 6 {
			t.Errorf("%d connections in the first second", n)
		}
		time.Sleep(3 * time.Second)
		if n := f.dials() - before; n > 10 {
			t.Errorf("%d connections in four seconds", n)
		}
		f.elect("n2", 3)
		ok(t, (<-waiting).err)
	})
}

// TestProbeReportsTheElection has a client whose own node is cut off from the others and does not report
// the next leader.
func TestProbeReportsTheElection(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		f.set(func() { f.node("n1").believes = &wire.LeaderHint{Term: 2}; f.leader = &wire.LeaderHint{} })
		waiting := lockSoon(context.Background(), s, "x") // refused by n1
		time.Sleep(3 * time.Second)
		elected := time.Now()
		f.elect("n2", 3, "n1")
		ok(t, (<-waiting).err)
		synctest.Wait()
		if took := time.Since(elected); took > 50*time.Millisecond {
			t.Errorf("the new leader was found after %v", took)
		}
	})
}

// TestReportOfTheNextLeaderIsLost has a client that is connected to all nodes, and the next leader's own report is lost.
func TestReportOfTheNextLeaderIsLost(t *testing.T) {
	for _, next := range []string{"n1", "n2", "n3"} {
		virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
			s := f.session(c)
			f.set(func() { f.leader = &wire.LeaderHint{} })
			waiting := lockSoon(context.Background(), s, "x") // refused by n1
			time.Sleep(500 * time.Millisecond)
			elected := time.Now()
			f.elect(next, 3, next)
			ok(t, (<-waiting).err)
			synctest.Wait()
			if took := time.Since(elected); took > 100*time.Millisecond {
				t.Errorf("%s was found after %v", next, took)
			}
		})
	}
}

// TestThousandClientsAtOneFailOver checks that a thousand clients find the next leader within a second, each with few
// connections, of which the nodes get no burst beyond one for each client.
func TestThousandClientsAtOneFailOver(t *testing.T) {
	const clients = 1000
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t, 3)
		var sessions []*Session
		for range clients {
			c, err := New(f.config())
			ok(t, err)
			t.Cleanup(func() { _ = c.Close() })
			s, err := c.NewSession(t.Context(), SessionOptions{TTL: shortTTL})
			ok(t, err)
			sessions = append(sessions, s)
		}
		before := f.dials()
		f.set(func() { f.node("n1").down = true })
		f.cut("n1")
		synctest.Wait()
		if n := f.dials() - before; n > 0 {
			t.Errorf("%d connections at once", n)
		}
		time.Sleep(150 * time.Millisecond)
		f.elect("n2", 2)
		time.Sleep(time.Second)
		for _, s := range sessions {
			s.client.mu.Lock()
			if s.conn == nil || s.conn.node != "n2" {
				t.Errorf("a session is attached to %+v", s.conn)
			}
			s.client.mu.Unlock()
		}
		if n := f.dials() - before; n > 2*clients {
			t.Errorf("%d connections of %d clients", n, clients)
		}
	})
}
