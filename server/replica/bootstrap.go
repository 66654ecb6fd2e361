package replica

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/probe"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// A node votes only if it has its memory. An empty data directory may belong to a new cluster, to a node that
// is to be added, or to a voter whose disk was wiped; the last must not take part in an election. So an empty
// node runs raft only when one of these holds:
//
//   - A majority of the configured nodes, including itself, are empty too, and no node has state. Then these
//     nodes begin one cluster, and each durably records the incarnations that it saw.
//   - A node with state says that it knows this one under its incarnation, from the log or from having begun
//     the cluster together.
//
// A configured node that was not seen at the beginning becomes known by reporting itself to the leader. Any
// other node waits to be added.

const (
	// The pause between two rounds of probes grows from firstRound to lastRound.
	firstRound, lastRound = 100 * time.Millisecond, time.Second
	// emptyRounds is the number of rounds for which a majority of empty nodes waits for the others.
	emptyRounds = 5
	// repeatInterval is how often a waiting node repeats its log message.
	repeatInterval = time.Minute
)

// standing is what the answers say about this node.
type standing int

const (
	alone      standing = iota // no node with state answered
	known                      // known under this incarnation
	unknownYet                 // not known, or without an incarnation
	replaced                   // known under another incarnation
	removed                    // it was a member and was removed
)

// assess returns the standing of this node according to the node that has applied most, and that node's state.
// Among equals it prefers a removal, then any record of this node: a record must come from somewhere.
func assess(answers []probe.Answer) (standing, *wire.NodeState) {
	var best *wire.NodeState
	var as standing
	for _, a := range answers {
		if a.State == nil || a.State.Empty {
			continue
		}
		s := unknownYet
		switch a.State.Caller {
		case wire.Standing_MEMBER:
			s = known
		case wire.Standing_REPLACED:
			s = replaced
		case wire.Standing_REMOVED:
			s = removed
		}
		if best == nil || better(a.State, s, best, as) {
			best, as = a.State, s
		}
	}
	return as, best
}

func better(a *wire.NodeState, as standing, b *wire.NodeState, bs standing) bool {
	if a.AppliedIndex != b.AppliedIndex {
		return a.AppliedIndex > b.AppliedIndex
	}
	rank := map[standing]int{removed: 4, known: 3, replaced: 2, unknownYet: 1}
	return rank[as] > rank[bs]
}

// tryStart asks the other nodes whether this empty node may run raft, and starts raft if so. If done is false
// and err is nil, it may not yet.
func (r *Replica) tryStart(ctx context.Context, round int) (done bool, err error) {
	peers := r.directory.Peers(r.cfg.Cluster)
	answers := r.prober.All(ctx, peers)
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := probe.SameCluster(answers, r.directory.ClusterID()); err != nil {
		return false, err
	}
	switch as, peer := assess(answers); as {
	case replaced:
		now := probe.QuorumOf(answers)
		if round == 0 && len(probe.Unreachable(answers)) > 0 || round < emptyRounds && now == probe.NoLeader {
			// A node that has just learned of the removal closes its connections with this node, and the
			// nodes that still answer may not have learned of it yet. And if there is no leader, the next
			// moments may show whether there can be one.
			return r.retryStart(ctx, round, r.advice().Replaced(r.stores.Incarnation, peer, now))
		}
		return false, r.advice().Replaced(r.stores.Incarnation, peer, now)
	case known:
		r.log.Info("joining the cluster", "cluster", peer.ClusterId, "known-to", peer.GetMember().GetId())
		if err := r.meet(answers); err != nil {
			return false, err
		}
		return true, r.startRaft(nil)
	case removed:
		r.warnRemoved(peer.ClusterId)
		return false, nil
	case unknownYet:
		r.applyForMembership(ctx, answers, peer)
		return false, nil
	}
	return r.beginCluster(answers, round)
}

// meet records the members that know this node. Until this node has applied the cluster's log up to now, it
// accepts these members and asks them about other callers.
func (r *Replica) meet(answers []probe.Answer) error {
	now := &wire.Membership{Members: []*wire.Member{r.self()}}
	revision := uint64(0)
	for _, a := range answers {
		if a.State != nil && !a.State.Empty && a.State.Caller == wire.Standing_MEMBER && a.State.Member.GetIncarnation() != "" {
			now.ClusterId, revision = a.State.ClusterId, max(revision, a.State.Revision)
			now.Members = append(now.Members, a.State.Member)
		}
	}
	// One less, so that the cluster's own record replaces this one even if nothing changes there.
	if _, err := r.directory.Store(max(revision, 1)-1, now); err != nil {
		return fmt.Errorf("join the cluster: %w", err)
	}
	return nil
}

// warnRemoved logs that this node is no longer a member. The node then waits. Other nodes do not talk to it.
func (r *Replica) warnRemoved(cluster string) {
	r.warnRepeatedly("this node was removed from its cluster and no longer takes part; to add it back, move its data away, start it again, and add it",
		"cluster", cluster, "data", r.cfg.DataDir, "run", r.advice().Add())
}

// retryStart waits briefly, so that news can spread among the other nodes, and calls tryStart again. If ctx
// leaves no time for another round, it returns verdict, the result so far.
func (r *Replica) retryStart(ctx context.Context, round int, verdict error) (done bool, err error) {
	if end, bounded := ctx.Deadline(); bounded && time.Until(end) < firstRound+probe.Timeout {
		return false, verdict
	}
	select {
	case <-time.After(firstRound):
		return r.tryStart(ctx, round+1)
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// beginCluster bootstraps a cluster if enough of the configured nodes are empty. If some do not answer, it
// waits a few rounds for them, since they might have state.
func (r *Replica) beginCluster(answers []probe.Answer, round int) (done bool, err error) {
	members := []*wire.Member{r.self()}
	for _, a := range answers {
		if a.State != nil {
			members = append(members, a.State.Member)
		}
	}
	configured := len(r.cfg.Cluster)
	if configured == 0 {
		r.warnRepeatedly("waiting to be added to a cluster", "run", r.advice().Add())
		return false, nil
	}
	if len(members) <= configured/2 || (len(members) < configured && round < emptyRounds) {
		r.warnRepeatedly("waiting for a majority of the new cluster's nodes", "answered", len(members), "configured", configured, "unreachable", probe.Unreachable(answers))
		return false, nil
	}
	return true, r.startRaft(members)
}

// initialMembers returns the configured nodes, with the incarnations that were seen.
func (r *Replica) initialMembers(seen []*wire.Member) []*wire.Member {
	var members []*wire.Member
	for _, p := range r.cfg.Cluster {
		m := &wire.Member{Id: p.ID, PeerAddr: p.Addr}
		if i := slices.IndexFunc(seen, func(s *wire.Member) bool { return s.GetId() == p.ID }); i >= 0 {
			m = seen[i]
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b *wire.Member) int { return cmp.Compare(a.Id, b.Id) })
	return members
}

// initialVoters returns the first configuration. It is the same on every node that begins the cluster.
func (r *Replica) initialVoters() raft.Configuration {
	var c raft.Configuration
	for _, p := range r.cfg.Cluster {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Addr)})
	}
	slices.SortFunc(c.Servers, func(a, b raft.Server) int { return cmp.Compare(a.ID, b.ID) })
	return c
}

// applyForMembership reports this node to the leader, which records it if it belongs to the cluster.
func (r *Replica) applyForMembership(ctx context.Context, answers []probe.Answer, peer *wire.NodeState) {
	leader, ok := probe.Leader(answers)
	if !ok {
		r.warnRepeatedly("waiting for the cluster to have a leader", "cluster", peer.ClusterId)
		return
	}
	if err := r.reportTo(ctx, leader); err != nil {
		r.warnRepeatedly("waiting to be added to the cluster", "cluster", peer.ClusterId, "leader", leader.ID, "answer", err, "run", r.advice().Add())
	}
}

// warnRepeatedly logs what the node waits for: when that changes, and then periodically.
func (r *Replica) warnRepeatedly(message string, args ...any) {
	if message == r.warned && time.Since(r.warnedAt) < repeatInterval {
		return
	}
	r.warned, r.warnedAt = message, time.Now()
	r.log.Warn(message, args...)
}

// awaitStart repeats tryStart until raft runs. It is a goroutine of a node that was empty when it was opened.
func (r *Replica) awaitStart() {
	pause := firstRound
	for round := 1; ; round++ {
		select {
		case <-time.After(pause):
		case <-r.ctx.Done():
			return
		}
		done, err := r.tryStart(r.ctx, round)
		if r.ctx.Err() != nil || done && err == nil {
			return
		}
		if err != nil {
			r.halt(err)
			return
		}
		pause = min(2*pause, lastRound)
	}
}
