package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxProbe is the longest duration of a probe.
const maxProbe = time.Second

// probeDuration returns how long a probe lasts; it grows with each probe without success. The duration is random,
// so that clients do not probe in step.
func probeDuration(probes int) time.Duration {
	lasts := min(answerTimeout<<min(probes, 8), maxProbe)
	return lasts - rand.N(lasts/2)
}

// scheduleProbe schedules the next probe. The interval grows while probes have no success.
func (c *Client) scheduleProbe() {
	now := c.clock.Now()
	if c.probeAt <= now {
		c.probeAt = now + rand.N(probeDuration(c.probes))
	}
	c.armAt(c.probeAt)
}

// look checks the connection and probes other endpoints when due: while the connected node does not lead or
// leaves a request unanswered.
func (c *Client) checkConnection(now time.Duration) {
	cn := c.conn
	if cn == nil || cn.err != nil || c.closed {
		return
	}
	oldest := c.oldest()
	if c.quiet(cn) && now >= cn.pingAt() || now >= c.doubtAt(cn, oldest) {
		c.ping(cn)
	}
	hung := oldest != nil && now-oldest.sentAt >= answerTimeout
	if now >= c.silentAt(cn, oldest) {
		cn.fail(errors.New("the node does not answer"))
		return
	}
	c.requestTunnel(cn, now)
	idle := cn.leads || !c.wanted()
	if c.probing || now < c.probeAt || idle && !hung {
		return
	}
	c.probing = true
	lasts, turn := probeDuration(c.probes), c.probes
	c.probes++
	c.probeAt = now + lasts
	ctx, cancel := context.WithTimeout(c.ctx, lasts)
	c.cancelProbe = cancel
	c.wg.Go(func() { c.probe(ctx, cancel, cn, c.probeTargets(cn, hung, turn)) })
}

// probe listens to one other node, which reports the next leader as soon as there is one, and acts on
// the first report. One open connection reveals more than repeated questions and costs the nodes little.
// While there is no leader all clients probe at the same time, and their questions must not slow down an
// election.
func (c *Client) probe(ctx context.Context, cancel context.CancelFunc, cn *conn, addrs []string) {
	defer cancel()
	for _, addr := range addrs {
		c.listen(ctx, addr, func(h leaderReport) bool {
			c.mu.Lock()
			defer c.unlock()
			if c.conn != cn || cn.err != nil || c.handleReport(cn, h) {
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
	c.probing = false
	c.armAt(c.probeAt)
}

// probeTargets returns the nodes to probe, in order, until one answers. The connected node comes last, and is
// left out if it hangs.
func (c *Client) probeTargets(cn *conn, hung bool, turn int) (addrs []string) {
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

// listen completes a hello with a node and passes on what it reports about the leader, until enough returns
// true, or ctx or the connection ends.
func (c *Client) listen(ctx context.Context, addr string, enough func(leaderReport) bool) {
	nc, reply, in, err := c.hello(ctx, addr, "")
	if err != nil {
		return
	}
	defer transport.Cut(nc)
	defer context.AfterFunc(ctx, func() { transport.Cut(nc) })()
	leader := reply.GetLeader()
	var frame wire.ServerFrame
	for leader == nil || !enough(reportBy(addr, reply.GetNodeId(), leader)) {
		if in.Read(&frame) != nil {
			return
		}
		leader = frame.GetPush().GetLeader()
	}
}

// handleReport acts on one node's report about the leader and reports whether it settles the search.
func (c *Client) handleReport(cn *conn, h leaderReport) bool {
	hint := h.leader
	if hint.GetId() == "" || hint.GetTerm() < c.leader.GetTerm() {
		return false
	}
	c.noteTunnelNode(cn, h)
	if hint.GetId() == cn.node {
		// Another node's report may be old and name a term that this node has since lost.
		if !cn.leads && (h.node == cn.node || hint.GetTerm() > cn.term) {
			c.noteLeader(hint)
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
