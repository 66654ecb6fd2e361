package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/server/internal/advice"
	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// The pause between two rounds of probes grows from firstRound to lastRound.
	firstRound, lastRound = 100 * time.Millisecond, time.Second
	// emptyRounds is the number of rounds for which a majority of empty nodes waits for the others.
	emptyRounds = 5
)

// Config configures a Bootstrap. All fields except Configured, Expected and Join are required.
type Config struct {
	// Configured are the nodes of the initial cluster, including this one.
	Configured []directory.Peer
	Directory  *directory.Directory
	Advice     advice.Node
	// Self returns this node as it reports itself.
	Self func() *wire.Member
	// Probe asks the other nodes for their state.
	Probe func(ctx context.Context) []probe.Answer
	// Expected is how many nodes form a cluster together if none are configured. 0 means that this node forms none.
	Expected int
	// Report reports this node to the leader, which records it if it belongs to the cluster.
	Report func(ctx context.Context, leader directory.Peer) error
	// Join asks the leader to add this node. Nil means that an operator adds it.
	Join func(ctx context.Context, leader directory.Peer) error
	// Start runs raft. If seen is not nil, it first begins a new cluster with these members.
	Start  func(seen []*wire.Member) error
	Logger hclog.Logger
	// Waiting logs what the node waits for.
	Waiting *ratelog.Repeated
}

// Bootstrap starts a node whose data directory is empty. One goroutine at a time uses it, and any may call Proposal
// and Removed.
type Bootstrap struct {
	cfg Config
	// proposed are the members of the cluster that this node proposes to form, nil until it has found as many as are
	// expected.
	proposed atomic.Pointer[[]*wire.Member]
	// removed describes the removal of this node, once it is known.
	removed atomic.Pointer[string]
}

// New creates a Bootstrap.
func New(cfg Config) *Bootstrap { return &Bootstrap{cfg: cfg} }

// Standing is what the answers say about this node.
type Standing int

const (
	Alone    Standing = iota // no node with state answered
	Known                    // known under this incarnation
	Unknown                  // not known, or without an incarnation
	Replaced                 // known under another incarnation
	Removed                  // it was a member and was removed
)

// Assess returns the standing of this node according to the node that has applied most, and that node's state.
// Among equals it prefers a removal, then any record of this node: a record must come from somewhere.
func Assess(answers []probe.Answer) (Standing, *wire.NodeState) {
	var best *wire.NodeState
	var as Standing
	for _, a := range answers {
		if a.State == nil || a.State.Empty {
			continue
		}
		s := Unknown
		switch a.State.Caller {
		case wire.Standing_MEMBER:
			s = Known
		case wire.Standing_REPLACED:
			s = Replaced
		case wire.Standing_REMOVED:
			s = Removed
		}
		if best == nil || better(a.State, s, best, as) {
			best, as = a.State, s
		}
	}
	return as, best
}

func better(a *wire.NodeState, as Standing, b *wire.NodeState, bs Standing) bool {
	if a.AppliedIndex != b.AppliedIndex {
		return a.AppliedIndex > b.AppliedIndex
	}
	rank := map[Standing]int{Removed: 4, Known: 3, Replaced: 2, Unknown: 1}
	return rank[as] > rank[bs]
}

// Try asks the other nodes whether this empty node may run raft, and starts raft if so. If done is false
// and err is nil, it may not yet.
func (b *Bootstrap) Try(ctx context.Context, round int) (done bool, err error) {
	answers := b.cfg.Probe(ctx)
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := probe.SameCluster(answers, b.cfg.Directory); err != nil {
		return false, err
	}
	switch as, peer := Assess(answers); as {
	case Replaced:
		now := probe.QuorumOf(answers)
		if round == 0 && len(probe.Unreachable(answers)) > 0 || round < emptyRounds && now == probe.NoLeader {
			// A node that has just learned of the removal closes its connections with this node, and the
			// nodes that still answer may not have learned of it yet. And if there is no leader, the next
			// moments may show whether there can be one.
			return b.retry(ctx, round, b.replaced(peer, now))
		}
		return false, b.replaced(peer, now)
	case Known:
		b.cfg.Logger.Info("joining the cluster", "cluster", peer.ClusterId, "node", peer.GetMember().GetId())
		if err := b.recordMembers(answers); err != nil {
			return false, err
		}
		return true, b.cfg.Start(nil)
	case Removed:
		b.WarnRemoved(peer.ClusterId)
		return false, nil
	case Unknown:
		b.applyForMembership(ctx, answers, peer)
		return false, nil
	}
	return b.beginCluster(answers, round)
}

// recordMembers records the members that know this node. Until this node has applied the cluster's log up to now, it
// accepts these members and asks them about other callers.
func (b *Bootstrap) recordMembers(answers []probe.Answer) error {
	now := &wire.Membership{Members: []*wire.Member{b.cfg.Self()}}
	revision := uint64(0)
	for _, a := range answers {
		if a.State != nil && !a.State.Empty && a.State.Caller == wire.Standing_MEMBER && a.State.Member.GetIncarnation() != "" {
			now.ClusterId, revision = a.State.ClusterId, max(revision, a.State.Revision)
			now.Members = append(now.Members, a.State.Member)
		}
	}
	// One less, so that the cluster's own record replaces this one even if nothing changes there.
	if _, err := b.cfg.Directory.Store(max(revision, 1)-1, now); err != nil {
		return fmt.Errorf("join the cluster: %w", err)
	}
	return nil
}

// WarnRemoved logs that this node is no longer a member. The node then waits. Other nodes do not talk to it.
func (b *Bootstrap) WarnRemoved(cluster string) {
	removed := b.cfg.Advice.Removed(cluster)
	b.removed.Store(&removed)
	b.cfg.Waiting.Warn("this node was removed from its cluster and no longer takes part; to add it back, move its data away, start it again, and add it",
		"cluster", cluster, "data", b.cfg.Advice.DataDir, "run", b.cfg.Advice.Add())
}

// Removed says that this node was removed from its cluster, and what to do. It returns "" if the node does not know that.
func (b *Bootstrap) Removed() string {
	if removed := b.removed.Load(); removed != nil {
		return *removed
	}
	return ""
}

// retry waits briefly, so that news can spread among the other nodes, and calls Try again. If ctx
// leaves no time for another round, it returns verdict, the result so far.
func (b *Bootstrap) retry(ctx context.Context, round int, verdict error) (done bool, err error) {
	if end, bounded := ctx.Deadline(); bounded && time.Until(end) < firstRound+probe.Timeout {
		return false, verdict
	}
	select {
	case <-time.After(firstRound):
		return b.Try(ctx, round+1)
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// beginCluster bootstraps a cluster if enough of the configured nodes are empty. If some do not answer, it
// waits a few rounds for them, since they might have state.
func (b *Bootstrap) beginCluster(answers []probe.Answer, round int) (done bool, err error) {
	if b.cfg.Expected > 0 {
		return b.form(answers)
	}
	configured := len(b.cfg.Configured)
	if configured == 0 && b.cfg.Join != nil {
		b.cfg.Waiting.Warn("waiting for a cluster to join: no node of one has answered", "unreachable", probe.Unreachable(answers))
		return false, nil
	}
	if configured == 0 {
		b.cfg.Waiting.Warn("waiting to be added to a cluster", "run", b.cfg.Advice.Add())
		return false, nil
	}
	members := []*wire.Member{b.cfg.Self()}
	for _, a := range answers {
		if a.State != nil {
			members = append(members, a.State.Member)
		}
	}
	if len(members) <= configured/2 || (len(members) < configured && round < emptyRounds) {
		b.cfg.Waiting.Warn("waiting for a majority of the new cluster's nodes", "answered", len(members), "configured", configured, "unreachable", probe.Unreachable(answers))
		return false, nil
	}
	return true, b.cfg.Start(members)
}

// InitialMembers returns the configured nodes, with the incarnations that were seen.
func (b *Bootstrap) InitialMembers(seen []*wire.Member) []*wire.Member {
	var members []*wire.Member
	for _, p := range b.cfg.Configured {
		m := &wire.Member{Id: p.ID, PeerAddr: p.Addr}
		if i := slices.IndexFunc(seen, func(s *wire.Member) bool { return s.GetId() == p.ID }); i >= 0 {
			m = seen[i]
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b *wire.Member) int { return cmp.Compare(a.Id, b.Id) })
	return members
}

// InitialVoters returns the first configuration. It is the same on every node that begins the cluster.
func (b *Bootstrap) InitialVoters() raft.Configuration {
	var c raft.Configuration
	for _, p := range b.cfg.Configured {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Addr)})
	}
	slices.SortFunc(c.Servers, func(a, b raft.Server) int { return cmp.Compare(a.ID, b.ID) })
	return c
}

// applyForMembership reports this node to the leader, which records it if it belongs to the cluster. Otherwise it asks the
// leader to add it, if it should join.
func (b *Bootstrap) applyForMembership(ctx context.Context, answers []probe.Answer, peer *wire.NodeState) {
	leader, ok := probe.Leader(answers)
	if !ok {
		b.cfg.Waiting.Warn("waiting for the cluster to have a leader", "cluster", peer.ClusterId)
		return
	}
	err := b.cfg.Report(ctx, leader)
	if errors.Is(err, status.ErrNotFound) && b.cfg.Join != nil {
		err = b.cfg.Join(ctx, leader)
	}
	if err != nil {
		b.cfg.Waiting.Warn("waiting to be added to the cluster", "cluster", peer.ClusterId, "leader", leader.ID, "error", err, "run", b.cfg.Advice.Add())
	}
}

// Await repeats Try until raft runs or ctx ends. It returns the error of Try.
func (b *Bootstrap) Await(ctx context.Context) error {
	pause := firstRound
	for round := 1; ; round++ {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		done, err := b.Try(ctx, round)
		if ctx.Err() != nil {
			return nil
		}
		if done || err != nil {
			return err
		}
		if pause = min(2*pause, lastRound); b.proposed.Load() != nil {
			pause = firstRound // all nodes are there, and the others may have begun
		}
	}
}

// replaced returns the error of a node that has lost its data.
func (b *Bootstrap) replaced(peer *wire.NodeState, now probe.Quorum) error {
	_, incarnation := b.cfg.Directory.Self()
	return b.cfg.Advice.Replaced(incarnation, peer, now)
}
