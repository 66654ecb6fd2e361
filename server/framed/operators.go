package framed

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// operate proposes what an operator wants done to locks. It belongs to no session, and
// who sends it again after an uncertain answer compares what he finds.
func (c *conn) operate(req *wire.Request) {
	cmd := &wire.Command{}
	switch body := req.GetBody().(type) {
	case *wire.Request_ForceRelease:
		cmd.Op = &wire.Command_ForceRelease{ForceRelease: body.ForceRelease}
	case *wire.Request_Revoke:
		cmd.Op = &wire.Command_Revoke{Revoke: body.Revoke}
	case *wire.Request_SkipDelay:
		cmd.Op = &wire.Command_SkipDelay{SkipDelay: body.SkipDelay}
	case *wire.Request_Resize:
		cmd.Op = &wire.Command_Resize{Resize: body.Resize}
	}
	c.submit(c.srv.queues.Commands, req, func(context.Context) {
		answered := make(chan struct{})
		c.srv.cfg.Replica.ProposeFrom(c, cmd, func(res *wire.Result) {
			c.respond(req, res)
			close(answered)
		})
		<-answered
	})
}

// administer lets one of few workers carry out an operator's request, in bounded time.
func (c *conn) administer(req *wire.Request) {
	if refused := c.excess(req); refused != nil {
		c.respond(req, refused)
		return
	}
	queue := c.srv.queues.Acts
	if req.GetStatus() != nil {
		queue = c.srv.queues.Status
	}
	c.submit(queue, req, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, c.srv.cfg.Limits.AdminTimeout)
		defer cancel()
		c.reply(c.carryOut(ctx, req))
	})
}

func (c *conn) carryOut(ctx context.Context, req *wire.Request) *wire.Response {
	resp, node := &wire.Response{Id: req.GetId()}, c.srv.cfg.Replica
	var err error
	switch body := req.GetBody().(type) {
	case *wire.Request_Status:
		var status *wire.StatusResponse
		status, err = node.Status(ctx, body.Status)
		resp.Body = &wire.Response_Status{Status: status}
	case *wire.Request_AddMember:
		err = node.AddMember(ctx, body.AddMember)
	case *wire.Request_RemoveMember:
		err = node.RemoveMember(ctx, body.RemoveMember)
	case *wire.Request_Restore:
		var restored *wire.RestoreResponse
		restored, err = node.Restore(ctx, body.Restore)
		resp.Body = &wire.Response_Restore{Restore: restored}
	case *wire.Request_AcknowledgeAlarms:
		var acknowledged *wire.AcknowledgeAlarmsResponse
		acknowledged, err = node.AcknowledgeAlarms(ctx, body.AcknowledgeAlarms)
		resp.Body = &wire.Response_AcknowledgeAlarms{AcknowledgeAlarms: acknowledged}
	case *wire.Request_TransferLeadership:
		err = node.TransferLeadership(ctx, body.TransferLeadership)
		resp.Leader = node.Leader()
		if err == nil && body.TransferLeadership.GetId() != c.srv.cfg.NodeID {
			resp.Leader = NextLeader(ctx, node, c.srv.cfg.NodeID)
		}
	}
	if err != nil {
		resp.Result = refusal(err)
	}
	return settle(resp)
}

// nextLeaderWait is how long it may take to learn who leads after a transfer.
const nextLeaderWait = 2 * time.Second

// NextLeader waits until the node knows another leader than itself, for a moment at most,
// and returns what it knows then.
func NextLeader(ctx context.Context, node interface {
	Leader() *wire.LeaderHint
	OnLeader(func(*wire.LeaderHint)) (cancel func())
}, self string) *wire.LeaderHint {
	ctx, cancel := context.WithTimeout(ctx, nextLeaderWait)
	defer cancel()
	moved := make(chan struct{}, 1)
	stop := node.OnLeader(func(*wire.LeaderHint) {
		select {
		case moved <- struct{}{}:
		default: // it will look anyway
		}
	})
	defer stop()
	for {
		if hint := node.Leader(); hint.GetId() != "" && hint.GetId() != self {
			return hint
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return node.Leader()
		}
	}
}
