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
	// detourAfter is how long a leader cannot be reached before a tunnel is asked for: one that
	// has died is replaced sooner, mostly, and its clients shall not ask all at once.
	detourAfter = 400 * time.Millisecond
	// detourTimeout bounds the opening of a tunnel, the leader's hello included.
	detourTimeout = 2 * time.Second
	// helperFor is how long what a node said of the leader is good for.
	helperFor = 3 * time.Second
	// directEvery is how often a client with a tunnel tries the leader itself, at least half of it.
	directEvery = 10 * time.Second
	// Back-off of tunnels that were not opened.
	detourFirst = 250 * time.Millisecond
	detourMost  = 4 * time.Second
)

// helper is a node that has named a leader which is another one.
type helper struct {
	addr   string
	leader *wire.LeaderHint
	at     time.Duration // when it did
}

// detourTries is how many attempts in a row a client that had a tunnel makes to keep it that way.
const detourTries = 3

// detour is what is under way to reach a leader otherwise than before.
type detour struct {
	to     *wire.LeaderHint // nil while nothing is under way
	after  time.Duration    // not before that is the next
	tries  int              // in a row that came to nothing
	direct bool             // the leader of a tunnel is being tried itself
	// used: the last leader was reached through a tunnel, and the next one may be out of reach
	// as well. It is dialled beside a connection to another node, never instead of one.
	used bool
}

// heardHelper remembers a node that may know a way to the leader.
func (c *Client) heardHelper(cn *conn, h heardFrom) {
	if h.leads() || h.addr == "" {
		return
	}
	c.helper = helper{h.addr, h.leader, c.clock.Now()}
	c.armAround(cn)
}

// around is the leader that cannot be reached itself, and the node to ask for a tunnel; nil if there
// is no need. If the connection is to the leader, others have to be found.
func (c *Client) around(cn *conn) (to *wire.LeaderHint, via string) {
	if cn.leads {
		return &wire.LeaderHint{Id: cn.node, ClientAddr: c.leader.GetClientAddr(), Term: cn.term}, ""
	}
	to = c.leader
	if to.GetId() == "" || to.GetId() == cn.node || to.GetClientAddr() == "" || !c.wanted() || !c.detour.used && !c.failed(to) {
		return nil, ""
	}
	fresh := c.clock.Now()-c.helper.at < helperFor
	if c.detour.tries%2 == 1 && fresh && c.helper.leader.GetId() == to.GetId() {
		return to, c.helper.addr
	}
	return to, cn.addr
}

// failed reports whether that leader was the last one that could not be reached.
func (c *Client) failed(to *wire.LeaderHint) bool {
	return to.GetClientAddr() == c.avoid.addr && to.GetTerm() <= c.avoid.term
}

// aroundAt is when to look for another way to the leader, never if there is no need: soon after
// it stopped answering or could not be reached.
func (c *Client) aroundAt(cn *conn) time.Duration {
	to, _ := c.around(cn)
	if to == nil || c.detour.to != nil {
		return never
	}
	switch oldest := c.oldest(); {
	case !cn.leads && c.detour.used:
		return c.detour.after
	case !cn.leads:
		return max(c.avoid.since+detourAfter, c.detour.after)
	case oldest != nil:
		return max(oldest.sentAt+c.hungAfter(), c.detour.after)
	}
	return never
}

// directAt is when to try the leader itself, which a tunnel leads to.
func (c *Client) directAt(cn *conn) time.Duration {
	if cn.direct == "" || c.detour.direct {
		return never
	}
	return cn.retry
}

// detourAt is the earlier of both.
func (c *Client) detourAt(cn *conn) time.Duration { return min(c.aroundAt(cn), c.directAt(cn)) }

// hungAfter is when a leader that does not answer may not be reached any more, and how long it has
// to answer on another connection. A session of the shortest TTL has time for both, for a tunnel,
// and for what its user needs to end well if there is none.
func (c *Client) hungAfter() time.Duration { return max(patience, c.silence/4) }

// armAround has the alarm ring when it is time to look for another way.
func (c *Client) armAround(cn *conn) {
	if at := c.detourAt(cn); at != never {
		c.armAt(at)
	}
}

// goAround looks for another way to the leader, if it is time.
func (c *Client) goAround(cn *conn, now time.Duration) {
	if now >= c.directAt(cn) {
		c.goDirect(cn, now)
	}
	if now < c.aroundAt(cn) {
		return
	}
	to, via := c.around(cn)
	find := func() (*conn, error) { return c.dialThrough(c.ctx, via, to) }
	if limit := c.hungAfter(); cn.leads {
		find = func() (*conn, error) { return c.reach(to, limit) }
	} else if c.detour.used {
		find = func() (*conn, error) { return c.race(via, to) }
	}
	c.detour.to = to
	c.wg.Go(func() {
		made, err := find()
		c.mu.Lock()
		defer c.unlock()
		c.detour.to = nil
		if err != nil {
			c.detour.tries++
			c.detour.used = c.detour.used && c.detour.tries < detourTries
			c.detour.after = c.clock.Now() + detourFirst + backoff(c.detour.tries, detourFirst, detourMost)
		}
		c.replace(cn, made, err)
	})
}

// goDirect tries the leader itself beside a tunnel to it. Nothing waits for that: a tunnel that
// hangs meanwhile is replaced by another one.
func (c *Client) goDirect(cn *conn, now time.Duration) {
	cn.retry = now + directEvery/2 + rand.N(directEvery/2)
	c.detour.direct = true
	c.wg.Go(func() {
		made, err := c.dial(c.ctx, cn.direct)
		c.mu.Lock()
		defer c.unlock()
		c.detour.direct = false
		c.replace(cn, made, err)
	})
}

// race connects to a leader itself, and through another node as well if that takes longer than
// detourAfter or fails. The first connection wins.
func (c *Client) race(via string, to *wire.LeaderHint) (*conn, error) {
	type attempt struct {
		cn  *conn
		err error
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	found := make(chan attempt, 2)
	try := func(find func() (*conn, error)) {
		c.wg.Go(func() {
			cn, err := find()
			found <- attempt{cn, err}
		})
	}
	try(func() (*conn, error) { return c.dialLeader(ctx, to.GetClientAddr()) })
	running, later := 1, time.After(detourAfter)
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

// dialLeader connects to a node that has to lead.
func (c *Client) dialLeader(ctx context.Context, addr string) (*conn, error) {
	cn, err := c.dial(ctx, addr)
	if err == nil && !cn.leads {
		cn.discard()
		return nil, fmt.Errorf("%s: node %q does not lead", addr, cn.node)
	}
	return cn, err
}

// detours reports whether leaders are dialled beside a connection to another node only.
func (c *Client) detours() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.detour.used
}

// reach opens a tunnel to a leader that does not answer on the connection that there is. On another
// one it has so long to answer: if it does, it is only slow.
func (c *Client) reach(to *wire.LeaderHint, limit time.Duration) (*conn, error) {
	found := make(chan string, 1)
	c.wg.Go(func() { found <- c.findHelper(to) })
	direct, err := c.dialWithin(to.GetClientAddr(), limit)
	via := <-found
	switch {
	case err == nil:
		direct.discard()
		return nil, errors.New("the leader answers a hello")
	case via == "":
		return nil, fmt.Errorf("nobody follows the leader %s: %w", to.GetId(), err)
	}
	return c.dialThrough(c.ctx, via, to)
}

// findHelper asks all nodes who leads, and returns the address of the first that follows that
// leader; empty if nobody does, or if somebody knows of a later one.
func (c *Client) findHelper(to *wire.LeaderHint) (via string) {
	c.survey(func(addr string) bool { return addr == to.GetClientAddr() }, func(h heardFrom) bool {
		if h.leader.GetId() == to.GetId() && h.leader.GetTerm() >= to.GetTerm() && !h.leads() {
			via = h.addr
		}
		return via != ""
	})
	return via
}

// dialThrough connects to a leader through another node.
func (c *Client) dialThrough(ctx context.Context, via string, to *wire.LeaderHint) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, detourTimeout)
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

// replace has a connection that was made beside cn take its place, if it is of use still.
func (c *Client) replace(cn, made *conn, err error) {
	switch {
	case made == nil:
		c.note(slog.LevelDebug, "no other way to the leader", "err", err)
	case c.closed || c.conn != cn || cn.err != nil || !made.leads || made.term < c.leader.GetTerm():
		made.discard()
	case made.direct == "" && cn.direct != "" && c.unrepeatable(): // it goes on as it is
		cn.retry = c.clock.Now() + time.Second
		made.discard()
	default:
		c.detour.tries = 0
		c.made = made
		cn.fail(fmt.Errorf("leader is reached through %s now", made.addr))
		return
	}
	c.armAround(cn)
}

// unrepeatable reports whether a request is under way whose outcome would be unknown if the
// connection ended.
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

// discardMade ends a connection that nobody will use any more.
func (c *Client) discardMade() {
	if made := c.takeMade(); made != nil {
		made.discard()
	}
}
