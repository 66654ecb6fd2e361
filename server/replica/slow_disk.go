package replica

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// A leader whose disk hangs commits nothing but keeps sending heartbeats. So nobody replaces it before the
// watchdog ends it, which is later than the shortest TTL. Raft's own leadership transfer waits for answers
// that the hanging write withholds. So the leader itself asks a follower to stand for election, as soon as a
// write takes longer than about a second, if the healthy voters without it are a majority of all voters. A
// voter is healthy if it answers a probe sent after that, follows this leader in this term, and has no slow
// disk itself. The successor is the healthy voter with the longest log.
//
// A disk that is merely slow must not move leadership back and forth. A node whose disk was slow does not
// accept leadership for slowFor. A node that has handed over because of its disk neither accepts leadership
// nor hands over again for handOverRest.

const (
	slowFor      = 10 * time.Second
	handOverRest = time.Minute
	// standTimeout bounds the probes of the other voters, and then the election.
	standTimeout = 500 * time.Millisecond
	// standInterval is how often a candidate checks whether it leads.
	standInterval = 2 * time.Millisecond
)

// successor is the node to which this one has handed over because of its disk.
type successor struct {
	mu sync.Mutex // guards the fields below
	// at is when this node handed over; zero, long ago, if it never has.
	at time.Time
	// id leads since term, as far as this node knows. own is the term in which this node led.
	id        string
	own, term uint64
}

// recent reports whether this node has handed over recently.
func (s *successor) recent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.at) < handOverRest
}

func (s *successor) set(id string, own, term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.id, s.own, s.term = time.Now(), id, own, term
}

// of returns the node that leads in place of this one, which led in term own, and its term. Raft may not have
// noticed: its main loop may be in the write that hangs.
func (s *successor) of(own uint64) (id string, term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own != own {
		return "", own
	}
	return s.id, s.term
}

// watchDisk hands over when a write takes too long. It runs until the node stops.
func (r *Replica) watchDisk() {
	for {
		select {
		case <-r.stores.SlowWrites():
			r.handOverSlow()
		case <-r.ctx.Done():
			return
		}
	}
}

// handOverSlow asks the best of the other voters to lead. It logs nothing before that, since the log file may
// be on the disk that hangs.
func (r *Replica) handOverSlow() {
	lead := r.current()
	if lead == nil || !r.stores.Late() || r.successor.recent() {
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, standTimeout)
	healthy := r.healthyVoters(ctx, lead.term)
	cancel()
	for _, a := range healthy {
		term, err := r.askToStand(a.Peer, lead.term)
		if err != nil {
			continue
		}
		r.successor.set(a.Peer.ID, lead.term, term)
		r.endLeadership("its disk is slow: another node leads")
		r.metrics.slowDisks.Inc()
		r.log.Warn("leadership was handed over because a write to the disk takes long", "to", a.Peer.ID, "term", term)
		return
	}
}

// healthyVoters returns the voters that could lead in place of this node, best first. If they are no majority,
// it returns none.
func (r *Replica) healthyVoters(ctx context.Context, term uint64) []probe.Answer {
	var others []Peer
	voters := 0
	for id, s := range r.cluster.Servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		if voters++; id != r.cfg.ID {
			others = append(others, r.cluster.Peer(s))
		}
	}
	healthy := slices.DeleteFunc(r.prober.All(ctx, others), func(a probe.Answer) bool { return !healthyFollower(r.cfg.ID, term, a) })
	if len(healthy) <= voters/2 {
		return nil
	}
	slices.SortFunc(healthy, func(a, b probe.Answer) int {
		return cmp.Or(cmp.Compare(b.State.LastIndex, a.State.LastIndex), cmp.Compare(a.Peer.ID, b.Peer.ID))
	})
	return healthy
}

// healthyFollower reports whether a voter follows that leader in that term and has no slow disk.
func healthyFollower(leader string, term uint64, a probe.Answer) bool {
	return a.State != nil && a.State.Term == term && a.State.LeaderId == leader && !a.State.DiskSlow
}

// askToStand asks a follower to stand for election, and returns the term in which it leads.
func (r *Replica) askToStand(to Peer, term uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(r.ctx, 2*standTimeout)
	defer cancel()
	resp, _, err := r.layer.Call(ctx, to.Addr, to.ID, &wire.PeerRequest{Body: &wire.PeerRequest_Stand{Stand: &wire.StandRequest{Term: term}}})
	if err == nil {
		err = status.Err(status.Result(resp.GetStatus(), resp.GetMessage()))
	}
	if err == nil && resp.GetStand().GetTerm() <= term {
		err = fmt.Errorf("%w: it reports that it leads term %d", status.ErrInvalid, resp.GetStand().GetTerm())
	}
	return resp.GetStand().GetTerm(), err
}

// serveStand stands for election at the leader's request, and answers once this node leads.
func (r *Replica) serveStand(ctx context.Context, from string, q *wire.StandRequest) (*wire.PeerResponse, error) {
	node := r.cluster.Raft()
	if r.monitor.Load() == nil || r.halted.Load() != nil {
		return nil, nil
	}
	if err := r.mayStand(from, q.GetTerm()); err != nil {
		return nil, err
	}
	r.log.Warn("the leader's disk hangs: calling an election", "leader", from, "term", q.GetTerm())
	r.monitor.Load().Called(q.GetTerm())
	if err := r.trans.CallElection(); err != nil {
		return nil, fmt.Errorf("%w: %w", status.ErrUnavailable, err)
	}
	ctx, cancel := context.WithTimeout(ctx, standTimeout)
	defer cancel()
	tick := time.NewTicker(standInterval)
	defer tick.Stop()
	for node.State() != raft.Leader {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: the election was not won in time", status.ErrUnavailable)
		}
	}
	return &wire.PeerResponse{Status: wire.Status_OK, Stand: &wire.StandReply{Term: node.CurrentTerm()}}, nil
}

// mayStand returns an error unless this node may stand for election at the request of from.
func (r *Replica) mayStand(from string, term uint64) error {
	server, member := r.cluster.Servers()[r.cfg.ID]
	switch {
	case !r.cluster.Follows(raft.ServerID(from)) || r.cluster.Raft().CurrentTerm() != term:
		return fmt.Errorf("%w: this node does not follow %q in term %d", status.ErrPrecondition, from, term)
	case !member || server.Suffrage != raft.Voter:
		return fmt.Errorf("%w: this node does not vote", status.ErrPrecondition)
	case r.stores.DiskSlow(slowFor):
		return fmt.Errorf("%w: this node's disk is slow, too", status.ErrPrecondition)
	case r.successor.recent():
		return fmt.Errorf("%w: this node has handed over because of its own disk", status.ErrPrecondition)
	}
	return nil
}
