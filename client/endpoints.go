package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// maxHops bounds how many hints one search follows.
	maxHops = 4
	// maxLearned bounds the number of addresses kept from hints.
	maxLearned = 16
	avoidFor   = 500 * time.Millisecond // how long a leader that could not be reached is avoided
	// forgetAfter is when an attempt to reach a leader no longer belongs to the same outage.
	forgetAfter   = 5 * time.Second
	speakAfter    = time.Minute            // ping after sending nothing to a quiet node for this long
	pingAfter     = 7 * time.Second        // ping after receiving nothing for this long from a node that owes an answer or an event
	answerTimeout = 250 * time.Millisecond // ask other nodes after a request was unanswered for this long
	silenceMax    = 5 * time.Second        // close the connection after a request was unanswered for this long, or a third of the shortest TTL
)

// avoided is a leader that could not be reached although nodes name it. It may have died without being
// replaced yet, or the network path to it is broken.
type avoided struct {
	addr  string
	term  uint64
	since time.Duration // when the first attempt began
	until time.Duration
}

// endpoints returns all addresses to ask, in rotation.
func (n *connector) endpoints() []string {
	n.client.mu.Lock()
	defer n.client.mu.Unlock()
	turn := n.turn % len(n.client.cfg.Endpoints)
	all := slices.Concat(n.client.cfg.Endpoints[turn:], n.client.cfg.Endpoints[:turn])
	for _, addr := range n.learned {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	return all
}

// noteLeader remembers the leader of the highest term.
func (n *connector) noteLeader(hint *wire.LeaderHint) {
	if hint.GetId() == "" || hint.GetTerm() < n.leader.GetTerm() {
		return
	}
	if hint.GetTerm() > n.leader.GetTerm() {
		// Whatever failed before says nothing about this one.
		n.attempts, n.client.probes, n.client.reroute.tries, n.client.reroute.after = 0, 0, 0, 0
		if n.client.reroute.to != nil {
			n.client.reroute.cancel()
		}
	}
	n.leader = hint
	if addr := hint.GetClientAddr(); addr != "" && !slices.Contains(n.learned, addr) {
		n.learned = append(n.learned, addr)
		if len(n.learned) > maxLearned {
			n.learned = n.learned[1:]
		}
	}
}

// follow leaves the current connection for the leader named by hint, unless that leader is known to be
// unreachable. It reports whether it did.
func (n *connector) follow(hint *wire.LeaderHint) bool {
	if hint.GetClientAddr() == "" || hint.GetTerm() < n.leader.GetTerm() {
		return false
	}
	n.noteLeader(hint)
	if n.avoids(hint) {
		if n.conn != nil {
			n.client.armAround(n.conn)
		}
		return false
	}
	n.next = hint
	if n.conn != nil {
		n.conn.fail(fmt.Errorf("leader is %s at %s now", hint.GetId(), hint.GetClientAddr()))
	}
	return true
}

func (n *connector) avoids(hint *wire.LeaderHint) bool {
	if n.client.reroute.to.GetId() == hint.GetId() && hint.GetId() != "" && hint.GetTerm() <= n.client.reroute.to.GetTerm() {
		return true // another path to it is being tried
	}
	if n.client.reroute.used && hint.GetId() != "" {
		return true // another path to it will be tried
	}
	return hint.GetClientAddr() == n.avoid.addr && hint.GetTerm() <= n.avoid.term && n.client.clock.Now() < n.avoid.until
}

// notLeader handles a NOT_LEADER answer: it follows the hint or asks all nodes.
func (n *connector) notLeader(cn *conn, hint *wire.LeaderHint) {
	if hint.GetId() == cn.node && cn.node != "" {
		return // it was elected but does not serve yet, and the request is resent
	}
	n.leadsNoMore(cn, hint)
}

// onLeader handles a push about a change of leadership. There may be no leader at the moment.
func (n *connector) onLeader(cn *conn, hint *wire.LeaderHint) {
	switch {
	case hint.GetTerm() < n.leader.GetTerm() && hint.GetId() != "":
	case hint.GetId() == cn.node && cn.node != "":
		n.noteLeader(hint)
		n.leadsNow(cn, hint.GetTerm())
	default:
		n.leadsNoMore(cn, hint)
	}
}

// leadsNoMore looks for the leader elsewhere, by following the hint or by asking all nodes.
func (n *connector) leadsNoMore(cn *conn, hint *wire.LeaderHint) {
	cn.leads = false
	if !n.follow(hint) {
		n.client.scheduleProbe()
	}
}

// leadsNow starts to use a node that was already connected when it became leader. Sessions attached in an
// earlier term of that node are no longer attached.
func (n *connector) leadsNow(cn *conn, term uint64) {
	if cn.leads && term <= cn.term {
		return
	}
	cn.leads, cn.term = true, term
	for _, s := range n.client.sessions {
		s.conn = nil
	}
	n.client.attachAll()
	n.client.pump()
}

// connect finds the leader. If there is none, it returns a connection to any node, which will report the
// next leader.
func (n *connector) connect() (*conn, error) {
	if cn := n.takeMade(); cn != nil {
		return cn, nil
	}
	started := n.client.clock.Now()
	fallback, tried, failed, err := n.followHints()
	if fallback != nil && (fallback.leads || n.client.reroutes()) {
		return fallback, nil
	}
	// That led to no leader: ask all others in parallel.
	answered := ""
	best := n.survey(n.client.ctx, func(addr string) bool { return tried[addr] }, func(h leaderReport) bool {
		answered = h.addr
		return h.leader.GetClientAddr() != "" && !tried[h.leader.GetClientAddr()]
	})
	var next []string
	if addr := best.GetClientAddr(); addr != "" && !tried[addr] && !n.client.reroutes() {
		next = append(next, addr)
	}
	if fallback == nil && answered != "" {
		next = append(next, answered) // in case the leader cannot be reached
	}
	unreached := map[string]bool{failed: true}
	for _, addr := range next {
		cn, derr := n.dial(n.client.ctx, addr)
		if derr != nil {
			err, unreached[addr] = derr, true
			continue
		}
		if cn.leads || fallback == nil {
			cn, fallback = fallback, cn
		}
		if cn != nil {
			cn.discard()
		}
		break
	}
	if fallback == nil {
		return nil, err
	}
	if hint := fallback.leader; hint.GetClientAddr() != "" && unreached[hint.GetClientAddr()] {
		n.unreachable(hint.GetClientAddr(), hint.GetTerm(), started)
	}
	return fallback, nil
}

// followHints tries one endpoint and follows the hints from there, until a node fails or has no further hint.
func (n *connector) followHints() (last *conn, tried map[string]bool, failed string, err error) {
	addr, term := n.firstChoice()
	tried = make(map[string]bool)
	for hop := 0; hop < maxHops && addr != "" && !tried[addr]; hop++ {
		tried[addr] = true
		var cn *conn
		started := n.client.clock.Now()
		if cn, err = n.dialWithin(n.client.ctx, addr, n.hintTimeout(term)); err != nil {
			err = fmt.Errorf("%s: %w", addr, err)
			n.unreachable(addr, term, started)
			failed = addr
			break
		}
		if last != nil {
			last.discard()
		}
		last = cn
		if cn.leads {
			break
		}
		addr, term = cn.leader.GetClientAddr(), cn.leader.GetTerm()
		if n.avoidsLocked(cn.leader) {
			break
		}
	}
	return last, tried, failed, err
}

// hintTimeout bounds dialling a node. A node that is not known to lead gets half the time if there are
// other endpoints, since all of them will be asked in parallel afterwards.
func (n *connector) hintTimeout(term uint64) time.Duration {
	if term == 0 && len(n.client.cfg.Endpoints) > 1 {
		return helloTimeout / 2
	}
	return helloTimeout
}

func (n *connector) dialWithin(ctx context.Context, addr string, limit time.Duration) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return n.dial(ctx, addr)
}

func (n *connector) avoidsLocked(hint *wire.LeaderHint) bool {
	n.client.mu.Lock()
	defer n.client.mu.Unlock()
	return n.avoids(hint)
}

// firstChoice returns the leader that a hint has named, or else the next endpoint.
func (n *connector) firstChoice() (addr string, term uint64) {
	n.client.mu.Lock()
	hint := n.next
	n.next = nil
	n.client.mu.Unlock()
	if hint != nil {
		return hint.GetClientAddr(), hint.GetTerm()
	}
	all := n.endpoints()
	n.client.mu.Lock()
	n.turn++
	n.client.mu.Unlock()
	return all[0], 0
}

// unreachable remembers for a while that a leader does not answer. Nodes not known to lead, with term 0,
// are not remembered.
func (n *connector) unreachable(addr string, term uint64, started time.Duration) {
	n.client.mu.Lock()
	defer n.client.mu.Unlock()
	if n.leader.GetClientAddr() == addr {
		term = max(term, n.leader.GetTerm())
	}
	if term == 0 {
		return
	}
	now := n.client.clock.Now()
	if n.avoid.addr == addr && now-n.avoid.until < forgetAfter {
		started = min(started, n.avoid.since)
	}
	n.avoid = avoided{addr, term, started, now + avoidFor}
}

// leaderReport is what one node reports about the leader.
type leaderReport struct {
	addr   string
	node   string
	leader *wire.LeaderHint
}

func reportBy(addr, node string, leader *wire.LeaderHint) leaderReport {
	h := leaderReport{addr, node, leader}
	if h.leads() {
		// The node is reachable at addr, and perhaps not at the address it advertises.
		h.leader = &wire.LeaderHint{Id: node, ClientAddr: addr, Term: leader.GetTerm()}
	}
	return h
}

// leads reports whether the node names itself.
func (h leaderReport) leads() bool { return h.node != "" && h.node == h.leader.GetId() }

// survey asks all endpoints in parallel, except those left out. It returns the leader of the highest term
// named, or nil. It returns early if enough returns true. Once a node has named a leader, survey waits for
// at most the time answerTimeout for other nodes to name a later one.
func (n *connector) survey(ctx context.Context, leaveOut func(addr string) bool, enough func(leaderReport) bool) *wire.LeaderHint {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	answers := make(chan leaderReport)
	asked := 0
	for _, addr := range n.endpoints() {
		if leaveOut(addr) {
			continue
		}
		asked++
		n.client.wg.Go(func() {
			h := n.ask(ctx, addr)
			select {
			case answers <- h:
			case <-ctx.Done():
			}
		})
	}
	var best *wire.LeaderHint
	var late <-chan time.Time
	for range asked {
		var h leaderReport
		select {
		case h = <-answers:
		case <-late:
			return best
		case <-ctx.Done():
			return best
		}
		if h.addr == "" {
			continue
		}
		newer := h.leader.GetTerm() > best.GetTerm() || h.leader.GetTerm() == best.GetTerm() && h.leads()
		if h.leader.GetId() != "" && (best == nil || newer) {
			best = h.leader
		}
		if best != nil && late == nil {
			late = time.After(answerTimeout)
		}
		if enough(h) {
			return best
		}
	}
	return best
}

// ask completes one short hello. The address in the result is empty if the node did not answer.
func (n *connector) ask(ctx context.Context, addr string) leaderReport {
	nc, reply, _, err := n.hello(ctx, addr, "")
	if err != nil {
		return leaderReport{}
	}
	transport.Cut(nc)
	return reportBy(addr, reply.GetNodeId(), reply.GetLeader())
}

// quiet reports whether the client waits for the node, but for nothing that is due soon. Then only a ping
// shows whether the node is alive.
func (n *connector) quiet(cn *conn) bool {
	return cn.leads && (len(n.client.watching) > 0 || n.client.flight.n > 0) && n.client.oldest() == nil
}

// pingAt returns when a quiet connection needs a ping. The ping checks that the node is alive, and shows
// the node that the client is, since nodes close connections that are silent for long.
func (cn *conn) pingAt() time.Duration { return min(cn.receivedAt+pingAfter, cn.spoke+speakAfter) }

// doubtAt returns when a node with an unanswered request is pinged. A node that answers the ping is alive, and
// the request waits for its disk or for a majority. The connection is kept then: on another one the sessions
// would have to attach again and wait as long. doubtAt returns never if no request is unanswered, or if a
// ping is.
func (n *connector) doubtAt(cn *conn, oldest *call) time.Duration {
	if oldest == nil || cn.pinged > cn.receivedAt {
		return never
	}
	return max(cn.receivedAt, oldest.sentAt) + max(answerTimeout, n.silence)/2
}

// ping sends a request that any node answers immediately.
func (n *connector) ping(cn *conn) {
	cn.pinged = n.client.clock.Now()
	k := &call{kind: kindPing}
	k.request.Body = &wire.Request_GetLock{GetLock: &wire.GetLockRequest{Name: "ping", QueueLimit: 1, Stale: true}}
	n.client.submit(k)
}

// silentAt returns when the connection is closed unless a frame arrives: when the oldest request has been
// unanswered for long, and a ping for half as long. It returns never if no ping is unanswered: this process may
// have been paused and not have read the answers yet.
func (n *connector) silentAt(cn *conn, oldest *call) time.Duration {
	if oldest == nil || cn.pinged <= cn.receivedAt {
		return never
	}
	silence := max(answerTimeout, n.silence)
	return max(oldest.sentAt+silence, cn.pinged+silence/2)
}

// oldest returns the request that has been unanswered the longest. It ignores slow ones: a node that joins has
// to catch up first, and a lease may have to wait for its grant.
func (t *requestTable) oldest() *call {
	k := t.flight.head
	for k != nil && k.kind.policy().slow {
		k = k.links[lane].next
	}
	return k
}
