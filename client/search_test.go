package client

import (
	"net"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// stoppedClock is a clock whose timers never fire.
type stoppedClock struct{ Clock }

func (stoppedClock) AfterFunc(time.Duration, func()) Timer { return time.NewTimer(never) }

// still returns a client whose goroutine does not run, with a request to send. It is connected to a node
// that follows n1 in term 5. Its clock is at 1 s plus the time of the bubble.
func still(t *testing.T) (*Client, *conn) {
	cfg := makeFake(3).config()
	cfg.Clock = stoppedClock{cfg.Clock}
	c := newClient(cfg)
	t.Cleanup(c.cancel)
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	cn := newConn("n2:7400", &greeting{nc: near, reply: &wire.HelloReply{NodeId: "n2", ClusterId: "c", Leader: hintOf("n1", 5)}})
	t.Cleanup(cn.discard)
	c.conn, c.leader, c.cluster = cn, hintOf("n1", 5), "c"
	c.search.at(cn.addr).said, c.search.at(cn.addr).node = hintOf("n1", 5), "n2"
	c.sessions[7] = newSession(c)
	return c, cn
}

func hintOf(id string, term uint64) *wire.LeaderHint {
	return &wire.LeaderHint{Id: id, ClientAddr: id + ":7400", Term: term}
}

// leading makes the connected node, n2, leader of term 5.
func leading(c *Client, cn *conn) { cn.leads, cn.term, c.leader = true, 5, hintOf("n2", 5) }

// TestAttachedAnewInALaterTerm checks that sessions are attached again to a node that leads in a new term,
// but not to one that still leads.
func TestAttachedAnewInALaterTerm(t *testing.T) {
	for term, want := range map[uint64]bool{4: false, 5: false, 6: true} {
		bubble.Test(t, func(t *testing.T) {
			c, cn := still(t)
			leading(c, cn)
			s := c.sessions[7]
			s.conn = cn
			c.leadsNow(cn, term)
			if again := s.attaching != nil; again != want || again == (s.conn == cn) || cn.term != max(term, 5) {
				t.Errorf("term %d: attached anew is %v, term %d", term, again, cn.term)
			}
		})
	}
}

// open returns the connections that the client has not ended.
func (f *fake) open() (open []*fakeConn) {
	f.mu.Lock()
	var all []*fakeConn
	for _, n := range f.nodes {
		all = append(all, n.conns...)
	}
	f.mu.Unlock()
	for _, cn := range all {
		_ = cn.nc.SetWriteDeadline(time.Now().Add(time.Millisecond))
		if _, err := cn.nc.Write([]byte{0}); err != nil && !isClosed(err) {
			open = append(open, cn)
		}
	}
	return open
}

func isClosed(err error) bool {
	timeout, is := err.(net.Error)
	return !is || !timeout.Timeout()
}
