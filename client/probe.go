package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// maxProbe is the longest duration of a probe.
	maxProbe = time.Second
	// yields is how often the other goroutines may run before a node counts as hung: one writes the request, the runtime
	// polls the network, and one reads the answer.
	yields = 3
)

// probeDuration returns how long a probe lasts; it grows with each probe without success. The duration is random,
// so that clients do not probe in step.
func probeDuration(probes int) time.Duration {
	lasts := min(answerTimeout<<min(probes, 8), maxProbe)
	return lasts - rand.N(lasts/2)
}

// prober looks for a leader beside the connection. It is guarded by the client's mutex.
type prober struct {
	client *Client

	probeAt     time.Duration // the earliest time of the next probe
	probes      int           // consecutive probes without a definite answer
	probing     bool
	cancelProbe func() // cancels the last probe; nil before the first
}

// scheduleProbe schedules the next probe. The interval grows while probes have no success.
func (p *prober) scheduleProbe() {
	now := p.client.clock.Now()
	if p.probeAt <= now {
		p.probeAt = now + rand.N(probeDuration(p.probes))
	}
	p.client.armAt(p.probeAt)
}

// checkConnection checks the connection and probes other endpoints when due: while the connected node does not lead or
// leaves a request unanswered.
func (p *prober) checkConnection(now time.Duration) {
	cn := p.client.conn
	if cn == nil || cn.err != nil || p.client.halted {
		return
	}
	oldest := p.client.oldest()
	if p.client.quiet(cn) && now >= cn.pingAt() || now >= p.client.doubtAt(cn, oldest) {
		p.client.ping(cn)
	}
	hung := p.hangs(now)
	if now >= p.client.silentAt(cn, oldest) {
		cn.fail(errors.New("the node does not answer"))
		return
	}
	p.client.requestTunnel(cn, now)
	idle := cn.leads || !p.client.wanted()
	if p.probing || now < p.probeAt || idle && !hung {
		return
	}
	p.probing = true
	lasts, turn := probeDuration(p.probes), p.probes
	p.probes++
	p.probeAt = now + lasts
	ctx, cancel := context.WithCancel(p.client.ctx)
	p.cancelProbe = cancel
	p.client.wg.Go(func() {
		var addrs []string
		if !hung || p.stillHangs() {
			addrs = p.probeTargets(cn, hung, turn)
		}
		ctx, stop := context.WithTimeout(ctx, lasts)
		defer stop()
		p.probe(ctx, cancel, cn, addrs)
	})
}

// hangs reports whether a request has been unanswered for long.
func (p *prober) hangs(now time.Duration) bool {
	oldest := p.client.oldest()
	return oldest != nil && now-oldest.sentAt >= answerTimeout
}

// stillHangs is hangs after the goroutines that are ready have run. If this process has more to do than it has
// processors, the request may not be written yet, or its answer not be read. Such a process would otherwise probe
// almost all the time.
func (p *prober) stillHangs() bool {
	for range yields {
		runtime.Gosched()
		if !p.hangsNow() {
			return false
		}
	}
	return true
}

func (p *prober) hangsNow() bool {
	p.client.mu.Lock()
	defer p.client.mu.Unlock()
	if p.hangs(p.client.clock.Now()) {
		return true
	}
	p.probes = max(0, p.probes-1) // no other node is asked
	return false
}

// probe listens to one other node, which reports the next leader as soon as there is one, and acts on
// the first report. One open connection reveals more than repeated questions and costs the nodes little.
// While there is no leader all clients probe at the same time, and their questions must not slow down an
// election.
func (p *prober) probe(ctx context.Context, cancel context.CancelFunc, cn *conn, addrs []string) {
	defer cancel()
	for _, addr := range addrs {
		p.listen(ctx, addr, func(h leaderReport) bool {
			p.client.mu.Lock()
			defer p.client.unlock()
			if p.client.conn != cn || cn.err != nil || p.handleReport(cn, h) {
				cancel()
			}
			return ctx.Err() != nil
		})
		if ctx.Err() != nil {
			break
		}
	}
	p.client.mu.Lock()
	defer p.client.unlock()
	p.probing = false
	p.client.armAt(p.probeAt)
}

// probeTargets returns the nodes to probe, in order, until one answers. The connected node comes last, and is
// left out if it hangs.
func (p *prober) probeTargets(cn *conn, hung bool, turn int) (addrs []string) {
	for _, addr := range p.client.endpoints() {
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
func (p *prober) listen(ctx context.Context, addr string, enough func(leaderReport) bool) {
	nc, reply, in, err := p.client.hello(ctx, addr, "")
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
func (p *prober) handleReport(cn *conn, h leaderReport) bool {
	hint := h.leader
	if hint.GetId() == "" || hint.GetTerm() < p.client.leader.GetTerm() {
		return false
	}
	p.client.noteTunnelNode(cn, h)
	if hint.GetId() == cn.node {
		// Another node's report may be old and name a term that this node has since lost.
		if !cn.leads && (h.node == cn.node || hint.GetTerm() > cn.term) {
			p.client.noteLeader(hint)
			p.client.leadsNow(cn, hint.GetTerm())
			return true
		}
		return false
	}
	if cn.leads && hint.GetTerm() <= p.client.leader.GetTerm() {
		return false
	}
	cn.leads = false
	return p.client.follow(hint)
}
