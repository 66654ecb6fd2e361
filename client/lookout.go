package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// lookMost is how long one lookout lasts at most.
const lookMost = time.Second

// lookFor is how long a lookout lasts, the first and each that follows without success. No
// two clients take turns in step.
func lookFor(looks int) time.Duration {
	lasts := min(patience<<min(looks, 8), lookMost)
	return lasts - rand.N(lasts/2)
}

// armLook has somebody else asked soon, less and less often while it does not help.
func (c *Client) armLook() {
	now := c.clock.Now()
	if c.lookAt <= now {
		c.lookAt = now + rand.N(lookFor(c.looks))
	}
	c.armAt(c.lookAt)
}

// look has a lookout beside the connection, if it is time: while the node connected does
// not lead or leaves a request unanswered.
func (c *Client) look(now time.Duration) {
	cn := c.conn
	if cn == nil || cn.err != nil || c.closed {
		return
	}
	oldest := c.oldest()
	if c.quiet(cn) && now >= cn.pingAt() || now >= c.doubtAt(cn, oldest) {
		c.ping(cn)
	}
	hung := oldest != nil && now-oldest.sentAt >= patience
	if hung && now >= c.silentAt(cn) {
		cn.fail(errors.New("the node does not answer"))
		return
	}
	c.goAround(cn, now)
	idle := cn.leads || !c.wanted()
	if c.looking || now < c.lookAt || idle && !hung {
		return
	}
	c.looking = true
	lasts, turn := lookFor(c.looks), c.looks
	c.looks++
	c.lookAt = now + lasts
	ctx, cancel := context.WithTimeout(c.ctx, lasts)
	c.endLook = cancel
	c.wg.Go(func() { c.lookAround(ctx, cancel, cn, c.lookouts(cn, hung, turn)) })
}

// lookAround listens to one other node, which is told of the next leader as soon as there
// is one, and moves at the first word of it. One connection that stays says more than
// asking everybody again and again, and costs the nodes little: while they have no leader
// all their clients look out at once, and an election must not drown in questions.
func (c *Client) lookAround(ctx context.Context, cancel context.CancelFunc, cn *conn, addrs []string) {
	defer cancel()
	for _, addr := range addrs {
		c.listen(ctx, addr, func(h heardFrom) bool {
			c.mu.Lock()
			defer c.unlock()
			if c.conn != cn || cn.err != nil || c.heardOf(cn, h) {
				cancel()
			}
			return ctx.Err() != nil
		})
		if ctx.Err() != nil {
			break
		}
	}
	c.mu.Lock()
	defer c.unlock()
	c.looking = false
	c.armAt(c.lookAt)
}

// lookouts are the nodes to listen to until one answers, the one connected last, and not
// at all if it hangs.
func (c *Client) lookouts(cn *conn, hung bool, turn int) (addrs []string) {
	for _, addr := range c.endpoints() {
		if addr != cn.addr || cn.direct != "" {
			addrs = append(addrs, addr)
		}
	}
	if n := len(addrs); n > 0 {
		addrs = append(addrs[turn%n:], addrs[:turn%n]...)
	}
	if !hung && cn.direct == "" {
		addrs = append(addrs, cn.addr)
	}
	return addrs
}

// listen says hello to a node and hears what it says of the leader, until that is enough,
// or ctx or the connection ends.
func (c *Client) listen(ctx context.Context, addr string, enough func(heardFrom) bool) {
	nc, reply, in, err := c.hello(ctx, addr, "")
	if err != nil {
		return
	}
	defer transport.Cut(nc)
	defer context.AfterFunc(ctx, func() { transport.Cut(nc) })()
	leader := reply.GetLeader()
	var frame wire.ServerFrame
	for leader == nil || !enough(heard(addr, reply.GetNodeId(), leader)) {
		if in.Read(&frame) != nil {
			return
		}
		leader = frame.GetPush().GetLeader()
	}
}

// heardOf acts on one answer to a survey and reports whether it settles it.
func (c *Client) heardOf(cn *conn, h heardFrom) bool {
	hint := h.leader
	if hint.GetId() == "" || hint.GetTerm() < c.leader.GetTerm() {
		return false
	}
	c.heardHelper(cn, h)
	if hint.GetId() == cn.node {
		// An old word of others may be of a term that it has lost since.
		if !cn.leads && (h.node == cn.node || hint.GetTerm() > cn.term) {
			c.hear(hint)
			c.leadsNow(cn, hint.GetTerm())
			return true
		}
		return false
	}
	if cn.leads && hint.GetTerm() <= c.leader.GetTerm() {
		return false
	}
	cn.leads = false
	return c.follow(hint)
}
