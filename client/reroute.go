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

// rerouter finds another path to a leader that cannot be reached directly. It is guarded by the client's mutex.
type rerouter struct {
	client *Client

	helper  helper // the last node known to follow the leader
	reroute reroute
}

// noteTunnelNode remembers a node that may be able to reach the leader.
func (r *rerouter) noteTunnelNode(cn *conn, h leaderReport) {
	if h.leads() || h.addr == "" {
		return
	}
	r.helper = helper{h.addr, h.leader, r.client.clock.Now()}
	r.armAround(cn)
}

// around returns the leader that cannot be reached directly and the node to ask for a tunnel. to is nil if
// no tunnel is needed. If the connection is to the leader itself, via is empty: another node has to be
// found.
func (r *rerouter) around(cn *conn) (to *wire.LeaderHint, via string) {
	if cn.leads {
		return &wire.LeaderHint{Id: cn.node, ClientAddr: r.client.leader.GetClientAddr(), Term: cn.term}, ""
	}
	to = r.client.leader
	if to.GetId() == "" || to.GetId() == cn.node || to.GetClientAddr() == "" || !r.client.wanted() || !r.reroute.used && !r.failed(to) {
		return nil, ""
	}
	fresh := r.client.clock.Now()-r.helper.at < helperFor
	if r.reroute.tries%2 == 1 && fresh && r.helper.leader.GetId() == to.GetId() {
		return to, r.helper.addr
	}
	return to, cn.addr
}

// failed reports whether that leader is the one that last could not be reached.
func (r *rerouter) failed(to *wire.LeaderHint) bool {
	return to.GetClientAddr() == r.client.avoid.addr && to.GetTerm() <= r.client.avoid.term
}

// aroundAt returns when to look for another path to the leader: soon after it stopped answering or could
// not be reached, or never if there is no need.
func (r *rerouter) aroundAt(cn *conn) time.Duration {
	to, _ := r.around(cn)
	if to == nil || r.reroute.to != nil {
		return never
	}
	switch oldest := r.client.oldest(); {
	case !cn.leads && r.reroute.used:
		return r.reroute.after
	case !cn.leads:
		return max(r.client.avoid.since+rerouteAfter, r.reroute.after)
	case oldest != nil:
		return max(oldest.sentAt+r.hungAfter(), r.reroute.after)
	}
	return never
}

// directAt returns when to try the leader of a tunnel directly.
func (r *rerouter) directAt(cn *conn) time.Duration {
	if cn.direct == "" || r.reroute.direct {
		return never
	}
	return cn.retry
}

// rerouteAt returns the earlier of aroundAt and directAt.
func (r *rerouter) rerouteAt(cn *conn) time.Duration { return min(r.aroundAt(cn), r.directAt(cn)) }

// hungAfter returns how long a leader may leave a request unanswered before the client looks for another
// path. It is also how long the leader then has to answer on another connection. A session with the
// shortest TTL has enough time for both, for opening a tunnel, and, if that fails, for its user to end its
// work safely.
func (r *rerouter) hungAfter() time.Duration { return max(answerTimeout, r.client.silence/4) }

// armAround sets the alarm for the next attempt to find another path.
func (r *rerouter) armAround(cn *conn) {
	if at := r.rerouteAt(cn); at != never {
		r.client.armAt(at)
	}
}

// requestTunnel looks for another path to the leader if it is time.
func (r *rerouter) requestTunnel(cn *conn, now time.Duration) {
	if now >= r.directAt(cn) {
		r.goDirect(cn, now)
	}
	if now < r.aroundAt(cn) {
		return
	}
	to, via := r.around(cn)
	find := func(ctx context.Context) (*conn, error) { return r.dialThrough(ctx, via, to) }
	if limit := r.hungAfter(); cn.leads {
		find = func(ctx context.Context) (*conn, error) { return r.reach(ctx, to, limit) }
	} else if r.reroute.used {
		find = func(ctx context.Context) (*conn, error) { return r.race(ctx, via, to) }
	}
	ctx, cancel := context.WithCancel(r.client.ctx)
	r.reroute.to, r.reroute.cancel = to, cancel
	r.client.wg.Go(func() {
		defer cancel()
		made, err := find(ctx)
		r.client.mu.Lock()
		defer r.client.unlock()
		r.reroute.to = nil
		if err != nil && to.GetTerm() >= r.client.leader.GetTerm() { // a later leader has not been tried yet
			r.reroute.tries++
			r.reroute.used = r.reroute.used && r.reroute.tries < rerouteTries
			r.reroute.after = r.client.clock.Now() + rerouteFirst + backoff(r.reroute.tries, rerouteFirst, rerouteMost)
		}
		r.client.replace(cn, made, err)
	})
}

// goDirect tries the leader directly while a tunnel to it is in use. The attempt runs in the background: if
// the tunnel stalls meanwhile, it is replaced by another one.
func (r *rerouter) goDirect(cn *conn, now time.Duration) {
	cn.retry = now + directEvery/2 + rand.N(directEvery/2)
	r.reroute.direct = true
	r.client.wg.Go(func() {
		made, err := r.client.dial(r.client.ctx, cn.direct)
		r.client.mu.Lock()
		defer r.client.unlock()
		r.reroute.direct = false
		r.client.replace(cn, made, err)
	})
}

// race connects to a leader directly and, if that takes longer than rerouteAfter or fails, also through
// another node. The first connection wins.
func (r *rerouter) race(ctx context.Context, via string, to *wire.LeaderHint) (*conn, error) {
	type attempt struct {
		cn  *conn
		err error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found := make(chan attempt, 2)
	try := func(find func() (*conn, error)) {
		r.client.wg.Go(func() {
			cn, err := find()
			found <- attempt{cn, err}
		})
	}
	try(func() (*conn, error) { return r.dialLeader(ctx, to.GetClientAddr()) })
	running, later := 1, time.After(rerouteAfter)
	var errs []error
	for {
		select {
		case a := <-found:
			running--
			if a.err == nil {
				r.client.wg.Go(func() {
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
			try(func() (*conn, error) { return r.dialThrough(ctx, via, to) })
		}
		if running == 0 {
			return nil, errors.Join(errs...)
		}
	}
}

// dialLeader connects to a node and returns an error if it does not lead.
func (r *rerouter) dialLeader(ctx context.Context, addr string) (*conn, error) {
	cn, err := r.client.dial(ctx, addr)
	if err == nil && !cn.leads {
		cn.discard()
		return nil, fmt.Errorf("%s: node %q does not lead", addr, cn.node)
	}
	return cn, err
}

// reroutes reports whether leaders are only dialled beside a connection to another node.
func (r *rerouter) reroutes() bool {
	r.client.mu.Lock()
	defer r.client.mu.Unlock()
	return r.reroute.used
}

// reach opens a tunnel to a leader that does not answer on the existing connection. It first gives the
// leader limit to answer on a new connection; a leader that does is only slow.
func (r *rerouter) reach(ctx context.Context, to *wire.LeaderHint, limit time.Duration) (*conn, error) {
	found := make(chan string, 1)
	r.client.wg.Go(func() { found <- r.findHelper(ctx, to) })
	direct, err := r.client.dialWithin(ctx, to.GetClientAddr(), limit)
	via := <-found
	switch {
	case err == nil:
		direct.discard()
		return nil, errors.New("the leader answers a hello")
	case via == "":
		return nil, fmt.Errorf("nobody follows the leader %s: %w", to.GetId(), err)
	}
	return r.dialThrough(ctx, via, to)
}

// findHelper asks all nodes for the leader and returns the address of the first node that follows this
// leader. It returns the empty string if there is none.
func (r *rerouter) findHelper(ctx context.Context, to *wire.LeaderHint) (via string) {
	r.client.survey(ctx, func(addr string) bool { return addr == to.GetClientAddr() }, func(h leaderReport) bool {
		if h.leader.GetId() == to.GetId() && h.leader.GetTerm() >= to.GetTerm() && !h.leads() {
			via = h.addr
		}
		return via != ""
	})
	return via
}

// dialThrough connects to a leader through another node.
func (r *rerouter) dialThrough(ctx context.Context, via string, to *wire.LeaderHint) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, rerouteTimeout)
	defer cancel()
	nc, reply, in, err := r.client.hello(ctx, via, to.GetId())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", via, err)
	}
	answer := reply.GetTunnel()
	if answer.GetStatus() == wire.Status_OK {
		reply, in, err = transport.ClientHandshake(ctx, nc, &wire.Hello{Agent: r.client.cfg.Agent})
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
		made.retry = r.client.clock.Now() + directEvery/2 + rand.N(directEvery/2)
	}
	return made, nil
}

// replace switches from cn to the connection made beside it, if that is still useful.
func (n *connector) replace(cn, made *conn, err error) {
	switch {
	case made == nil:
		n.client.note(slog.LevelDebug, "no other way to the leader", "err", err)
	case n.client.halted || n.conn != cn || cn.err != nil || !made.leads || made.term < n.leader.GetTerm():
		made.discard()
	case made.direct == "" && cn.direct != "" && n.client.unrepeatable(): // keep the tunnel for now
		cn.retry = n.client.clock.Now() + time.Second
		made.discard()
	default:
		n.client.reroute.tries = 0
		n.made = made
		cn.fail(fmt.Errorf("leader is reached through %s now", made.addr))
		return
	}
	n.client.armAround(cn)
}

// unrepeatable reports whether a request is in flight whose outcome would be unknown if the connection
// ended.
func (t *requestTable) unrepeatable() bool {
	for k := t.flight.head; k != nil; k = k.links[lane].next {
		if k.kind.policy().once {
			return true
		}
	}
	return false
}

func (n *connector) takeMade() *conn {
	n.client.mu.Lock()
	defer n.client.mu.Unlock()
	made := n.made
	n.made = nil
	return made
}

// discardMade discards an established connection that will not be used.
func (n *connector) discardMade() {
	if made := n.takeMade(); made != nil {
		made.discard()
	}
}
