package handover

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/internal/cluster"
	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// A leader whose disk hangs commits nothing but keeps sending heartbeats. So nobody replaces it before the
// watchdog ends it, which is later than the shortest TTL. Raft's own leadership transfer waits for answers
// that the hanging write withholds. So the leader itself asks a follower to call an election, as soon as a
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
	// campaignTimeout bounds the probes of the other voters, and then the election.
	campaignTimeout = 500 * time.Millisecond
	// campaignInterval is how often a candidate checks whether it leads.
	campaignInterval = 2 * time.Millisecond
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

// Declines reports whether this node should not lead: it is stopping, its disk was slow lately, or it has handed over
// lately because of that.
func (h *Handover) Declines() bool {
	select {
	case <-h.cfg.Done:
		return true
	default:
		return h.cfg.Stores.DiskSlow(slowFor) || h.successor.recent()
	}
}

// HandedOver records that this node has handed over because of its disk: the node with that id leads since term, in
// place of this one, which led in term own.
func (h *Handover) HandedOver(id string, own, term uint64) { h.successor.set(id, own, term) }

// Successor returns the node that leads in place of this one, which led in term own, and its term. The id is "" if
// there is none.
func (h *Handover) Successor(own uint64) (id string, term uint64) { return h.successor.of(own) }

// Run hands over when a write takes too long, until ctx ends.
func (h *Handover) Run(ctx context.Context) {
	for {
		select {
		case <-h.cfg.Stores.SlowWrites():
			h.HandOver(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// HandOver asks the best of the other voters to lead. It logs nothing before that, since the log file may
// be on the disk that hangs.
func (h *Handover) HandOver(ctx context.Context) {
	own := h.cfg.Term()
	if own == 0 || !h.cfg.Stores.Late() || h.successor.recent() {
		return
	}
	probing, cancel := context.WithTimeout(ctx, campaignTimeout)
	healthy := h.healthyVoters(probing, own)
	cancel()
	for _, a := range healthy {
		term, err := h.Ask(ctx, a.Peer, own)
		if err != nil {
			continue
		}
		h.HandedOver(a.Peer.ID, own, term)
		h.cfg.Superseded("its disk is slow: another node leads")
		h.cfg.SlowDisks.Inc()
		h.cfg.Logger.Warn("leadership was handed over because a write to the disk takes long", "to", a.Peer.ID, "term", term)
		return
	}
}

// healthyVoters returns the voters that could lead in place of this node, best first. If they are no majority,
// it returns none.
func (h *Handover) healthyVoters(ctx context.Context, term uint64) []probe.Answer {
	servers := h.cfg.Cluster.Servers()
	voters := len(cluster.VotersBut(servers))
	var others []directory.Peer
	for _, s := range cluster.VotersBut(servers, h.cfg.NodeID) {
		others = append(others, h.cfg.Cluster.Peer(s))
	}
	healthy := slices.DeleteFunc(h.cfg.Prober.All(ctx, others), func(a probe.Answer) bool { return !healthyFollower(h.cfg.NodeID, term, a) })
	if len(healthy) <= voters/2 {
		return nil
	}
	bestFirst(healthy, h.cfg.Cluster.Directory.Drained)
	return healthy
}

// bestFirst sorts by the length of the log, and puts drained nodes last: they are better than a disk that hangs.
func bestFirst(answers []probe.Answer, drained func(id string) bool) {
	slices.SortFunc(answers, func(a, b probe.Answer) int {
		switch last := drained(a.Peer.ID); {
		case last == drained(b.Peer.ID):
			return cmp.Or(cmp.Compare(b.State.LastIndex, a.State.LastIndex), cmp.Compare(a.Peer.ID, b.Peer.ID))
		case last:
			return 1
		}
		return -1
	})
}

// healthyFollower reports whether a voter follows that leader in that term and does not decline.
func healthyFollower(leader string, term uint64, a probe.Answer) bool {
	return a.State != nil && a.State.Term == term && a.State.LeaderId == leader && !a.State.Declines
}

// Ask asks a follower to call an election, and returns the term in which it leads.
func (h *Handover) Ask(ctx context.Context, to directory.Peer, term uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*campaignTimeout)
	defer cancel()
	resp, _, err := h.cfg.Layer.Call(ctx, to.Addr, to.ID, &wire.PeerRequest{Body: &wire.PeerRequest_Campaign{Campaign: &wire.CampaignRequest{Term: term}}})
	if err == nil {
		err = status.Err(status.Result(resp.GetStatus(), resp.GetMessage()))
	}
	if err == nil && resp.GetCampaign().GetTerm() <= term {
		err = fmt.Errorf("%w: it reports that it leads term %d", status.ErrInvalid, resp.GetCampaign().GetTerm())
	}
	return resp.GetCampaign().GetTerm(), err
}

// Campaign calls an election at the leader's request, and answers once this node leads.
func (h *Handover) Campaign(ctx context.Context, from string, q *wire.CampaignRequest) (*wire.PeerResponse, error) {
	if err := h.MayCampaign(from, q.GetTerm()); err != nil {
		return nil, err
	}
	h.cfg.Logger.Warn("the leader's disk hangs: calling an election", "leader", from, "term", q.GetTerm())
	if err := h.cfg.CallElection(q.GetTerm()); err != nil {
		return nil, fmt.Errorf("%w: %w", status.ErrUnavailable, err)
	}
	node := h.cfg.Cluster.Raft()
	ctx, cancel := context.WithTimeout(ctx, campaignTimeout)
	defer cancel()
	tick := time.NewTicker(campaignInterval)
	defer tick.Stop()
	for node.State() != raft.Leader {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: the election was not won in time", status.ErrUnavailable)
		}
	}
	return &wire.PeerResponse{Status: wire.Status_OK, Campaign: &wire.CampaignReply{Term: node.CurrentTerm()}}, nil
}

// MayCampaign returns an error unless this node may call an election at the request of from.
func (h *Handover) MayCampaign(from string, term uint64) error {
	switch {
	case !h.cfg.Cluster.Follows(raft.ServerID(from)) || h.cfg.Cluster.Raft().CurrentTerm() != term:
		return fmt.Errorf("%w: this node does not follow %q in term %d", status.ErrPrecondition, from, term)
	case !h.cfg.Cluster.Votes(h.cfg.NodeID):
		return fmt.Errorf("%w: this node does not vote", status.ErrPrecondition)
	case h.cfg.Stores.DiskSlow(slowFor):
		return fmt.Errorf("%w: this node's disk is slow, too", status.ErrPrecondition)
	case h.successor.recent():
		return fmt.Errorf("%w: this node has handed over because of its own disk", status.ErrPrecondition)
	}
	return nil
}
