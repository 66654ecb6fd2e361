package replica

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/bootstrap"
	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/membership"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// storeInterval is how often a node checks the state for changes to the members. This is cheap unless something
	// was applied.
	storeInterval = 200 * time.Millisecond
	// reporting is how often a node checks that the replicated state describes it correctly.
	reporting = time.Second
	// snapshotBytes is the size of logged entries that triggers a snapshot, however few there are.
	snapshotBytes = 64 << 20
)

// keep processes changes in raft and the state machine: it updates the leader hint and the member directory,
// ends acknowledged alarms, and bounds the size of the log. It runs until the node stops.
func (r *Replica) keep() {
	node := r.cluster.Raft()
	seen := make(chan raft.Observation, 16)
	observer := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	node.RegisterObserver(observer)
	defer node.DeregisterObserver(observer)
	tick := time.NewTicker(storeInterval)
	defer tick.Stop()
	for {
		select {
		case <-seen:
		case <-tick.C:
			r.keepDirectory()
			r.alarms.End(r.ctx)
			r.keepSmall(node, snapshotBytes)
		case <-r.ctx.Done():
			return
		}
		r.leaders.Publish(r.Leader())
	}
}

// keepDirectory records the members when the state machine has newer ones.
func (r *Replica) keepDirectory() {
	void, changed, err := r.directory.Update()
	if err != nil {
		r.halt(fmt.Errorf("keep the members: %w", err))
		return
	}
	for _, id := range void {
		r.log.Info("a node's incarnation is void", "node", id)
	}
	if changed {
		r.layer.Recheck()
	}
}

// keepSmall requests a snapshot when the log has grown by limit bytes, even in few entries. It does not wait for the
// snapshot: a large one on a slow disk takes long, and members may change meanwhile.
func (r *Replica) keepSmall(node *raft.Raft, limit int64) {
	if !r.stores.GrownBy(limit) {
		return
	}
	r.snapshots.Go(func() {
		_ = node.Snapshot().Error() // logged by raft
	})
}

// report makes the replicated state describe this node correctly: its incarnation, addresses and level. It
// runs until the node stops.
func (r *Replica) report() {
	tick := time.NewTicker(reporting)
	defer tick.Stop()
	for {
		r.reportOnce()
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			return
		}
	}
}

func (r *Replica) reportOnce() {
	node := r.cluster.Raft()
	if r.halted.Load() != nil || node.State() == raft.Leader {
		return // a leader's reconciler takes care of it
	}
	leader, _, ok := r.leader()
	if !ok {
		r.seek()
		r.warnLostMajority()
		return
	}
	var known *wire.Member
	r.machine.View(func(m *fsm.Machine) {
		if m.ClusterID() != "" {
			known, _ = m.Member(r.cfg.ID)
		}
	})
	if membership.Describes(known, r.self()) {
		return
	}
	addr, _ := node.LeaderWithID()
	if err := r.reportTo(r.ctx, Peer{ID: leader.Id, Addr: string(r.cluster.Resolve(raft.ServerID(leader.Id), addr))}); err != nil {
		r.log.Debug("the leader did not record this node", "leader", leader.Id, "error", err)
	}
}

// seek probes the other nodes. A node with state calls it when it hears from no leader: the others may know
// it by an older address, or may have replaced it.
func (r *Replica) seek() {
	answers := r.prober.All(r.ctx, r.directory.Peers(r.cfg.Cluster))
	// The answer of a node that has not followed a leader since its start may be outdated.
	as, peer := bootstrap.Assess(answers)
	if as == bootstrap.Replaced && peer.LeaderId != "" && r.ctx.Err() == nil {
		r.halt(r.advice().Replaced(r.stores.Incarnation, peer, probe.HasLeader))
		return
	}
	if as == bootstrap.Removed {
		r.bootstrap.WarnRemoved(peer.ClusterId)
		return
	}
	if leader, ok := probe.Leader(answers); ok {
		if err := r.reportTo(r.ctx, leader); err != nil {
			r.waiting.Warn("the cluster has a leader, but not for this node", "leader", leader.ID, "error", err)
		}
	}
}

// reportTo reports this node to the leader.
func (r *Replica) reportTo(ctx context.Context, leader Peer) error {
	return r.request(ctx, leader, &wire.PeerRequest{Body: &wire.PeerRequest_Report{Report: &wire.ReportRequest{Member: r.self()}}})
}

// askToJoin asks the leader to add this node.
func (r *Replica) askToJoin(ctx context.Context, leader Peer) error {
	return r.request(ctx, leader, &wire.PeerRequest{Body: &wire.PeerRequest_Join{Join: &wire.JoinRequest{Member: r.self()}}})
}

// request sends a request that has no answer but its status.
func (r *Replica) request(ctx context.Context, to Peer, req *wire.PeerRequest) error {
	ctx, cancel := context.WithTimeout(ctx, 3*probe.Timeout)
	defer cancel()
	resp, _, err := r.layer.Call(ctx, to.Addr, to.ID, req)
	if err != nil {
		return err
	}
	return status.Err(status.Result(resp.GetStatus(), resp.GetMessage()))
}

// serveControl answers requests of other nodes.
func (r *Replica) serveControl(ctx context.Context, from *wire.PeerHello, req *wire.PeerRequest) *wire.PeerResponse {
	switch {
	case req.GetProbe() != nil:
		state := r.nodeState(from)
		if r.directory.Empty() || state.Caller == wire.Standing_MEMBER { // strangers cannot make a member call others
			state.Unreached = r.prober.Unreached(ctx, req.GetProbe().GetReach())
		}
		return &wire.PeerResponse{Status: wire.Status_OK, State: state}
	case req.GetReport() != nil:
		return answer(r.serveReport(ctx, from, req.GetReport().GetMember()))
	case req.GetJoin() != nil:
		return answer(r.serveJoin(ctx, from, req.GetJoin().GetMember()))
	case req.GetRecord() != nil:
		revision, err := r.serveRecord(ctx, req.GetRecord())
		resp := answer(err)
		resp.Revision = revision
		return resp
	case req.GetHashes() != nil:
		return r.serveHashes(from, req.GetHashes().GetHashes())
	case req.GetLeaderLoss() != nil:
		return r.answerLoss(req.GetLeaderLoss())
	case req.GetCampaign() != nil:
		resp, err := r.serveCampaign(ctx, from.GetId(), req.GetCampaign())
		if err != nil {
			return answer(err)
		}
		return resp
	case req.GetStanding() != nil:
		who := req.GetStanding()
		return &wire.PeerResponse{Status: wire.Status_OK, Standing: r.directory.RecordedStanding(who.GetId(), who.GetIncarnation())}
	}
	return nil
}

// answer returns the response to a request that has failed with err, or has succeeded.
func answer(err error) *wire.PeerResponse {
	result := status.ResultOf(err)
	return &wire.PeerResponse{Status: result.Status, Message: result.Message}
}

// nodeState returns what this node says about itself.
func (r *Replica) nodeState(from *wire.PeerHello) *wire.NodeState {
	// Read the index before the state that it dates. The state may be newer than its index but must not be
	// older, or a node that was just removed would be refused as replaced when it is added again.
	applied := r.machine.AppliedIndex()
	state := &wire.NodeState{
		Member:       r.self(),
		ClusterId:    r.directory.ClusterID(),
		Empty:        !r.began,
		Caller:       r.directory.RecordedStanding(from.GetId(), from.GetIncarnation()),
		Version:      r.cfg.Version,
		AppliedIndex: applied,
		Declines:     r.handover.Declines(),
		Alarms:       r.Alarms(),
		ClockUnixMs:  time.Now().UnixMilli(),

		CertificateExpiresUnixMs: r.certificateExpiry(),
	}
	state.DiskSyncUs, state.CommitUs = r.latencies()
	if known, _ := r.directory.Recorded(from.GetId()); known != "" && state.Caller == wire.Standing_REMOVED {
		state.Caller = wire.Standing_REPLACED // it was not only removed: another node has its place
	}
	r.cluster.Seen(from.GetId(), state.Caller)
	state.MajorityLost = r.cluster.LostMajority() != nil
	r.machine.View(func(m *fsm.Machine) { state.Revision = m.Revision() })
	if node := r.cluster.Raft(); node != nil {
		state.Term, state.LastIndex = node.CurrentTerm(), node.LastIndex()
		state.Empty = state.Term == 0 && state.LastIndex == 0
		_, leader := node.LeaderWithID()
		state.LeaderId, state.LeaderAddr = string(leader), r.cluster.Leader().Addr
	}
	expected, proposed := r.bootstrap.Proposal()
	state.ExpectedNodes, state.Proposed = uint32(expected), proposed
	switch r.directory.Standing(from.GetId(), from.GetIncarnation()) {
	case wire.Standing_MEMBER, wire.Standing_EXPECTED:
		return state
	}
	if r.directory.Empty() {
		return state // nothing but its identity, for a cluster that may add it
	}
	return &wire.NodeState{
		Member: &wire.Member{Id: r.cfg.ID}, ClusterId: state.ClusterId, Empty: state.Empty, Caller: state.Caller,
		Term: state.Term, AppliedIndex: state.AppliedIndex, LeaderId: state.LeaderId, LeaderAddr: state.LeaderAddr, MajorityLost: state.MajorityLost,
	}
}

// serveReport records a node of the cluster as it describes itself.
func (r *Replica) serveReport(ctx context.Context, from *wire.PeerHello, m *wire.Member) error {
	if m.GetId() != from.GetId() || m.GetIncarnation() != from.GetIncarnation() {
		return fmt.Errorf("%w: a node reports itself only", status.ErrInvalid)
	}
	lead := r.current()
	if lead == nil {
		return status.ErrNotLeader
	}
	return r.members.Report(ctx, lead, m)
}

// serveJoin adds a node that asks for it. Its certificate says that it may; without TLS, whoever reaches the port may.
func (r *Replica) serveJoin(ctx context.Context, from *wire.PeerHello, m *wire.Member) error {
	if m.GetId() != from.GetId() || m.GetIncarnation() != from.GetIncarnation() {
		return fmt.Errorf("%w: a node asks for itself only", status.ErrInvalid)
	}
	return r.AddMember(identity.NewNodeContext(ctx, m.Id), &wire.AddMemberRequest{Id: m.Id, PeerAddr: m.PeerAddr, Operator: m.Id, Reason: "the node asks to join (--join)"})
}

// warnLostMajority logs what to do if a majority of the voters has lost its data.
func (r *Replica) warnLostMajority() {
	wiped := r.cluster.LostMajority()
	if wiped == nil {
		return
	}
	r.waiting.Warn("no leader can be elected: a majority of the voters has lost its data, and removing nodes needs a leader. "+
		"Make a new cluster from the node that has most, as \"Lost majority\" in docs/OPERATIONS.md says", "lost", wiped, "run", r.advice().Recover())
}
