package rpc

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func watchAll(after uint64) *wire.Request {
	return &wire.Request{Body: &wire.Request_Watch{Watch: &wire.WatchRequest{AfterRevision: after}}}
}

func unwatch(id uint64) *wire.Request {
	return &wire.Request{Body: &wire.Request_EndRequest{EndRequest: &wire.EndRequest{RequestId: id}}}
}

// seen waits for the watch's next push.
func (p *peer) seen(id uint64) *wire.WatchResponse {
	p.t.Helper()
	for {
		if w := p.push().GetWatch(); w.GetRequestId() == id {
			return w.GetResponse()
		}
	}
}

func TestWatchUntilItIsEnded(t *testing.T) {
	p := serve(t, nil)
	c, busy := connect(t, p), connect(t, p)
	session := busy.open(secret)
	id := c.send(watchAll(0))
	started := c.await(id)
	if w := started.GetWatch(); started.GetResult().GetStatus() != wire.Status_OK || w.GetLineage() != lineage || w.GetStatus() != wire.Status_OK {
		t.Fatalf("begun: %v", started)
	}
	c.expect(wire.Status_INVALID_ARGUMENT, func() *wire.Request { c.nextID = id - 1; return watchAll(0) }())
	c.nextID = id
	busy.expect(wire.Status_GRANTED, acquire(session, 1, "l", false))
	if got := c.seen(id); len(got.GetEvents()) != 1 || got.GetEvents()[0].GetType() != wire.Event_GRANTED || got.GetRevision() != got.GetEvents()[0].GetRevision() {
		t.Errorf("seen: %v", got)
	}
	resumed := c.call(watchAll(started.GetWatch().GetRevision()))
	if got := c.seen(resumed.GetId()); len(got.GetEvents()) != 1 {
		t.Errorf("after %d: %v", started.GetWatch().GetRevision(), got)
	}
	c.expect(wire.Status_OK, unwatch(id))
	c.expect(wire.Status_OK, unwatch(resumed.GetId()))
	busy.expect(wire.Status_GRANTED, acquire(session, 2, "m", false))
	c.expect(wire.Status_NOT_FOUND, unwatch(id))
	if len(c.pushes) != 0 {
		t.Errorf("after the end: %v", c.pushes)
	}
}

func TestWatchesThatCannotBegin(t *testing.T) {
	p := serve(t, func(c *Config) { c.Limits.MaxWatchesPerConnection = 3 })
	p.replica.history.Floor = 50
	c := connect(t, p)
	compacted := c.expect(wire.Status_COMPACTED, watchAll(49))
	if compacted.GetWatch().GetOldest() != 50 || compacted.GetResult().GetMessage() == "" {
		t.Errorf("compacted: %v", compacted)
	}
	var last *wire.Response
	for range 3 {
		last = c.expect(wire.Status_OK, watchAll(0))
	}
	refused := c.expect(wire.Status_RESOURCE_EXHAUSTED, watchAll(0))
	if !strings.Contains(refused.GetResult().GetMessage(), "max_watches_per_connection") {
		t.Errorf("refused: %v", refused)
	}
	connect(t, p).expect(wire.Status_OK, watchAll(0))
	c.expect(wire.Status_OK, unwatch(last.GetId()))
	c.expect(wire.Status_OK, watchAll(0))
}

func TestWatchFromTheFuture(t *testing.T) {
	p := serve(t, nil)
	p.replica.history.Floor = 50
	c := connect(t, p)
	refused := c.expect(wire.Status_INVALID_ARGUMENT, &wire.Request{Body: &wire.Request_Watch{Watch: &wire.WatchRequest{AfterRevision: 51, Lineage: lineage}}})
	if !strings.Contains(refused.GetResult().GetMessage(), "the present revision is 50") {
		t.Errorf("refused: %v", refused)
	}
	c.expect(wire.Status_COMPACTED, &wire.Request{Body: &wire.Request_Watch{Watch: &wire.WatchRequest{AfterRevision: 51, Lineage: "another"}}})
}

func TestWatchEndsWithTheLeadership(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	id := c.expect(wire.Status_OK, watchAll(0)).GetId()
	p.replica.moveLeader(&wire.LeaderHint{Id: self, Term: 2}) // the same node leads again, so nothing was missed
	p.replica.moveLeader(&wire.LeaderHint{Id: other, Term: 3})
	if got := c.seen(id); got.GetStatus() != wire.Status_UNAVAILABLE || got.GetLineage() != lineage || got.GetMessage() == "" {
		t.Errorf("last word: %v", got)
	}
	if resp := c.expect(wire.Status_NOT_LEADER, watchAll(0)); resp.GetLeader().GetId() != other {
		t.Errorf("no hint: %v", resp)
	}
	eventually(t, "all watches have ended", func() bool { return c.call(unwatch(id)).GetResult().GetStatus() == wire.Status_NOT_FOUND })
}

func TestWatchEndsWithTheNode(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	id := c.expect(wire.Status_OK, watchAll(0)).GetId()
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		closed <- p.Close(ctx)
	}()
	if got := c.seen(id); got.GetStatus() != wire.Status_UNAVAILABLE || got.GetMessage() != shutdownMessage {
		t.Errorf("last word: %v", got)
	}
	c.goodbye(wire.Goodbye_SHUTDOWN)
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestWatchingIsNotIdling(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := serveInMemory(t, func(c *Config) { c.Limits.IdleTimeout = 10 * time.Second })
		c := connect(t, p)
		_ = c.conn.SetDeadline(time.Time{})
		id := c.expect(wire.Status_OK, watchAll(0)).GetId()
		<-time.After(time.Hour)
		c.expect(wire.Status_OK, unwatch(id))
		c.goodbye(wire.Goodbye_IDLE)
	})
}

// TestWatchThatIsNotReadIsCompacted verifies that a client that does not read its watch loses only the events
// that the node drops meanwhile: little is queued for it, its connection survives, and its other requests are
// answered as soon as it reads again.
func TestWatchThatIsNotReadIsCompacted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const bound, size = 100, 8 << 10
		p := serveInMemory(t, func(c *Config) { c.Limits.FrameTimeout = time.Hour })
		p.replica.history.Bound = bound
		c := connect(t, p)
		_ = c.conn.SetDeadline(time.Time{})
		session := c.open(secret)
		id := c.expect(wire.Status_OK, watchAll(0)).GetId()
		next := p.replica.history.Last()
		for range 100 * bound { // 80 MB
			next++
			p.replica.history.Add(&wire.Event{Type: wire.Event_RELEASED, Revision: next, Lock: "l", Reason: strings.Repeat("r", size)})
			synctest.Wait()
		}
		beating := c.send(heartbeat(session))
		synctest.Wait()
		for conn := range p.conns {
			if q := conn.out.Queued(); q > 2*watchRoom {
				t.Errorf("%d bytes wait for the client", q)
			}
		}
		var last uint64
		for {
			got := c.seen(id)
			if got.GetStatus() == wire.Status_COMPACTED {
				if got.GetOldest() != next-bound {
					t.Errorf("compacted: %v, %d were applied", got, next)
				}
				break
			}
			for _, e := range got.GetEvents() {
				if last != 0 && e.GetRevision() != last+1 {
					t.Fatalf("%d follows %d", e.GetRevision(), last)
				}
				last = e.GetRevision()
			}
		}
		if got := c.await(beating).GetResult().GetStatus(); got != wire.Status_OK {
			t.Errorf("heartbeat: %v", got)
		}
		if n := p.log.count("SLOW_CONSUMER"); n != 0 {
			t.Error("the connection was cut")
		}
	})
}

func TestPiecesFitAndCanBeResumed(t *testing.T) {
	resp := &wire.WatchResponse{Revision: 12, Lineage: lineage, Status: wire.Status_OK}
	for i := range 50 {
		resp.Events = append(resp.Events, &wire.Event{Type: wire.Event_RELEASED, Revision: uint64(i/10 + 7), Lock: fmt.Sprintf("%0100d", i)})
	}
	const limit = 500
	parts := pieces(resp, limit)
	var events []*wire.Event
	for i, part := range parts {
		if size := proto.Size(part); size > limit {
			t.Errorf("piece %d has %d bytes", i, size)
		}
		events = append(events, part.GetEvents()...)
		rest := resp.GetEvents()[len(events):]
		if len(rest) > 0 && rest[0].GetRevision() <= part.GetRevision() {
			t.Errorf("who resumes after %d misses %v", part.GetRevision(), rest[0])
		}
	}
	if len(events) != 50 || parts[len(parts)-1].GetRevision() != 12 {
		t.Errorf("%d events, the last piece is %v", len(events), parts[len(parts)-1])
	}
	if whole := pieces(resp, 1<<20); len(whole) != 1 || whole[0] != resp {
		t.Error("what fits is split")
	}
}
