package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// administer starts an administrative request: it checks that this node leads, and makes Close wait for the
// request, since the request waits for raft.
func (r *Replica) administer() (lead *leadership, done func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing || r.halted.Load() != nil {
		return nil, nil, fmt.Errorf("%w: this node is stopping", status.ErrUnavailable)
	}
	if r.leadership == nil || !r.leadership.serving {
		return nil, nil, status.ErrNotLeader
	}
	r.admins.Add(1)
	return r.leadership, r.admins.Done, nil
}

// oneByOne waits until no other membership change is in progress. Each change consists of several steps in
// the log and in raft's configuration, and steps of two changes must not interleave: otherwise a node that is
// being removed could be promoted, or recorded again, right afterwards.
func (r *Replica) oneByOne(ctx context.Context) (done func(), err error) {
	select {
	case r.changing <- struct{}{}:
		return func() { <-r.changing }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: another membership change is in progress: %w", status.ErrUnavailable, ctx.Err())
	}
}

// AddMember adds a running, empty node to the cluster, first as a non-voter. The node gets its vote
// automatically once it has caught up. AddMember is idempotent. Leader only.
func (r *Replica) AddMember(ctx context.Context, req *wire.AddMemberRequest) error {
	act := &wire.RecordAct{Action: wire.AuditRecord_ADD_MEMBER, Operator: req.GetOperator(), Reason: req.GetReason(), Member: req.GetId(), Address: req.GetPeerAddr()}
	if err := errors.Join(validMember(req), validAct(act)); err != nil {
		return err
	}
	lead, done, err := r.administer()
	if err != nil {
		return err
	}
	defer done()
	// Before waiting for other changes, so that a node that does not answer is reported immediately.
	m, err := r.candidate(ctx, req)
	if err != nil {
		return err
	}
	changed, err := r.oneByOne(ctx)
	if err != nil {
		return err
	}
	defer changed()
	if err := r.record(ctx, lead, act); err != nil {
		return err
	}
	// Its incarnation first: the node runs raft only once it is known under it.
	if err := r.do(ctx, lead, putMember(m), 0); err != nil {
		return err
	}
	if r.cluster.Contains(m.Id) {
		lead.reconciler.trigger()
		return nil
	}
	change := r.cluster.Raft().AddNonvoter(raft.ServerID(m.Id), raft.ServerAddress(m.PeerAddr), 0, changeTimeout)
	if err := configError(change.Error()); err != nil {
		return err
	}
	r.log.Info("a node was added; it gets its vote when it has caught up", "node", m.Id, "peer", m.PeerAddr)
	lead.reconciler.trigger()
	return nil
}

// candidate asks a node that is to be added who it is.
func (r *Replica) candidate(ctx context.Context, req *wire.AddMemberRequest) (*wire.Member, error) {
	recorded, _ := r.directory.Recorded(req.Id)
	if req.Id == r.cfg.ID {
		return r.self(), nil
	}
	return admit(r.prober.One(ctx, Peer{ID: req.Id, Addr: req.PeerAddr}), recorded)
}

// noAnswer returns the error for a node that did not answer within probe.Timeout. It is status.ErrPrecondition: the
// client should neither retry nor doubt that this node leads, as it would if the call's timeout were passed
// on.
func noAnswer(a probe.Answer, remedy string) error {
	what := "does not answer"
	if errors.Is(a.Err, peerport.ErrRefused) {
		what = "does not take the call"
	}
	return fmt.Errorf("%w: node %q at %s %s: nothing was changed: %s: %v", status.ErrPrecondition, a.Peer.ID, a.Peer.Addr, what, remedy, a.Err)
}

// RemoveMember removes a node from the cluster and forgets its incarnation. If that node is the leader
// itself, it hands leadership over and returns status.ErrNotLeader, and the next leader can remove it. Leader only.
func (r *Replica) RemoveMember(ctx context.Context, req *wire.RemoveMemberRequest) error {
	if req.GetId() == "" {
		return fmt.Errorf("%w: the member has no id", status.ErrInvalid)
	}
	act := &wire.RecordAct{Action: wire.AuditRecord_REMOVE_MEMBER, Operator: req.GetOperator(), Reason: req.GetReason(), Member: req.Id}
	if err := validAct(act); err != nil {
		return err
	}
	lead, done, err := r.administer()
	if err != nil {
		return err
	}
	defer done()
	changed, err := r.oneByOne(ctx)
	if err != nil {
		return err
	}
	defer changed()
	server, configured := r.cluster.Servers()[req.Id]
	recorded := false
	r.machine.View(func(m *fsm.Machine) { _, recorded = m.Member(req.Id) })
	if err := removable(req.Id, r.cluster.Servers(), recorded); err != nil {
		return err
	}
	if req.Id == r.cfg.ID {
		return r.stepAside(ctx, lead, act)
	}
	if configured && server.Suffrage == raft.Voter {
		if err := r.majorityWithout(ctx, req.Id); err != nil {
			return err
		}
	}
	if err := r.record(ctx, lead, act); err != nil {
		return err
	}
	return r.remove(ctx, lead, req.Id, configured)
}

// majorityWithout returns an error unless a majority of the remaining voters answers: their votes are needed
// to commit the removal, and raft cannot undo it.
func (r *Replica) majorityWithout(ctx context.Context, id string) error {
	var others []Peer
	for _, s := range votersBut(r.cluster.Servers(), id, r.cfg.ID) {
		others = append(others, r.cluster.Peer(s))
	}
	answered := 1 // this node
	for _, a := range r.prober.All(ctx, others) {
		if a.State != nil {
			answered++
		}
	}
	return majorityOf(id, len(others)+1, answered)
}

// remove takes the vote away before it forgets the incarnation. In the other order, a node with a wiped disk
// could vote under the old name.
func (r *Replica) remove(ctx context.Context, lead *leadership, id string, configured bool) error {
	if configured {
		if err := configError(r.cluster.Raft().RemoveServer(raft.ServerID(id), 0, changeTimeout).Error()); err != nil {
			return err
		}
	}
	drop := &wire.Command{Op: &wire.Command_DropMember{DropMember: &wire.DropMember{Id: id}}}
	if err := r.do(ctx, lead, drop, 0); err != nil && !errors.Is(err, status.ErrNotFound) {
		return err
	}
	r.log.Info("a node was removed", "node", id)
	return nil
}

// stepAside hands leadership over, so that the next leader can remove this node. The audit log records the
// transfer here and the removal there.
func (r *Replica) stepAside(ctx context.Context, lead *leadership, removal *wire.RecordAct) error {
	to, err := r.bestVoter(ctx)
	if err != nil {
		return err
	}
	act := &wire.RecordAct{Action: wire.AuditRecord_TRANSFER_LEADERSHIP, Operator: removal.Operator, Reason: removal.Reason, Member: string(to.ID)}
	if err := r.record(ctx, lead, act); err != nil {
		return err
	}
	if err := r.transfer(ctx, to); err != nil {
		return err
	}
	return fmt.Errorf("%w any more: leadership was handed over so that the next leader removes this node", status.ErrNotLeader)
}

// TransferLeadership transfers leadership to the voter named in the request, or to the best one, as an
// operator's action. It returns when this node has ceased to lead. Leader only.
func (r *Replica) TransferLeadership(ctx context.Context, req *wire.TransferLeadershipRequest) error {
	act := &wire.RecordAct{Action: wire.AuditRecord_TRANSFER_LEADERSHIP, Operator: req.GetOperator(), Reason: req.GetReason(), Member: req.GetId()}
	if err := validAct(act); err != nil {
		return err
	}
	lead, done, err := r.administer()
	if err != nil {
		return err
	}
	defer done()
	if req.GetId() == r.cfg.ID {
		return nil
	}
	to, err := r.nextLeader(ctx, req.GetId())
	if err != nil {
		return err
	}
	if err := r.record(ctx, lead, act); err != nil {
		return err
	}
	return r.transfer(ctx, to)
}

// StepDown transfers leadership to the best voter because this node is stopping. It is not an operator's
// action and not audited. Leader only.
func (r *Replica) StepDown(ctx context.Context) error {
	_, done, err := r.administer()
	if err != nil {
		return err
	}
	defer done()
	return r.transferToBest(ctx)
}

// transferToBest transfers leadership to the best voter.
func (r *Replica) transferToBest(ctx context.Context) error {
	to, err := r.bestVoter(ctx)
	if err != nil {
		return err
	}
	return r.transfer(ctx, to)
}

// nextLeader returns the voter named, if it can lead, or the best one if id is "".
func (r *Replica) nextLeader(ctx context.Context, id string) (raft.Server, error) {
	if id == "" {
		return r.bestVoter(ctx)
	}
	server, err := electable(id, r.cluster.Servers())
	if err != nil {
		return server, err
	}
	return server, ableToLead(r.prober.One(ctx, r.cluster.Peer(server)), r.cluster.Raft().LastIndex())
}

// bestVoter returns the other voter that answers and has the longest log. Raft would choose by what it has
// sent; if that voter is gone, raft refuses every entry until its call has timed out.
func (r *Replica) bestVoter(ctx context.Context) (raft.Server, error) {
	servers := r.cluster.Servers()
	var voters []Peer
	for _, s := range votersBut(servers, r.cfg.ID) {
		voters = append(voters, r.cluster.Peer(s))
	}
	if len(voters) == 0 {
		return raft.Server{}, fmt.Errorf("%w: there is no other voter", status.ErrPrecondition)
	}
	best := probe.LongestLog(r.prober.All(ctx, voters))
	if best.State == nil {
		return raft.Server{}, fmt.Errorf("%w: no other voter answers: nothing was changed", status.ErrPrecondition)
	}
	return servers[best.Peer.ID], nil
}

// drainTimeout bounds how long a transfer waits for the entries in flight.
const drainTimeout = 2 * time.Second

// transfer transfers leadership when no entry is in flight, because raft refuses entries during a transfer,
// and entries that are in flight when leadership ends are UNCERTAIN. So every command before the transfer has
// its result. Later ones wait in the queue: the end of the leadership answers them with NOT_LEADER, or they
// are proposed if the transfer fails.
func (r *Replica) transfer(ctx context.Context, to raft.Server) error {
	if lead := r.current(); lead != nil {
		drained := r.proposer.Pause(lead.term)
		defer r.proposer.Resume(lead.term)
		r.drain(ctx, drained)
	}
	node := r.cluster.Raft()
	if err := node.LeadershipTransferToServer(to.ID, to.Address).Error(); err != nil {
		r.acceptsAgain(node)
		return fmt.Errorf("%w: leadership was not handed over: %w", status.ErrUnavailable, err)
	}
	r.awaitLeadershipEnd(node)
	return nil
}

// acceptsAgain waits until raft accepts entries after a failed transfer. Raft reports the failure slightly
// before it does.
func (r *Replica) acceptsAgain(node *raft.Raft) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for errors.Is(node.Barrier(groupcommit.EnqueueTimeout).Error(), raft.ErrLeadershipTransferInProgress) {
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			return
		}
	}
}

func (r *Replica) drain(ctx context.Context, drained <-chan struct{}) {
	timeout := time.NewTimer(drainTimeout)
	defer timeout.Stop()
	select {
	case <-drained:
	case <-timeout.C:
	case <-ctx.Done():
	case <-r.ctx.Done():
	}
}

// awaitLeadershipEnd waits until the leadership has ended in this package too. Raft's answer may come first.
func (r *Replica) awaitLeadershipEnd(node *raft.Raft) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for r.Serving() && node.State() != raft.Leader {
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			return
		}
	}
}
