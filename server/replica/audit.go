package replica

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/membership"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// recordTimeout bounds the time that a record takes which the act does not need.
	recordTimeout = 2 * time.Second
	// recordInterval is how often the leader is looked for in that time.
	recordInterval = 10 * time.Millisecond
)

// audited performs an operator's act outside the state machine between two audit records: one before it begins, without
// which it does not happen, and one with its outcome. The second one may be written by the next leader.
func (r *Replica) audited(ctx context.Context, lead membership.Leadership, act *wire.RecordAct, perform func() error) error {
	result, err := lead.Execute(ctx, membership.Record(ctx, act), 0)
	if err != nil {
		return err
	}
	err = perform()
	after := outcomeOf(act, err)
	after.BegunRevision = result.GetRevision()
	r.recordOutcome(ctx, after)
	return err
}

// outcomeOf returns the record of an act that ended with err.
func outcomeOf(act *wire.RecordAct, err error) *wire.RecordAct {
	after := proto.CloneOf(act)
	after.Outcome = status.Code(err)
	if err != nil {
		after.Message = wire.CleanText(err.Error(), fsm.MaxOutcomeBytes)
	}
	return after
}

func (r *Replica) recordOutcome(ctx context.Context, act *wire.RecordAct) {
	if _, err := r.recordAtLeader(ctx, act); err != nil {
		r.log.Warn("the audit log lacks the outcome of an operator's act", "act", act.Action.String(), "begun", act.BegunRevision,
			"outcome", act.Outcome.String(), "message", act.Message, "error", err)
	}
}

// recordAtLeader records an act of the caller in ctx at the leader, which may be another node. It goes on for at most
// recordTimeout, also if ctx ends before, and returns the revision of the record.
func (r *Replica) recordAtLeader(ctx context.Context, act *wire.RecordAct) (revision uint64, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	tick := time.NewTicker(recordInterval)
	defer tick.Stop()
	for {
		revision, err = r.recordOnce(ctx, act)
		switch status.Code(err) {
		case wire.Status_NOT_LEADER, wire.Status_UNAVAILABLE:
		default:
			return revision, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, err
		}
	}
}

func (r *Replica) recordOnce(ctx context.Context, act *wire.RecordAct) (revision uint64, err error) {
	if lead := r.current(); lead != nil {
		result, err := lead.Execute(ctx, membership.Record(ctx, act), 0)
		return result.GetRevision(), err
	}
	leader, _, ok := r.leader()
	if !ok || leader.Id == r.cfg.ID {
		return 0, status.ErrNotLeader
	}
	addr, _ := r.cluster.Raft().LeaderWithID()
	to := string(r.cluster.Resolve(raft.ServerID(leader.Id), addr))
	req := &wire.RecordRequest{Act: act, Caller: identity.FromContext(ctx), Node: identity.NodeFromContext(ctx)}
	resp, _, err := r.layer.Call(ctx, to, leader.Id, &wire.PeerRequest{Body: &wire.PeerRequest_Record{Record: req}})
	if err != nil {
		return 0, fmt.Errorf("%w: %w", status.ErrUnavailable, err)
	}
	return resp.GetRevision(), status.Err(status.Result(resp.GetStatus(), resp.GetMessage()))
}

// serveRecord records an act for another member.
func (r *Replica) serveRecord(ctx context.Context, req *wire.RecordRequest) (revision uint64, err error) {
	lead := r.current()
	if lead == nil {
		return 0, status.ErrNotLeader
	}
	record := &wire.Command{Caller: req.GetCaller(), Node: req.GetNode(), Op: &wire.Command_RecordAct{RecordAct: req.GetAct()}}
	result, err := lead.Execute(ctx, record, 0)
	return result.GetRevision(), err
}

// beginStale records a stale backup before it is written: at the leader, or on this node alone if no leader
// can be reached. It returns an error if the leader refuses it. end records the outcome in the same place.
func (r *Replica) beginStale(ctx context.Context, act *wire.RecordAct, about *wire.StaleSnapshot) (end func(error), err error) {
	if about.LeaderId != "" {
		begun, err := r.recordAtLeader(ctx, act)
		switch status.Code(err) {
		case wire.Status_OK:
			return func(err error) {
				after := outcomeOf(act, err)
				after.BegunRevision = begun
				r.recordOutcome(ctx, after)
			}, nil
		case wire.Status_PERMISSION_DENIED, wire.Status_INVALID_ARGUMENT:
			return nil, err
		}
		r.log.Warn("the leader did not record a stale backup", "error", err)
	}
	local := func(act *wire.RecordAct) {
		r.cfg.AuditLocally(&wire.AuditRecord{
			Action: act.Action, Operator: act.Operator, Reason: act.Reason, Ticket: act.Ticket, Outcome: act.Outcome, Message: act.Message,
			Revision: about.Revision, WallUnixMs: time.Now().UnixMilli(), Caller: identity.FromContext(ctx),
		})
	}
	local(act)
	return func(err error) { local(outcomeOf(act, err)) }, nil
}
