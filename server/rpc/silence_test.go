package rpc

import (
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/command"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Tests of timeouts, in virtual time.

func TestHalfOpenHandshakesAreCut(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := serveInMemory(t, func(c *Config) { c.Limits.HandshakeTimeout = 2 * time.Second })
		began := time.Now()
		silent, slow := dial(t, p), dial(t, p)
		if _, err := io.WriteString(slow, transport.Preface+"\x00\x00"); err != nil {
			t.Fatal(err)
		}
		unhurt(t, p)
		closedByNode(t, silent)
		closedByNode(t, slow)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("cut after %v", took)
		}
		synctest.Wait()
		if n := p.log.count("connection refused"); n != 2 {
			t.Errorf("%d reasons in the log, want 2", n)
		}
		unhurt(t, p)
	})
}

func TestSlowFrameIsCutWhileSilenceWithASessionIsNot(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := serveInMemory(t, func(c *Config) { c.Limits.FrameTimeout, c.Limits.IdleTimeout = 3*time.Second, time.Second })
		regular, loris := connect(t, p), connect(t, p)
		session := regular.open(secret)
		loris.open([]byte("a-secret-of-sixteen"))
		began := time.Now()
		var dripping sync.WaitGroup
		dripping.Go(func() {
			for part := []byte{0, 0, 1}; ; part = []byte{0} { // further bytes now and then do not extend the timeout
				if _, err := loris.conn.Write(part); err != nil {
					return
				}
				<-time.After(700 * time.Millisecond)
			}
		})
		loris.goodbye(wire.Goodbye_PROTOCOL_ERROR)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("cut after %v", took)
		}
		dripping.Wait()
		regular.expect(wire.Status_OK, heartbeat(session))
	})
}

func TestIdleConnectionIsNotifiedAndClosed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := serveInMemory(t, func(c *Config) { c.Limits.IdleTimeout = 2 * time.Second })
		began := time.Now()
		connect(t, p).goodbye(wire.Goodbye_IDLE)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("closed after %v", took)
		}
		late := connect(t, p)
		session := late.open(secret)
		<-time.After(5 * time.Second)
		late.expect(wire.Status_OK, &wire.Request{SessionId: session, Body: &wire.Request_CloseSession{CloseSession: &wire.CloseSession{}}})
		late.goodbye(wire.Goodbye_IDLE)
		if n := p.log.count("[WARN]"); n != 0 {
			t.Errorf("%d warnings for idle connections", n)
		}
	})
}

func TestFramesNowAndThenKeepAConnection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := serveInMemory(t, func(c *Config) { c.Limits.IdleTimeout = 4 * time.Second })
		c := connect(t, p)
		_ = c.conn.SetDeadline(time.Time{})
		for range 10 {
			<-time.After(3900 * time.Millisecond)
			c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{}}})
		}
	})
}

func TestRequestUnderWayKeepsAConnection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := serveInMemory(t, func(c *Config) { c.Limits.IdleTimeout = time.Second })
		p.replica.hold()
		waits, idle := connect(t, p), connect(t, p)
		id := waits.send(&wire.Request{Body: &wire.Request_OpenSession{OpenSession: &wire.OpenRequest{Secret: secret}}})
		idle.goodbye(wire.Goodbye_IDLE)
		p.replica.release()
		if got := waits.await(id).GetResult().GetStatus(); got != wire.Status_OK {
			t.Errorf("status %v", got)
		}
	})
}

// knowing reports the session's deadline with each proposal.
type knowing struct{ *fake }

func (k knowing) ProposeAll(all []command.Proposal) {
	for _, one := range all {
		*one.Until = time.Now().Add(5 * time.Second)
	}
	k.fake.ProposeAll(all)
}

func TestAnswerContainsTheRemainingTTL(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := serveInMemory(t, func(c *Config) { c.Replica = knowing{c.Replica.(*fake)} })
		c := connect(t, p)
		session := c.open(secret)
		p.replica.hold()
		id := c.send(acquire(session, 1, "orders/1", true))
		<-time.After(2 * time.Second)
		p.replica.release()
		if left := c.await(id).RemainingTtlMs; left != 3000 {
			t.Errorf("%d ms of what was known when it was proposed, want 3000", left)
		}
		if left := c.expect(wire.Status_OK, heartbeat(session)).RemainingTtlMs; left != 9000 {
			t.Errorf("%d ms after a heartbeat, want 9000", left)
		}
	})
}
