package rpc

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// operate proposes an operator's command on locks. The command belongs to no session. After an uncertain
// answer, the operator compares the state before repeating it.
func (c *conn) operate(req *wire.Request) {
	cmd := &wire.Command{Caller: c.caller.Origin()}
	switch body := req.GetBody().(type) {
	case *wire.Request_ForceRelease:
		cmd.Op = &wire.Command_ForceRelease{ForceRelease: body.ForceRelease}
	case *wire.Request_Revoke:
		cmd.Op = &wire.Command_Revoke{Revoke: body.Revoke}
	case *wire.Request_SkipDelay:
		cmd.Op = &wire.Command_SkipDelay{SkipDelay: body.SkipDelay}
	case *wire.Request_Resize:
		cmd.Op = &wire.Command_Resize{Resize: body.Resize}
	case *wire.Request_ForceClose:
		cmd.Op = &wire.Command_ForceClose{ForceClose: body.ForceClose}
	}
	c.command(req, cmd, func(res *wire.Result) { c.respond(req, res) })
}

// command queues an operator's command for a worker.
func (c *conn) command(req *wire.Request, cmd *wire.Command, done func(*wire.Result)) {
	c.submit(c.srv.queues.Commands, req, func(context.Context) {
		answered := make(chan struct{})
		c.srv.cfg.Replica.ProposeFrom(c.sender(), cmd, func(res *wire.Result) {
			done(res)
			close(answered)
		})
		<-answered
	})
}

// changeAccess changes the policy or the tokens.
func (c *conn) changeAccess(req *wire.Request) {
	if refused := c.excess(req); refused != nil {
		c.respond(req, refused)
		return
	}
	var refused *wire.Result
	var cmd *wire.Command
	switch body := req.GetBody().(type) {
	case *wire.Request_SetPolicy:
		cmd, refused = c.caller.Command(body.SetPolicy)
	case *wire.Request_CreateToken:
		cmd, refused = c.caller.Command(body.CreateToken)
	case *wire.Request_RevokeToken:
		cmd, refused = c.caller.Command(body.RevokeToken)
	}
	if refused == nil {
		refused = c.srv.cfg.Replica.CheckChange(cmd)
	}
	if refused != nil {
		c.respond(req, refused)
		return
	}
	c.command(req, cmd, func(res *wire.Result) {
		resp := &wire.Response{Id: req.GetId(), Result: c.shown(req, res)}
		if body := req.GetCreateToken(); body != nil && res.GetStatus() == wire.Status_OK {
			resp.Body = &wire.Response_CreateToken{CreateToken: c.caller.Created(body)}
		}
		c.reply(resp)
	})
}

// administer queues an administrative request for a worker, which handles it within AdminTimeout.
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
		ctx, cancel := context.WithTimeout(access.NewContext(ctx, c.caller), c.srv.cfg.Limits.AdminTimeout)
		defer cancel()
		resp := c.carryOut(ctx, req)
		c.caller.DeniedRequest(req, resp.GetResult())
		c.reply(resp)
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
	case *wire.Request_SetDrained:
		err = node.SetDrained(ctx, body.SetDrained)
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
	return completed(resp)
}

// nextLeaderWait bounds the time to learn of the new leader after a transfer.
const nextLeaderWait = 2 * time.Second

// NextLeader waits until the node knows a leader other than self, at most nextLeaderWait, and returns the
// leader known then.
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
		default: // a wake-up is already pending
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
