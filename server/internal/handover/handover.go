package handover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/internal/cluster"
	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/peerport"
)

// Config configures a Handover. All fields are required.
type Config struct {
	NodeID   string
	Cluster  *cluster.Cluster
	Prober   probe.Prober
	Layer    *peerport.Layer
	Proposer *groupcommit.Proposer
	Stores   *storage.Stores
	// Term returns the term in which this node leads, 0 if it does not.
	Term func() uint64
	// Serving reports whether this node leads and serves.
	Serving func() bool
	// CallElection makes this node call an election, although it follows a leader of the given term.
	CallElection func(term uint64) error
	// Superseded ends the leadership of this node because another one leads.
	Superseded func(why string)
	// Done is closed when the node begins to stop.
	Done   <-chan struct{}
	Logger hclog.Logger
	// SlowDisks counts the times that leadership moved because of the disk.
	SlowDisks prometheus.Counter
}

// Handover moves leadership to other voters. It is safe for concurrent use.
type Handover struct {
	cfg       Config
	successor successor
}

// New creates a Handover.
func New(cfg Config) *Handover { return &Handover{cfg: cfg} }

// ToBest transfers leadership to the best voter because this node is stopping. A drained voter is better than none. It
// returns an error like Best and To.
func (h *Handover) ToBest(ctx context.Context) error {
	best, err := h.best(ctx, false)
	if err != nil {
		var last error
		if best, last = h.best(ctx, true); last != nil {
			return err
		}
	}
	return h.To(ctx, h.server(best))
}

// Away transfers leadership because this node is drained. It does so only if a voter can take over at once: otherwise
// each attempt would interrupt the service. It returns an error like Best and To.
func (h *Handover) Away(ctx context.Context) error {
	best, err := h.best(ctx, false)
	if err == nil {
		err = takesOver(best, h.cfg.Cluster.Raft().LastIndex())
	}
	if err != nil {
		return err
	}
	return h.To(ctx, h.server(best))
}

// Candidate returns the voter named, if it can lead, or the best one if id is "". It returns status.ErrNotFound or
// status.ErrPrecondition.
func (h *Handover) Candidate(ctx context.Context, id string) (raft.Server, error) {
	if id == "" {
		return h.Best(ctx)
	}
	server, err := electable(id, h.cfg.Cluster.Servers(), h.cfg.Cluster.Directory.Drained)
	if err != nil {
		return server, err
	}
	return server, ableToLead(h.cfg.Prober.One(ctx, h.cfg.Cluster.Peer(server)), h.cfg.Cluster.Raft().LastIndex())
}

// Best returns the other voter that is not drained, answers and has the longest log, or status.ErrPrecondition. It
// prefers voters that do not decline. Raft would choose by what it has sent; if that voter is down, raft refuses every
// entry until its call has timed out.
func (h *Handover) Best(ctx context.Context) (raft.Server, error) {
	best, err := h.best(ctx, false)
	return h.server(best), err
}

func (h *Handover) server(a probe.Answer) raft.Server { return h.cfg.Cluster.Servers()[a.Peer.ID] }

// best is Best among the voters that are drained, or among those that are not.
func (h *Handover) best(ctx context.Context, drained bool) (probe.Answer, error) {
	others := cluster.VotersBut(h.cfg.Cluster.Servers(), h.cfg.NodeID)
	var voters []directory.Peer
	for _, s := range others {
		if h.cfg.Cluster.Directory.Drained(string(s.ID)) == drained {
			voters = append(voters, h.cfg.Cluster.Peer(s))
		}
	}
	switch {
	case len(others) == 0:
		return probe.Answer{}, fmt.Errorf("%w: there is no other voter", status.ErrPrecondition)
	case len(voters) == 0:
		return probe.Answer{}, fmt.Errorf("%w: all other voters are drained: undrain one first: nothing was changed", status.ErrPrecondition)
	}
	best := preferred(h.cfg.Prober.All(ctx, voters))
	if best.State == nil {
		return best, fmt.Errorf("%w: no other voter answers that may lead: nothing was changed", status.ErrPrecondition)
	}
	return best, nil
}

// preferred returns the answer with the longest log of those that do not decline, or else of all.
func preferred(answers []probe.Answer) probe.Answer {
	willing := slices.DeleteFunc(slices.Clone(answers), func(a probe.Answer) bool { return a.State.GetDeclines() })
	if best := probe.LongestLog(willing); best.State != nil {
		return best
	}
	return probe.LongestLog(answers)
}

// takesOver returns an error unless the node is able to lead, and willing.
func takesOver(a probe.Answer, last uint64) error {
	if a.State.GetDeclines() {
		return fmt.Errorf("%w: node %q declines: its disk is slow, or it is stopping", status.ErrPrecondition, a.Peer.ID)
	}
	return ableToLead(a, last)
}

// electable returns the node with that id if it is a voter and not drained.
func electable(id string, servers map[string]raft.Server, drained func(id string) bool) (raft.Server, error) {
	server, ok := servers[id]
	switch {
	case !ok:
		return server, fmt.Errorf("%w: %q", status.ErrNotFound, id)
	case server.Suffrage != raft.Voter:
		return server, fmt.Errorf("%w: %q has no vote yet", status.ErrPrecondition, id)
	case drained(id):
		return server, fmt.Errorf("%w: node %q is drained: undrain it first (qlock cluster undrain %s --reason TEXT), or name another node", status.ErrPrecondition, id, id)
	}
	return server, nil
}

// ableToLead returns an error if the node did not answer or lacks too many of the entries up to last.
func ableToLead(a probe.Answer, last uint64) error {
	switch {
	case a.State == nil:
		return probe.Unanswered(a, "name another node, or none")
	case a.State.LastIndex+probe.CaughtUp < last:
		return fmt.Errorf("%w: node %q lags: its log ends at entry %d of %d: nothing was changed: wait until it has caught up, or name another node",
			status.ErrPrecondition, a.Peer.ID, a.State.LastIndex, last)
	}
	return nil
}

// drainTimeout bounds how long a transfer waits for the entries in flight.
const drainTimeout = 2 * time.Second

// To transfers leadership to a voter, and returns when this node has ceased to lead, or with status.ErrUnavailable.
// It first waits until no entry is in flight, because raft refuses entries during a transfer, and entries that are
// in flight when leadership ends are UNCERTAIN. So every command before the transfer has its result. Later ones wait
// in the queue: the end of the leadership answers them with NOT_LEADER, or they are proposed if the transfer fails.
func (h *Handover) To(ctx context.Context, to raft.Server) error {
	if term := h.cfg.Term(); term != 0 {
		drained := h.cfg.Proposer.Pause(term)
		defer h.cfg.Proposer.Resume(term)
		h.drain(ctx, drained)
	}
	node := h.cfg.Cluster.Raft()
	if err := h.awaitLog(ctx, to, node.LastIndex()); err != nil {
		return err
	}
	if err := node.LeadershipTransferToServer(to.ID, to.Address).Error(); err != nil {
		h.acceptsAgain(node)
		return fmt.Errorf("%w: leadership was not handed over: %w", status.ErrUnavailable, err)
	}
	h.awaitLeadershipEnd(node)
	return nil
}

// acceptsAgain waits until raft accepts entries after a failed transfer. Raft reports the failure slightly
// before it does.
func (h *Handover) acceptsAgain(node *raft.Raft) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for errors.Is(node.Barrier(groupcommit.EnqueueTimeout).Error(), raft.ErrLeadershipTransferInProgress) {
		select {
		case <-tick.C:
		case <-h.cfg.Done:
			return
		}
	}
}

func (h *Handover) drain(ctx context.Context, drained <-chan struct{}) {
	timeout := time.NewTimer(drainTimeout)
	defer timeout.Stop()
	select {
	case <-drained:
	case <-timeout.C:
	case <-ctx.Done():
	case <-h.cfg.Done:
	}
}

// awaitLog waits until all entries up to last are in the logs of this node and of the voter. Raft would send it requests
// without pause until it has learned that they are, which it does not before they are written here.
func (h *Handover) awaitLog(ctx context.Context, to raft.Server, last uint64) error {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		a := h.cfg.Prober.One(ctx, h.cfg.Cluster.Peer(to))
		if written, _ := h.cfg.Stores.IsWritten(last); written && a.State.GetLastIndex() >= last {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: leadership was not handed over: entry %d was not written in time by node %q and this one", status.ErrUnavailable, last, to.ID)
		case <-h.cfg.Done:
			return fmt.Errorf("%w: leadership was not handed over: this node is stopping", status.ErrUnavailable)
		}
	}
}

// awaitLeadershipEnd waits until the leadership has ended on this node too. Raft's answer may come first.
func (h *Handover) awaitLeadershipEnd(node *raft.Raft) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for h.cfg.Serving() && node.State() != raft.Leader {
		select {
		case <-tick.C:
		case <-h.cfg.Done:
			return
		}
	}
}
