package keys

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// lock acquires in the background through a node.
func (n *node) lock(ctx context.Context) (result chan *wire.Result, failed chan error) {
	result, failed = make(chan *wire.Result, 1), make(chan error, 1)
	go func() {
		open := &wire.OpenLease{SecretHash: n.c.secret(), Client: &wire.ClientInfo{Name: "c"}}
		res, err := n.service.Lock(as(ctx, "ann"), identity.Sender{Identity: "ann", Connection: 1}, open)
		if err != nil {
			failed <- err
			return
		}
		result <- res
	}()
	synctest.Wait()
	return result, failed
}

// secret returns another hash of a secret.
func (c *cluster) secret() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secrets++
	return fmt.Append(nil, c.secrets)
}

// queue makes a node answer acquires with QUEUED in that session.
func (n *node) queue(session uint64) {
	n.propose = func(cmd *wire.Command, done func(*wire.Result)) bool {
		if cmd.GetOpenLease() == nil {
			return false
		}
		if nodeOf(cmd.GetOpenLease().GetClient()) == "" || cmd.GetCaller().GetIdentity() != "ann" {
			n.c.t.Errorf("proposed %v", cmd)
		}
		done(&wire.Result{Status: wire.Status_QUEUED, SessionId: session})
		return true
	}
}

// finish delivers the final outcome of a wait.
func (n *node) finish(session uint64, status wire.Status_Code) {
	n.mu.Lock()
	done := n.awaits[session]
	n.mu.Unlock()
	done(&wire.Result{Status: status, HoldId: 5})
}

func (c *cluster) releases() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.released
}

// TestLockWaits verifies that an acquire waits through a follower and through a change of the leader.
func TestLockWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		c.nodes["n1"].queue(3)
		c.nodes["n3"].queue(3)
		for _, id := range []string{"n1", "n2"} {
			c.elect("n1")
			granted, _ := c.nodes[id].lock(t.Context())
			<-time.After(time.Minute)
			c.nodes["n1"].die()
			c.elect("n3")
			c.nodes["n1"].finish(3, wire.Status_UNCERTAIN)
			<-time.After(time.Minute)
			c.nodes["n3"].finish(3, wire.Status_GRANTED)
			if res := <-granted; res.GetStatus() != wire.Status_GRANTED || res.GetHoldId() != 5 || c.releases() != 0 {
				t.Errorf("through %s: %v, %d releases", id, res, c.releases())
			}
		}
	})
}

// TestAbandonedLock verifies that nothing is left behind by an acquire whose caller has gone, whatever the leader does.
func TestAbandonedLock(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, id := range []string{"n1", "n2"} {
			for what, during := range map[string]func(c *cluster, leave func()){
				"while it waits": func(_ *cluster, leave func()) { leave() },
				"without a leader": func(c *cluster, leave func()) {
					c.elect("")
					c.nodes["n1"].die()
					leave()
					<-time.After(time.Second)
					c.elect("n3")
				},
				"when it is granted": func(c *cluster, leave func()) {
					leave()
					c.nodes["n1"].finish(3, wire.Status_GRANTED)
				},
			} {
				c := newCluster(t, nil)
				c.nodes["n1"].queue(3)
				ctx, leave := context.WithCancel(t.Context())
				_, failed := c.nodes[id].lock(ctx)
				during(c, leave)
				if err := <-failed; !errors.Is(err, context.Canceled) {
					t.Errorf("%s through %s: %v", what, id, err)
				}
				<-time.After(time.Second)
				if n := c.releases(); n != 1 {
					t.Errorf("%s through %s: %d releases", what, id, n)
				}
			}
		}
	})
}

// TestLockOfUnknownOutcome verifies that an acquire which ends without an outcome is released as soon as that is
// possible.
func TestLockOfUnknownOutcome(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		c.nodes["n1"].queue(3)
		_, failed := c.nodes["n2"].lock(t.Context())
		c.elect("")
		if err := <-failed; !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		c.elect("n3")
		<-time.After(time.Second)
		if n := c.releases(); n != 1 {
			t.Errorf("%d releases", n)
		}
	})
}

// TestRefusedLocks verifies that a refused acquire is not released, and that the acquires that wait are bounded.
func TestRefusedLocks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, func(cfg *Config) { cfg.MaxInFlight = 4 })
		ctx, leave := context.WithCancel(t.Context())
		c.nodes["n1"].queue(3)
		for range 2 {
			c.nodes["n2"].lock(ctx)
		}
		refused, _ := c.nodes["n2"].lock(t.Context())
		if res := <-refused; res.GetStatus() != wire.Status_RESOURCE_EXHAUSTED || res.GetMessage() == "" {
			t.Errorf("%v", res)
		}
		if res, err := c.nodes["n2"].change("a"); err != nil || res.GetStatus() != wire.Status_GRANTED {
			t.Errorf("a change meanwhile: %v, %v", res, err)
		}
		leave()
		<-time.After(time.Second)
		if n := c.releases(); n != 2 {
			t.Errorf("%d releases", n)
		}
		c.nodes["n1"].propose = nil
		refused, _ = c.nodes["n2"].lock(t.Context())
		if res := <-refused; res.GetStatus() != wire.Status_INVALID_ARGUMENT || c.releases() != 2 {
			t.Errorf("%v, %d releases", res, c.releases())
		}
	})
}

// TestRefusedRenewalIsNotTheOutcome verifies that an acquire which waits goes on when a repetition of it is refused: it may
// still be granted.
func TestRefusedRenewalIsNotTheOutcome(t *testing.T) {
	for _, status := range []wire.Status_Code{wire.Status_NOT_LEADER, wire.Status_UNAVAILABLE, wire.Status_RESOURCE_EXHAUSTED} {
		bubble.Test(t, func(t *testing.T) {
			c := newCluster(t, nil)
			n1 := c.nodes["n1"]
			n1.queue(3)
			queue, asked := n1.propose, 0
			n1.propose = func(cmd *wire.Command, done func(*wire.Result)) bool {
				if asked++; asked == 2 {
					done(&wire.Result{Status: status})
					return true
				}
				return queue(cmd, done)
			}
			granted, failed := n1.lock(t.Context())
			<-time.After(time.Minute)
			n1.finish(3, wire.Status_GRANTED)
			select {
			case res := <-granted:
				if res.GetStatus() != wire.Status_GRANTED || asked < 3 {
					t.Errorf("%v: %v after %d proposals", status, res, asked)
				}
			case err := <-failed:
				t.Errorf("%v: %v", status, err)
			}
		})
	}
}
