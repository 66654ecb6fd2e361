package rpc

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/internal/fairqueue"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// dispatch starts a request. It does not wait for the answer: respond is called exactly once, from the
// goroutine that has the result.
func (c *conn) dispatch(req *wire.Request) {
	switch body := req.GetBody().(type) {
	case *wire.Request_OpenSession:
		c.open(req, body.OpenSession)
	case *wire.Request_Attach:
		c.attach(req, body.Attach)
	case *wire.Request_AcquireLease:
		c.acquireLease(req, body.AcquireLease)
	case *wire.Request_ExtendLease, *wire.Request_ReleaseLease:
		c.endLease(req)
	case *wire.Request_Watch:
		c.watch(req, body.Watch)
	case *wire.Request_EndRequest:
		c.endRequest(req, body.EndRequest)
	case *wire.Request_ListSamples, *wire.Request_ListLocks, *wire.Request_GetLock, *wire.Request_ListSessions,
		*wire.Request_VerifyToken, *wire.Request_ListDeadlocks, *wire.Request_ListAudit,
		*wire.Request_WhoAmI, *wire.Request_GetPolicy, *wire.Request_TestPolicy, *wire.Request_ListTokens,
		*wire.Request_GetQuota, *wire.Request_ListContended, *wire.Request_GetSession:
		c.read(req)
	case *wire.Request_Status, *wire.Request_AddMember, *wire.Request_RemoveMember,
		*wire.Request_SetDrained, *wire.Request_TransferLeadership, *wire.Request_Restore, *wire.Request_AcknowledgeAlarms:
		c.administer(req)
	case *wire.Request_ForceRelease, *wire.Request_Revoke, *wire.Request_SkipDelay, *wire.Request_Resize,
		*wire.Request_ForceClose:
		c.operate(req)
	case *wire.Request_SetPolicy, *wire.Request_CreateToken, *wire.Request_RevokeToken:
		c.changeAccess(req)
	case nil:
		c.respond(req, failure(wire.Status_UNSUPPORTED, "this node does not know that request: upgrade it, or send one of those in frame.proto"))
	default:
		c.sessionRequest(req)
	}
}

const (
	// plainBytes is more than any read or administrative request needs, except a restore. restoreBytes has
	// room for all records of the audit log.
	plainBytes   = 64 << 10
	restoreBytes = 1 << 20
)

// excess rejects requests that are larger than their kind can need, since they wait in this node's memory for
// a worker. Commands are checked for size before they are queued.
func (c *conn) excess(req *wire.Request) *wire.Result {
	most := plainBytes
	if req.GetRestore() != nil || req.GetSetPolicy() != nil || req.GetTestPolicy() != nil {
		most = restoreBytes
	}
	if size := proto.Size(req); size > most {
		return failure(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("the request has %d bytes, no such request needs more than %d", size, most))
	}
	return nil
}

// open opens a session and binds it to this connection.
func (c *conn) open(req *wire.Request, body *wire.OpenRequest) {
	hash, ok := c.hash(req, body.GetSecret())
	if !ok {
		return
	}
	client := body.GetClient()
	if client == nil {
		client = &wire.ClientInfo{}
	}
	client.Address = c.remote
	c.claim(req, nil, &wire.Command{Caller: c.caller.Origin(), Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{
		SecretHash: hash, TtlMs: body.GetTtlMs(), Client: client,
	}}})
}

// hash returns the hash that the cluster stores for the secret of a request. If the secret is invalid, hash
// answers the request itself and returns false.
func (c *conn) hash(req *wire.Request, secret []byte) ([]byte, bool) {
	hash, err := wire.HashSecret(secret)
	if err != nil {
		c.respond(req, failure(wire.Status_INVALID_ARGUMENT, err.Error()))
		return nil, false
	}
	return hash[:], true
}

// attach moves a session to this connection.
func (c *conn) attach(req *wire.Request, body *wire.AttachRequest) {
	hash, ok := c.hash(req, body.GetSecret())
	if !ok {
		return
	}
	c.claim(req, body.GetSeen(), &wire.Command{
		SessionId:  req.GetSessionId(),
		AckedBelow: req.GetAckedBelow(),
		Acked:      req.GetAcked(),
		Caller:     c.caller.Origin(),
		Op:         &wire.Command_AttachSession{AttachSession: &wire.AttachSession{SecretHash: hash, Address: c.remote}},
	})
}

// claim proposes a command whose success binds a session to this connection. The answer says whether the history of the
// cluster lacks what the session has seen.
func (c *conn) claim(req *wire.Request, seen *wire.Position, cmd *wire.Command) {
	c.srv.cfg.Replica.ProposeFrom(c.sender(), cmd, func(res *wire.Result) {
		if session := res.GetSession().GetSessionId(); session != 0 && !c.bind(session) {
			res = failure(wire.Status_UNCERTAIN, "leadership moved while the session was being attached: attach again")
		}
		resp := c.responseFor(req, res, res.GetSession().GetSessionId())
		resp.RolledBack = seen != nil && applied(res) && !c.srv.cfg.Replica.Contains(seen)
		c.reply(resp)
	})
}

// sessionRequest handles requests that only the session's own connection may send.
func (c *conn) sessionRequest(req *wire.Request) {
	session := req.GetSessionId()
	if !c.attachedHere(session) {
		c.respond(req, c.notAttached())
		return
	}
	done := func(res *wire.Result) {
		if res.GetStatus() == wire.Status_SESSION_LOST {
			c.unbind(session)
		}
		c.respondFor(req, res, session)
	}
	if body, ok := req.GetBody().(*wire.Request_Heartbeat); ok { // with idle holds, or in an unusual encoding
		c.srv.cfg.Replica.Heartbeat(session, body.Heartbeat.GetIdle(), done)
		return
	}
	c.srv.cfg.Replica.ProposeFrom(c.sender(), commandOf(req), done)
}

// notAttached returns NOT_LEADER, which redirects the client, if another node leads, and NOT_ATTACHED
// otherwise.
func (c *conn) notAttached() *wire.Result {
	if c.srv.cfg.Replica.Leader().GetId() != c.srv.cfg.NodeID {
		return failure(wire.Status_NOT_LEADER, "")
	}
	return failure(wire.Status_NOT_ATTACHED, "the session is not attached to this connection: attach it first")
}

// command returns the log command for a request. The messages are shared, not copied. Only requests that
// clients may send have a case here.
func commandOf(req *wire.Request) *wire.Command {
	cmd := &wire.Command{
		SessionId:  req.GetSessionId(),
		Seq:        req.GetSeq(),
		AckedBelow: req.GetAckedBelow(),
		Acked:      req.GetAcked(),
	}
	switch body := req.GetBody().(type) {
	case *wire.Request_CloseSession:
		cmd.Op = &wire.Command_CloseSession{CloseSession: body.CloseSession}
	case *wire.Request_Acknowledge:
		cmd.Op = &wire.Command_Acknowledge{Acknowledge: body.Acknowledge}
	case *wire.Request_Acquire:
		cmd.Op = &wire.Command_Acquire{Acquire: body.Acquire}
	case *wire.Request_AcquireCached:
		cmd.Op = &wire.Command_AcquireCached{AcquireCached: body.AcquireCached}
	case *wire.Request_Release:
		cmd.Op = &wire.Command_Release{Release: body.Release}
	case *wire.Request_Cancel:
		cmd.Op = &wire.Command_Cancel{Cancel: body.Cancel}
	case *wire.Request_SetValue:
		cmd.Op = &wire.Command_SetValue{SetValue: body.SetValue}
	case *wire.Request_Upgrade:
		cmd.Op = &wire.Command_Upgrade{Upgrade: body.Upgrade}
	case *wire.Request_Downgrade:
		cmd.Op = &wire.Command_Downgrade{Downgrade: body.Downgrade}
	case *wire.Request_Extend:
		cmd.Op = &wire.Command_Extend{Extend: body.Extend}
	}
	return cmd
}

// read verifies leadership, unless a stale answer is allowed, and then queues the read for a worker.
func (c *conn) read(req *wire.Request) {
	if refused := c.excess(req); refused != nil {
		c.respond(req, refused)
		return
	}
	if stale(req) {
		c.gather(req)
		return
	}
	c.srv.cfg.Replica.Prove(func(res *wire.Result) {
		if res.GetStatus() != wire.Status_OK {
			c.respond(req, res)
			return
		}
		c.gather(req)
	})
}

func stale(req *wire.Request) bool {
	return req.GetListSamples() != nil || // each node answers for itself
		req.GetListLocks().GetStale() || req.GetGetLock().GetStale() || req.GetListSessions().GetStale() ||
		req.GetVerifyToken().GetStale() || req.GetListDeadlocks().GetStale() || req.GetListAudit().GetStale() ||
		req.GetWhoAmI().GetStale() || req.GetGetPolicy().GetStale() || req.GetTestPolicy().GetStale() || req.GetListTokens().GetStale() ||
		req.GetGetQuota().GetStale() || req.GetListContended().GetStale() || req.GetGetSession().GetStale()
}

func (c *conn) gather(req *wire.Request) {
	c.submit(c.srv.queues.Reads, req, func(context.Context) { c.replyPage(req) })
}

// page reads from the locally applied state.
func (c *conn) page(req *wire.Request) *wire.Response {
	resp, reader := &wire.Response{Id: req.GetId()}, c.srv.reader.As(c.caller)
	switch body := req.GetBody().(type) {
	case *wire.Request_ListLocks:
		page, refused := reader.ListLocks(body.ListLocks)
		resp.Result, resp.Body = refused, &wire.Response_ListLocks{ListLocks: page}
	case *wire.Request_GetLock:
		lock, refused := reader.GetLock(body.GetLock)
		resp.Result, resp.Body = refused, &wire.Response_GetLock{GetLock: lock}
	case *wire.Request_ListSessions:
		page, refused := reader.ListSessions(body.ListSessions)
		resp.Result, resp.Body = refused, &wire.Response_ListSessions{ListSessions: page}
	case *wire.Request_VerifyToken:
		verdict, refused := reader.VerifyToken(body.VerifyToken)
		resp.Result, resp.Body = refused, &wire.Response_VerifyToken{VerifyToken: verdict}
	case *wire.Request_ListDeadlocks:
		cycles, refused := reader.ListDeadlocks(body.ListDeadlocks)
		resp.Result, resp.Body = refused, &wire.Response_ListDeadlocks{ListDeadlocks: cycles}
	case *wire.Request_ListContended:
		locks, refused := reader.ListContended(body.ListContended)
		resp.Result, resp.Body = refused, &wire.Response_ListContended{ListContended: locks}
	case *wire.Request_GetSession:
		session, refused := reader.GetSession(body.GetSession)
		resp.Result, resp.Body = refused, &wire.Response_GetSession{GetSession: session}
	case *wire.Request_ListAudit:
		page, refused := reader.ListAudit(body.ListAudit)
		resp.Result, resp.Body = refused, &wire.Response_ListAudit{ListAudit: page}
	case *wire.Request_WhoAmI:
		resp.Body = &wire.Response_WhoAmI{WhoAmI: reader.WhoAmI()}
	case *wire.Request_GetPolicy:
		resp.Body = &wire.Response_GetPolicy{GetPolicy: reader.GetPolicy()}
	case *wire.Request_TestPolicy:
		verdict, refused := reader.TestPolicy(body.TestPolicy)
		resp.Result, resp.Body = refused, &wire.Response_TestPolicy{TestPolicy: verdict}
	case *wire.Request_ListTokens:
		resp.Body = &wire.Response_ListTokens{ListTokens: reader.ListTokens()}
	case *wire.Request_GetQuota:
		quotas, refused := reader.GetQuota(body.GetQuota)
		resp.Result, resp.Body = refused, &wire.Response_GetQuota{GetQuota: quotas}
	case *wire.Request_ListSamples:
		samples, refused := reader.ListSamples()
		resp.Result, resp.Body = refused, &wire.Response_ListSamples{ListSamples: samples}
	}
	return completed(resp)
}

// completed completes a response: OK with a body, or a refusal without one.
func completed(resp *wire.Response) *wire.Response {
	if resp.GetResult() == nil {
		resp.Result = &wire.Result{Status: wire.Status_OK}
	} else {
		resp.Body = nil
	}
	return resp
}

// refusal converts an operational error to a result.
func refusal(err error) *wire.Result { return failure(status.Code(err), err.Error()) }

// submit queues a request for a worker, which serves the connections in turn.
func (c *conn) submit(queue *fairqueue.Queue, req *wire.Request, run func(context.Context)) {
	refuse := func() {
		c.respond(req, failure(wire.Status_RESOURCE_EXHAUSTED, "too many reads or operators' requests of this connection are waiting: wait for their answers"))
	}
	if queue.Submit(c.sender(), run, refuse) != nil {
		refuse()
	}
}

func failure(status wire.Status_Code, message string) *wire.Result {
	return &wire.Result{Status: status, Message: message}
}
