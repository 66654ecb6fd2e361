package rpc

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Tests of clients that do not read. In-memory connections have no buffer, so unread data waits in the
// outbox.

func TestClientThatDoesNotReadIsCut(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := serveInMemory(t, func(c *Config) {
			c.Limits.MaxFrameBytes, c.Limits.MaxOutboxBytes = 64<<10, 128<<10
			c.Limits.FrameTimeout = time.Hour // so that the bound on bytes cuts the connection
		})
		slow := connect(t, p)
		_ = slow.conn.SetDeadline(time.Time{})
		session := slow.open(secret)
		for sent := 0; ; sent++ {
			// Refused requests are answered immediately, and the answers never read.
			if slow.w.Write(&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: acquire(session, 0, "l", false)}}) != nil {
				break
			}
			if sent > 128<<10 {
				t.Fatal("the node never cut the client off")
			}
		}
		synctest.Wait()
		if n := p.log.count("SLOW_CONSUMER"); n != 1 {
			t.Errorf("%d reasons in the log, want 1", n)
		}
		unhurt(t, p)
	})
}

func TestWriteThatTakesTooLongCutsTheClient(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := serveInMemory(t, func(c *Config) { c.Limits.FrameTimeout = 3 * time.Second })
		c := connect(t, p)
		c.open(secret)
		c.send(&wire.Request{Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{Stale: true}}}) // the client never reads
		<-time.After(4 * time.Second)
		synctest.Wait()
		if n := p.log.count("SLOW_CONSUMER"); n != 1 || p.replica.bound() != 0 {
			t.Errorf("%d reasons in the log, %d sessions bound", n, p.replica.bound())
		}
	})
}

func TestPagesDoNotCostASlowReaderItsConnection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := serveInMemory(t, func(c *Config) { c.Limits.MaxFrameBytes, c.Limits.MaxOutboxBytes = 64<<10, 256<<10 })
		c := connect(t, p)
		session := c.open(secret)
		for i := range 200 {
			c.expect(wire.Status_GRANTED, acquire(session, uint64(i+1), fmt.Sprintf("some/lock/with/a/name/of/%d", i), false))
		}
		var ids []uint64
		for range 100 {
			ids = append(ids, c.send(&wire.Request{Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{PageSize: 1000}}}))
		}
		synctest.Wait() // until all answers wait in the outbox
		pages := 0
		for _, id := range ids {
			switch resp := c.await(id); resp.GetResult().GetStatus() {
			case wire.Status_OK:
				pages++
			case wire.Status_UNAVAILABLE, wire.Status_RESOURCE_EXHAUSTED:
			default:
				t.Fatalf("answer %v", resp)
			}
		}
		if pages == 0 || pages == len(ids) {
			t.Errorf("%d of %d pages were answered", pages, len(ids))
		}
		if n := p.replica.gathered(); n != pages {
			t.Errorf("%d pages were gathered, %d were sent", n, pages)
		}
		c.expect(wire.Status_OK, heartbeat(session))
	})
}
