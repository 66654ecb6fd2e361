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
	// maxHops bounds how often one search follows a hint to the next.
	maxHops = 4
	// maxLearned bounds the addresses kept from hints.
	maxLearned = 16
	avoidFor   = 500 * time.Millisecond // a leader that could not be reached
	// forgetAfter is when attempts to reach a leader are no longer part of one failure.
	forgetAfter = 5 * time.Second
	speakAfter  = time.Minute            // without a word of ours to that node
	pingAfter   = 7 * time.Second        // without a word from a node that owes us one some day
	patience    = 250 * time.Millisecond // with an unanswered request, before asking others
	silenceMax  = 5 * time.Second        // with an unanswered request, before giving up the connection: or a third of the shortest TTL
)

// avoided is a leader that could not be reached though nodes name it: it may be dead
// and not replaced yet, or the way to it is cut.
type avoided struct {
	addr  string
	term  uint64
	since time.Duration // when the first attempt began
	until time.Duration
}

// endpoints are all addresses to ask, in rotation.
func (c *Client) endpoints() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	turn := c.turn % len(c.cfg.Endpoints)
	all := slices.Concat(c.cfg.Endpoints[turn:], c.cfg.Endpoints[:turn])
	for _, addr := range c.learned {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	return all
}

// hear remembers the leader of the highest term.
func (c *Client) hear(hint *wire.LeaderHint) {
	if hint.GetId() == "" || hint.GetTerm() < c.leader.GetTerm() {
		return
	}
	if hint.GetTerm() > c.leader.GetTerm() {
		c.attempts, c.looks = 0, 0 // whatever failed before says nothing about this one
	}
	c.leader = hint
	if addr := hint.GetClientAddr(); addr != "" && !slices.Contains(c.learned, addr) {
		c.learned = append(c.learned, addr)
		if len(c.learned) > maxLearned {
			c.learned = c.learned[1:]
		}
	}
}

// follow leaves the present connection for the leader that hint names, unless that
// is known not to work. It reports whether it did.
func (c *Client) follow(hint *wire.LeaderHint) bool {
	if hint.GetClientAddr() == "" || hint.GetTerm() < c.leader.GetTerm() {
		return false
	}
	c.hear(hint)
	if c.avoids(hint) {
		if c.conn != nil {
			c.armAround(c.conn)
		}
		return false
	}
	c.next = hint
	if c.conn != nil {
		c.conn.fail(fmt.Errorf("leader is %s at %s now", hint.GetId(), hint.GetClientAddr()))
	}
	return true
}

func (c *Client) avoids(hint *wire.LeaderHint) bool {
	if c.detour.to.GetId() == hint.GetId() && hint.GetId() != "" && hint.GetTerm() <= c.detour.to.GetTerm() {
		return true // it is being reached another way
	}
	if c.detour.used && hint.GetId() != "" {
		return true // it is going to be
	}
	return hint.GetClientAddr() == c.avoid.addr && hint.GetTerm() <= c.avoid.term && c.clock.Now() < c.avoid.until
}

// notLeader handles a refusal: the hint is followed, or everybody is asked.
func (c *Client) notLeader(cn *conn, hint *wire.LeaderHint) {
	if hint.GetId() == cn.node && cn.node != "" {
		return // it was elected and does not serve yet: what it refused is sent again
	}
	c.leadsNoMore(cn, hint)
}

// onLeader handles a push that leadership moved; nobody may lead for the moment.
func (c *Client) onLeader(cn *conn, hint *wire.LeaderHint) {
	switch {
	case hint.GetTerm() < c.leader.GetTerm() && hint.GetId() != "":
	case hint.GetId() == cn.node && cn.node != "":
		c.hear(hint)
		c.leadsNow(cn, hint.GetTerm())
	default:
		c.leadsNoMore(cn, hint)
	}
}

// leadsNoMore looks for the leader elsewhere: at the hint's, or by asking everybody.
func (c *Client) leadsNoMore(cn *conn, hint *wire.LeaderHint) {
	cn.leads = false
	if !c.follow(hint) {
		c.armLook()
	}
}

// leadsNow begins to use a node that was connected before it led. What was attached
// under an earlier term of it is attached no more.
func (c *Client) leadsNow(cn *conn, term uint64) {
	if cn.leads && term <= cn.term {
		return
	}
	cn.leads, cn.term = true, term
	for _, s := range c.sessions {
		s.conn = nil
	}
	c.attachAll()
	c.pump()
}

// connect finds the leader. If there is none it makes do with any node, which will
// say when there is one.
func (c *Client) connect() (*conn, error) {
	if cn := c.takeMade(); cn != nil {
		return cn, nil
	}
	begun := c.clock.Now()
	fallback, tried, failed, err := c.chase()
	if fallback != nil && (fallback.leads || c.detours()) {
		return fallback, nil
	}
	// Nobody leads there: ask all others at once.
	answered := ""
	best := c.survey(func(addr string) bool { return tried[addr] }, func(h heardFrom) bool {
		answered = h.addr
		return h.leader.GetClientAddr() != "" && !tried[h.leader.GetClientAddr()]
	})
	var next []string
	if addr := best.GetClientAddr(); addr != "" && !tried[addr] && !c.detours() {
		next = append(next, addr)
	}
	if fallback == nil && answered != "" {
		next = append(next, answered) // should the leader not be reached
	}
	unreached := map[string]bool{failed: true}
	for _, addr := range next {
		cn, derr := c.dial(c.ctx, addr)
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
		c.unreachable(hint.GetClientAddr(), hint.GetTerm(), begun)
	}
	return fallback, nil
}

// chase tries one endpoint and follows the hints from there, until one fails or leads nowhere.
func (c *Client) chase() (last *conn, tried map[string]bool, failed string, err error) {
	addr, term := c.firstChoice()
	tried = make(map[string]bool)
	for hop := 0; hop < maxHops && addr != "" && !tried[addr]; hop++ {
		tried[addr] = true
		var cn *conn
		begun := c.clock.Now()
		if cn, err = c.dialWithin(addr, c.chaseTimeout(term)); err != nil {
			err = fmt.Errorf("%s: %w", addr, err)
			c.unreachable(addr, term, begun)
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
		if c.avoidsLocked(cn.leader) {
			break
		}
	}
	return last, tried, failed, err
}

// chaseTimeout bounds the dialling of a node. One that is not known to lead does not get all the
// time if there are others to ask: they will all be asked at once.
func (c *Client) chaseTimeout(term uint64) time.Duration {
	if term == 0 && len(c.cfg.Endpoints) > 1 {
		return helloTimeout / 2
	}
	return helloTimeout
}

func (c *Client) dialWithin(addr string, limit time.Duration) (*conn, error) {
	ctx, cancel := context.WithTimeout(c.ctx, limit)
	defer cancel()
	return c.dial(ctx, addr)
}

func (c *Client) avoidsLocked(hint *wire.LeaderHint) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.avoids(hint)
}

// firstChoice is the leader last heard of, else the next endpoint.
func (c *Client) firstChoice() (addr string, term uint64) {
	c.mu.Lock()
	hint := c.next
	c.next = nil
	c.mu.Unlock()
	if hint != nil {
		return hint.GetClientAddr(), hint.GetTerm()
	}
	all := c.endpoints()
	c.mu.Lock()
	c.turn++
	c.mu.Unlock()
	return all[0], 0
}

// unreachable remembers that a leader does not answer, for a while. Of other nodes, which have
// no term, it remembers nothing.
func (c *Client) unreachable(addr string, term uint64, begun time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader.GetClientAddr() == addr {
		term = max(term, c.leader.GetTerm())
	}
	if term == 0 {
		return
	}
	now := c.clock.Now()
	if c.avoid.addr == addr && now-c.avoid.until < forgetAfter {
		begun = min(begun, c.avoid.since)
	}
	c.avoid = avoided{addr, term, begun, now + avoidFor}
}

// heardFrom is what one node says of the leader.
type heardFrom struct {
	addr   string
	node   string
	leader *wire.LeaderHint
}

func heard(addr, node string, leader *wire.LeaderHint) heardFrom {
	h := heardFrom{addr, node, leader}
	if h.leads() {
		// We reach it here, and perhaps not at the address that it advertises.
		h.leader = &wire.LeaderHint{Id: node, ClientAddr: addr, Term: leader.GetTerm()}
	}
	return h
}

// leads says that the node names itself.
func (h heardFrom) leads() bool { return h.node != "" && h.node == h.leader.GetId() }

// survey says hello to all endpoints at once, but for those left out. It returns the
// leader of the highest term named, early if enough says so, or nil. Once somebody has named one,
// the others have patience to name a later one.
func (c *Client) survey(leaveOut func(addr string) bool, enough func(heardFrom) bool) *wire.LeaderHint {
	ctx, cancel := context.WithTimeout(c.ctx, helloTimeout)
	defer cancel()
	answers := make(chan heardFrom)
	asked := 0
	for _, addr := range c.endpoints() {
		if leaveOut(addr) {
			continue
		}
		asked++
		c.wg.Go(func() {
			h := c.ask(ctx, addr)
			select {
			case answers <- h:
			case <-ctx.Done():
			}
		})
	}
	var best *wire.LeaderHint
	var late <-chan time.Time
	for range asked {
		var h heardFrom
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
			late = time.After(patience)
		}
		if enough(h) {
			return best
		}
	}
	return best
}

// ask says one short hello. An empty address in its answer means that nobody answered.
func (c *Client) ask(ctx context.Context, addr string) heardFrom {
	nc, reply, _, err := c.hello(ctx, addr, "")
	if err != nil {
		return heardFrom{}
	}
	transport.Cut(nc)
	return heard(addr, reply.GetNodeId(), reply.GetLeader())
}

// quiet says that we wait for word from the node, and for nothing that has to come soon:
// only something to answer shows whether it lives.
func (c *Client) quiet(cn *conn) bool {
	return cn.leads && (len(c.watching) > 0 || c.flight.n > 0) && c.oldest() == nil
}

// pingAt is when a quiet connection needs a word of ours: to see whether the node lives,
// and to show it that we do, since it closes connections that say nothing for long.
func (cn *conn) pingAt() time.Duration { return min(cn.heard+pingAfter, cn.spoke+speakAfter) }

// doubtAt is when a node that leaves a request unanswered is pinged. If it answers that, it is alive, and the
// request waits for its disk or for a majority: the connection is kept, since on another one the sessions
// would have to be attached again, and wait as long. It returns never if no request is unanswered, or a ping is.
func (c *Client) doubtAt(cn *conn, oldest *call) time.Duration {
	if oldest == nil || cn.pinged > cn.heard {
		return never
	}
	return max(cn.heard, oldest.sentAt) + max(patience, c.silence)/2
}

// ping asks what any node answers at once.
func (c *Client) ping(cn *conn) {
	cn.pinged = c.clock.Now()
	k := &call{kind: kindPing}
	k.request.Body = &wire.Request_GetLock{GetLock: &wire.GetLockRequest{Name: "ping", QueueLimit: 1, Stale: true}}
	c.submit(k)
}

// silentAt is when the connection is given up unless a frame comes. Without an unanswered ping it returns
// never: this program may have been paused, with the answers unread.
func (c *Client) silentAt(cn *conn) time.Duration {
	if cn.pinged <= cn.heard {
		return never
	}
	return cn.pinged + max(patience, c.silence)/2
}

// oldest is the request that is longest without an answer. Administration may take its
// time: a node that joins has to catch up first. So may a lease that has to wait.
func (c *Client) oldest() *call {
	k := c.flight.head
	for k != nil && (k.kind == kindAdmin || k.kind == kindLease) {
		k = k.links[lane].next
	}
	return k
}
