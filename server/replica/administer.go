package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock/server/membership"
	"github.com/quorumlock/quorumlock/server/status"
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

func (r *Replica) newMembers() *membership.Members {
	return membership.New(membership.Config{
		NodeID: r.cfg.ID, Level: r.cfg.Level, Self: r.self, Machine: r.machine, Directory: r.directory, Cluster: &r.cluster,
		Prober: r.prober, HandOver: func(ctx context.Context) error { return r.handover.Away(ctx) }, StepAside: r.stepAside, Audited: r.audited, LevelRaised: r.Proposer.RaiseLevel, Logger: r.log,
	})
}

// AddMember adds a running, empty node to the cluster, first as a non-voter. The node gets its vote automatically
// once it has caught up. AddMember is idempotent. Leader only.
func (r *Replica) AddMember(ctx context.Context, req *wire.AddMemberRequest) error {
	act := &wire.RecordAct{Action: wire.AuditRecord_ADD_MEMBER, Operator: req.GetOperator(), Reason: req.GetReason(), Ticket: req.GetTicket(), Member: req.GetId(), Address: req.GetPeerAddr()}
	return r.perform(act, func(lead *leadership) error {
		if err := errors.Join(membership.Valid(req), r.checkInForce(req.GetPeerAddr())); err != nil {
			return err
		}
		return r.members.Add(ctx, lead, req, act)
	})
}

// RemoveMember removes a node from the cluster and forgets its incarnation. If that node is the leader itself, it
// hands leadership over and returns status.ErrNotLeader, and the next leader can remove it. Leader only.
func (r *Replica) RemoveMember(ctx context.Context, req *wire.RemoveMemberRequest) error {
	if req.GetId() == "" {
		return fmt.Errorf("%w: the member has no id", status.ErrInvalid)
	}
	act := &wire.RecordAct{Action: wire.AuditRecord_REMOVE_MEMBER, Operator: req.GetOperator(), Reason: req.GetReason(), Ticket: req.GetTicket(), Member: req.Id}
	return r.perform(act, func(lead *leadership) error { return r.members.Remove(ctx, lead, req.Id, act) })
}

// SetDrained drains a member, which then does not lead, or ends that. It is idempotent. Leader only.
func (r *Replica) SetDrained(ctx context.Context, req *wire.SetDrainedRequest) error {
	act := membership.DrainAct(req)
	return r.perform(act, func(lead *leadership) error { return r.members.SetDrained(ctx, lead, act) })
}

// perform performs an operator's act on the cluster.
func (r *Replica) perform(act *wire.RecordAct, do func(lead *leadership) error) error {
	if err := validAct(act); err != nil {
		return err
	}
	lead, done, err := r.administer()
	if err != nil {
		return err
	}
	defer done()
	return do(lead)
}

// stepAside hands leadership over, so that the next leader can remove this node. The audit log records the
// transfer here and the removal there.
func (r *Replica) stepAside(ctx context.Context, lead membership.Leadership, removal *wire.RecordAct) error {
	to, err := r.handover.Best(ctx)
	if err != nil {
		return err
	}
	act := &wire.RecordAct{Action: wire.AuditRecord_TRANSFER_LEADERSHIP, Operator: removal.Operator, Reason: removal.Reason, Ticket: removal.Ticket, Member: string(to.ID)}
	if err := r.audited(ctx, lead, act, func() error { return r.handover.To(ctx, to) }); err != nil {
		return err
	}
	return fmt.Errorf("%w any more: leadership was handed over so that the next leader removes this node", status.ErrNotLeader)
}

// TransferLeadership transfers leadership to the voter named in the request, or to the best one, as an
// operator's action. It returns when this node has ceased to lead. Leader only.
func (r *Replica) TransferLeadership(ctx context.Context, req *wire.TransferLeadershipRequest) error {
	act := &wire.RecordAct{Action: wire.AuditRecord_TRANSFER_LEADERSHIP, Operator: req.GetOperator(), Reason: req.GetReason(), Ticket: req.GetTicket(), Member: req.GetId()}
	return r.perform(act, func(lead *leadership) error {
		if req.GetId() == r.cfg.ID {
			return nil
		}
		to, err := r.handover.Candidate(ctx, req.GetId())
		if err != nil {
			return err
		}
		return r.audited(ctx, lead, act, func() error { return r.handover.To(ctx, to) })
	})
}

// StepDown transfers leadership to the best voter because this node is stopping. It is not an operator's
// action and not audited. Leader only.
func (r *Replica) StepDown(ctx context.Context) error {
	_, done, err := r.administer()
	if err != nil {
		return err
	}
	defer done()
	return r.handover.ToBest(ctx)
}
