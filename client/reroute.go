package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// rerouteAfter is how long a leader must be unreachable before the client asks for a tunnel. A dead
	// leader is usually replaced sooner, and its clients should not all ask at the same time.
	rerouteAfter = 400 * time.Millisecond
	// rerouteTimeout bounds opening a tunnel, including the leader's hello.
	rerouteTimeout = 2 * time.Second
	// helperFor is how long a node's report about the leader is used.
	helperFor = 3 * time.Second
	// directEvery is the longest interval at which a client with a tunnel tries the leader directly; the
	// shortest is half of it.
	directEvery = 10 * time.Second
	// Backoff of tunnels that could not be opened.
	rerouteFirst = 250 * time.Millisecond
	rerouteMost  = 4 * time.Second
)

// helper is a node that has named another node as leader.
type helper struct {
	addr   string
	leader *wire.LeaderHint
	at     time.Duration // when it did
}

// rerouteTries is how many consecutive attempts a client that had a tunnel makes to get another one.
const rerouteTries = 3

// reroute is the state of reaching the leader over another path.
type reroute struct {
	to     *wire.LeaderHint   // the leader being tried; nil if none is
	cancel context.CancelFunc // ends the attempt; nil before the first one
	after  time.Duration      // the earliest time of the next attempt
	tries  int                // consecutive failed attempts
	direct bool               // the leader of a tunnel is being tried directly
	// used means that the last leader was reached through a tunnel, so the next one may be unreachable too.
	// The client then dials a leader beside a connection to another node, never instead of it.
	used bool
}

// noteTunnelNode remembers a node that may be able to reach the leader.
func (c *Client) noteTunnelNode(cn *conn, h leaderReport) {
	if h.leads() || h.addr == "" {
		return
	}
	c.helper = helper{h.addr, h.leader, c.clock.Now()}
	c.armAround(cn)
}

// around returns the leader that cannot be reached directly and the node to ask for a tunnel. to is nil if
// no tunnel is needed. If the connection is to the leader itself, via is empty: another node has to be
// found.
func (c *Client) around(cn *conn) (to *wire.LeaderHint, via string) {
	if cn.leads {
		return &wire.LeaderHint{Id: cn.node, ClientAddr: c.leader.GetClientAddr(), Term: cn.term}, ""
	}
	to = c.leader
	if to.GetId() == "" || to.GetId() == cn.node || to.GetClientAddr() == "" || !c.wanted() || !c.reroute.used && !c.failed(to) {
		return nil, ""
	}
	fresh := c.clock.Now()-c.helper.at < helperFor
	if c.reroute.tries%2 == 1 && fresh && c.helper.leader.GetId() == to.GetId() {
		return to, c.helper.addr
	}
	return to, cn.addr
}

// failed reports whether that leader is the one that last could not be reached.
func (c *Client) failed(to *wire.LeaderHint) bool {
	return to.GetClientAddr() == c.avoid.addr && to.GetTerm() <= c.avoid.term
}

// aroundAt returns when to look for another path to the leader: soon after it stopped answering or could
// not be reached, or never if there is no need.
func (c *Client) aroundAt(cn *conn) time.Duration {
	to, _ := c.around(cn)
	if to == nil || c.reroute.to != nil {
		return never
	}
	switch oldest := c.oldest(); {
	case !cn.leads && c.reroute.used:
		return c.reroute.after
	case !cn.leads:
		return max(c.avoid.since+rerouteAfter, c.reroute.after)
	case oldest != nil:
		return max(oldest.sentAt+c.hungAfter(), c.reroute.after)
	}
	return never
}

// directAt returns when to try the leader of a tunnel directly.
func (c *Client) directAt(cn *conn) time.Duration {
	if cn.direct == "" || c.reroute.direct {
		return never
	}
	return cn.retry
}

// rerouteAt returns the earlier of aroundAt and directAt.
func (c *Client) rerouteAt(cn *conn) time.Duration { return min(c.aroundAt(cn), c.directAt(cn)) }

// hungAfter returns how long a leader may leave a request unanswered before the client looks for another
// path. It is also how long the leader then has to answer on another connection. A session with the
// shortest TTL has enough time for both, for opening a tunnel, and, if that fails, for its user to end its
// work safely.
func (c *Client) hungAfter() time.Duration { return max(answerTimeout, c.silence/4) }

// armAround sets the alarm for the next attempt to find another path.
func (c *Client) armAround(cn *conn) {
	if at := c.rerouteAt(cn); at != never {
		c.armAt(at)
	}
}

// requestTunnel looks for another path to the leader if it is time.
func (c *Client) requestTunnel(cn *conn, now time.Duration) {
	if now >= c.directAt(cn) {
		c.goDirect(cn, now)
	}
	if now < c.aroundAt(cn) {
		return
	}
	to, via := c.around(cn)
	find := func(ctx context.Context) (*conn, error) { return c.dialThrough(ctx, via, to) }
	if limit := c.hungAfter(); cn.leads {
		find = func(ctx context.Context) (*conn, error) { return c.reach(ctx, to, limit) }
	} else if c.reroute.used {
		find = func(ctx context.Context) (*conn, error) { return c.race(ctx, via, to) }
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.reroute.to, c.reroute.cancel = to, cancel
	c.wg.Go(func() {
		defer cancel()
		made, err := find(ctx)
		c.mu.Lock()
		defer c.unlock()
		c.reroute.to = nil
		if err != nil && to.GetTerm() >= c.leader.GetTerm() { // a later leader has not been tried yet
			c.reroute.tries++
			c.reroute.used = c.reroute.used && c.reroute.tries < rerouteTries
			c.reroute.after = c.clock.Now() + rerouteFirst + backoff(c.reroute.tries, rerouteFirst, rerouteMost)
		}
		c.replace(cn, made, err)
	})
}

// goDirect tries the leader directly while a tunnel to it is in use. The attempt runs in the background: if
// the tunnel stalls meanwhile, it is replaced by another one.
func (c *Client) goDirect(cn *conn, now time.Duration) {
	cn.retry = now + directEvery/2 + rand.N(directEvery/2)
	c.reroute.direct = true
	c.wg.Go(func() {
		made, err := c.dial(c.ctx, cn.direct)
		c.mu.Lock()
		defer c.unlock()
		c.reroute.direct = false
		c.replace(cn, made, err)
	})
}

// race connects to a leader directly and, if that takes longer than rerouteAfter or fails, also through
// another node. The first connection wins.
func (c *Client) race(ctx context.Context, via string, to *wire.LeaderHint) (*conn, error) {
	type attempt struct {
		cn  *conn
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found := make(chan attempt, 2)
	try := func(find func() (*conn, error)) {
		c.wg.Go(func() {
			cn, err := find()
			found <- attempt{cn, err}
		})
	}
	try(func() (*conn, error) { return c.dialLeader(ctx, to.GetClientAddr()) })
	running, later := 1, time.After(rerouteAfter)
	var errs []error
	for {
		select {
		case a := <-found:
			running--
			if a.err == nil {
				c.wg.Go(func() {
					for range running {
						if a := <-found; a.err == nil {
							a.cn.discard()
						}
					}
				})
				return a.cn, nil
			}
			errs = append(errs, a.err)
		case <-later:
		}
		if later != nil {
			later = nil
			running++
			try(func() (*conn, error) { return c.dialThrough(ctx, via, to) })
		}
		if running == 0 {
			return nil, errors.Join(errs...)
		}
	}
}

// dialLeader connects to a node and returns an error if it does not lead.
func (c *Client) dialLeader(ctx context.Context, addr string) (*conn, error) {
	cn, err := c.dial(ctx, addr)
	if err == nil && !cn.leads {
		cn.discard()
		return nil, fmt.Errorf("%s: node %q does not lead", addr, cn.node)
	}
	return cn, err
}

// reroutes reports whether leaders are only dialled beside a connection to another node.
func (c *Client) reroutes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reroute.used
}

// reach opens a tunnel to a leader that does not answer on the existing connection. It first gives the
// leader limit to answer on a new connection; a leader that does is only slow.
func (c *Client) reach(ctx context.Context, to *wire.LeaderHint, limit time.Duration) (*conn, error) {
	found := make(chan string, 1)
	c.wg.Go(func() { found <- c.findHelper(ctx, to) })
	direct, err := c.dialWithin(ctx, to.GetClientAddr(), limit)
	via := <-found
	switch {
	case err == nil:
		direct.discard()
		return nil, errors.New("the leader answers a hello")
	case via == "":
		return nil, fmt.Errorf("nobody follows the leader %s: %w", to.GetId(), err)
	}
	return c.dialThrough(ctx, via, to)
}

// findHelper asks all nodes for the leader and returns the address of the first node that follows this
// leader. It returns the empty string if there is none.
func (c *Client) findHelper(ctx context.Context, to *wire.LeaderHint) (via string) {
	c.survey(ctx, func(addr string) bool { return addr == to.GetClientAddr() }, func(h leaderReport) bool {
		if h.leader.GetId() == to.GetId() && h.leader.GetTerm() >= to.GetTerm() && !h.leads() {
			via = h.addr
		}
		return via != ""
	})
	return via
}

// dialThrough connects to a leader through another node.
func (c *Client) dialThrough(ctx context.Context, via string, to *wire.LeaderHint) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, rerouteTimeout)
	defer cancel()
	nc, reply, in, err := c.hello(ctx, via, to.GetId())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", via, err)
	}
	answer := reply.GetTunnel()
	if answer.GetStatus() == wire.Status_OK {
		reply, in, err = transport.ClientHandshake(ctx, nc, &wire.Hello{Agent: c.cfg.Agent})
		if err != nil {
			transport.Cut(nc)
			return nil, fmt.Errorf("%s: through a tunnel: %w", via, err)
		}
	}
	made := newConn(via, nc, reply, in)
	if !made.leads {
		made.discard()
		return nil, fmt.Errorf("%s: no tunnel to %s: %s: %s", via, to.GetId(), answer.GetStatus(), answer.GetMessage())
	}
	if answer.GetStatus() == wire.Status_OK {
		made.direct = to.GetClientAddr()
		made.retry = c.clock.Now() + directEvery/2 + rand.N(directEvery/2)
	}
	return made, nil
}

// replace switches from cn to the connection made beside it, if that is still useful.
func (c *Client) replace(cn, made *conn, err error) {
	switch {
	case made == nil:
		c.note(slog.LevelDebug, "no other way to the leader", "err", err)
	case c.closed || c.conn != cn || cn.err != nil || !made.leads || made.term < c.leader.GetTerm():
		made.discard()
	case made.direct == "" && cn.direct != "" && c.unrepeatable(): // keep the tunnel for now
		cn.retry = c.clock.Now() + time.Second
		made.discard()
	default:
		c.reroute.tries = 0
		c.made = made
		cn.fail(fmt.Errorf("leader is reached through %s now", made.addr))
		return
	}
	c.armAround(cn)
}

// unrepeatable reports whether a request is in flight whose outcome would be unknown if the connection
// ended.
func (c *Client) unrepeatable() bool {
	for k := c.flight.head; k != nil; k = k.links[lane].next {
		if k.kind == kindAdmin || k.kind == kindOperate {
			return true
		}
	}
	return false
}

func (c *Client) takeMade() *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := c.made
	c.made = nil
	return made
}

// discardMade discards an established connection that will not be used.
func (c *Client) discardMade() {
	if made := c.takeMade(); made != nil {
		made.discard()
	}
}
