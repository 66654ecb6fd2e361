package rpc

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestHelloNamesTheAnsweringNode(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	if c.reply.NodeId != self || c.reply.ClusterId != "c" || c.reply.Leader.GetId() != self ||
		c.reply.MaxFrameBytes != 1<<20 || c.reply.MaxInFlight != 1024 || c.reply.Version != 1 || len(c.reply.Members) != 2 {
		t.Errorf("hello reply %v", c.reply)
	}
}

func TestAcquireQueueAndPush(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	first, second, third := c.open([]byte("a-secret-of-sixteen")), c.open(secret), c.open([]byte("the-third-secret"))

	held := c.expect(wire.Status_GRANTED, acquire(first, 1, "orders/1", true))
	if held.RemainingTtlMs != 9000 || held.Result.GetToken() == 0 {
		t.Errorf("granted: %v", held)
	}
	queued := c.expect(wire.Status_QUEUED, acquire(second, 1, "orders/1", true))
	if queued.Result.GetPosition() != 1 {
		t.Errorf("queued: %v", queued)
	}
	c.expect(wire.Status_NOT_ACQUIRED, acquire(third, 1, "orders/1", false))

	c.expect(wire.Status_OK, release(first, 2, held.Result))
	push := c.push()
	if got := push.GetOutcome(); push.SessionId != second || got.GetStatus() != wire.Status_GRANTED || got.GetSeq() != 1 ||
		got.GetHoldId() != queued.Result.GetHoldId() || got.GetToken() <= held.Result.GetToken() {
		t.Errorf("push: %v", push)
	}
	c.expect(wire.Status_OK, &wire.Request{SessionId: second, Seq: 2, Acked: []uint64{1}, Body: &wire.Request_SetValue{SetValue: &wire.SetValue{
		HoldId: queued.Result.GetHoldId(), Token: push.GetOutcome().GetToken(), Value: []byte("v"),
	}}})
}

func TestCancelCloseAndHeartbeat(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	first, second := c.open([]byte("a-secret-of-sixteen")), c.open(secret)
	if resp := c.expect(wire.Status_OK, heartbeat(first)); resp.RemainingTtlMs != 9000 {
		t.Errorf("heartbeat: %v", resp)
	}
	c.expect(wire.Status_GRANTED, acquire(first, 1, "l", true))
	c.expect(wire.Status_QUEUED, acquire(second, 1, "l", true))
	c.expect(wire.Status_CANCELLED, &wire.Request{SessionId: second, Seq: 2, Body: &wire.Request_Cancel{Cancel: &wire.Cancel{AcquireSeq: 1}}})
	c.expect(wire.Status_OK, &wire.Request{SessionId: second, Acked: []uint64{1}, Body: &wire.Request_Acknowledge{Acknowledge: &wire.Acknowledge{}}})
	c.expect(wire.Status_OK, &wire.Request{SessionId: first, Body: &wire.Request_CloseSession{CloseSession: &wire.CloseSession{}}})
	if push := c.push(); push.SessionId != first || push.GetLost().GetReason() != wire.SessionLost_CLOSED {
		t.Errorf("push: %v", push)
	}
	c.expect(wire.Status_NOT_ATTACHED, heartbeat(first))
	c.expect(wire.Status_OK, heartbeat(second))
}

// TestCachedHolds verifies that a client acquires a cached hold, reports with heartbeats that it is idle or in use, is
// notified of its recall, and releases it.
func TestCachedHolds(t *testing.T) {
	p := serve(t, nil)
	p.replica.ProposeFrom(identity.Sender{}, &wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: fsm.Level}}}, func(*wire.Result) {})
	c := connect(t, p)
	holder, waiter := c.open([]byte("a-secret-of-sixteen")), c.open(secret)
	cached := func(tokens uint32) *wire.Request {
		return &wire.Request{SessionId: holder, Seq: 1, Body: &wire.Request_AcquireCached{AcquireCached: &wire.AcquireCached{
			Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "l"}}}, Tokens: tokens, IdleMs: 60_000,
		}}}
	}
	c.expect(wire.Status_INVALID_ARGUMENT, cached(0))
	hold := c.expect(wire.Status_GRANTED, cached(64)).GetResult()
	idle := heartbeat(holder)
	idle.GetHeartbeat().Idle = []*wire.IdleHold{{HoldId: hold.GetHoldId(), IdleMs: 1_000}}
	c.expect(wire.Status_OK, idle)
	if got := p.replica.reportedIdle(); len(got) != 1 || !proto.Equal(got[0], idle.GetHeartbeat().Idle[0]) {
		t.Errorf("reported as idle: %v", got)
	}
	c.expect(wire.Status_OK, heartbeat(holder))
	if got := p.replica.reportedIdle(); len(got) != 0 {
		t.Errorf("reported as idle although in use: %v", got)
	}
	c.expect(wire.Status_QUEUED, acquire(waiter, 1, "l", true))
	if push := c.push(); push.GetSessionId() != holder || push.GetHoldNotice().GetHoldId() != hold.GetHoldId() || !push.GetHoldNotice().GetWanted() {
		t.Errorf("the recall is %v", push)
	}
	c.expect(wire.Status_OK, release(holder, 2, hold))
	if push := c.push(); push.GetSessionId() != waiter || push.GetOutcome().GetToken() != hold.GetToken()+64 {
		t.Errorf("the waiter's grant is %v, the range began with %d", push, hold.GetToken())
	}
}

func TestServerRecordsTheAddressItSaw(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_OpenSession{OpenSession: &wire.OpenRequest{
		Secret: secret, Client: &wire.ClientInfo{Name: "worker", Address: "forged:1"},
	}}})
	got := c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_ListSessions{ListSessions: &wire.ListSessionsRequest{}}})
	client := got.GetListSessions().GetSessions()[0].GetClient()
	if client.GetAddress() != c.conn.LocalAddr().String() || client.GetName() != "worker" {
		t.Errorf("client: %v, dialled from %v", client, c.conn.LocalAddr())
	}
}

func TestOnlyTheSessionsConnectionMayAsk(t *testing.T) {
	p := serve(t, nil)
	owner, stranger := connect(t, p), connect(t, p)
	session := owner.open(secret)
	held := owner.expect(wire.Status_GRANTED, acquire(session, 1, "l", true))
	for _, req := range []*wire.Request{
		acquire(session, 2, "m", true),
		release(session, 2, held.Result),
		heartbeat(session),
		{SessionId: session, Seq: 2, Body: &wire.Request_Cancel{Cancel: &wire.Cancel{AcquireSeq: 1}}},
		{SessionId: session, Seq: 2, Body: &wire.Request_SetValue{SetValue: &wire.SetValue{}}},
		{SessionId: session, Body: &wire.Request_CloseSession{CloseSession: &wire.CloseSession{}}},
		{SessionId: session, AckedBelow: 9, Body: &wire.Request_Acknowledge{Acknowledge: &wire.Acknowledge{}}},
	} {
		stranger.expect(wire.Status_NOT_ATTACHED, req)
	}
	stranger.expect(wire.Status_PERMISSION_DENIED, attach(session, []byte("another-secret-16")))
	stranger.expect(wire.Status_NOT_ATTACHED, heartbeat(session))
	owner.expect(wire.Status_OK, release(session, 2, held.Result))
}

func TestNewerAttachTakesOneSessionOnly(t *testing.T) {
	p := serve(t, nil)
	old, fresh := connect(t, p), connect(t, p)
	kept, taken := old.open([]byte("a-secret-of-sixteen")), old.open(secret)
	old.expect(wire.Status_GRANTED, acquire(kept, 1, "l", true))
	old.expect(wire.Status_QUEUED, acquire(taken, 1, "l", true))

	resumed := fresh.expect(wire.Status_OK, attach(taken, secret))
	state := resumed.Result.GetSession()
	if len(state.GetOutcomes()) != 1 || state.GetOutcomes()[0].GetStatus() != wire.Status_QUEUED || resumed.RemainingTtlMs == 0 {
		t.Errorf("resumed: %v", resumed)
	}
	if push := old.push(); push.SessionId != taken || push.GetLost().GetReason() != wire.SessionLost_SUPERSEDED {
		t.Errorf("push: %v", push)
	}
	old.expect(wire.Status_NOT_ATTACHED, heartbeat(taken))
	old.expect(wire.Status_OK, heartbeat(kept))
	old.expect(wire.Status_OK, &wire.Request{SessionId: kept, Body: &wire.Request_CloseSession{CloseSession: &wire.CloseSession{}}})
	if push := fresh.push(); push.SessionId != taken || push.GetOutcome().GetStatus() != wire.Status_GRANTED {
		t.Errorf("push: %v", push)
	}
}

// TestAttachOfALostHistory checks that answers name the latest leadership, and that an attach is compared with it.
func TestAttachOfALostHistory(t *testing.T) {
	p := serve(t, nil)
	p.replica.latest.Store(&wire.TermStart{Term: 3, Nonce: 8, Revision: 2})
	c := connect(t, p)
	session := c.open(secret)
	granted := c.expect(wire.Status_GRANTED, acquire(session, 1, "l", true))
	waits := acquire(session, 2, "l", true)
	waits.GetAcquire().Owner = 5
	queued := c.expect(wire.Status_QUEUED, waits)
	for _, resp := range []*wire.Response{granted, queued} {
		if resp.GetTerm() != 3 || resp.GetNonce() != 8 {
			t.Errorf("answered %v", resp)
		}
	}
	read := c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_ListSessions{ListSessions: &wire.ListSessionsRequest{Stale: true}}})
	if read.GetTerm() != 0 {
		t.Errorf("a read is vouched for: %v", read)
	}
	for seen, want := range map[*wire.Position]bool{
		nil:                                  false,
		{Term: 3, Nonce: 8, Revision: 4}:     false,
		{Term: 3, Nonce: 9, Revision: 4}:     true,
		{Term: 2, Nonce: 8, Revision: 1_000}: true,
	} {
		req := attach(session, secret)
		req.GetAttach().Seen = seen
		if resp := c.expect(wire.Status_OK, req); resp.GetRolledBack() != want {
			t.Errorf("%v: rolled back %v", seen, resp.GetRolledBack())
		}
		req = attach(session, []byte("another-secret-16"))
		req.GetAttach().Seen = seen
		if resp := c.expect(wire.Status_PERMISSION_DENIED, req); resp.GetRolledBack() != want {
			t.Errorf("%v: rolled back %v", seen, resp.GetRolledBack())
		}
		req = attach(session+1000, secret)
		req.GetAttach().Seen = seen
		if resp := c.expect(wire.Status_SESSION_LOST, req); resp.GetRolledBack() != want {
			t.Errorf("%v: rolled back %v", seen, resp.GetRolledBack())
		}
	}
}

func TestAttachAgainOnTheSameConnection(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	session := c.open(secret)
	c.expect(wire.Status_OK, attach(session, secret))
	c.expect(wire.Status_OK, heartbeat(session))
	if len(c.pushes) != 0 {
		t.Errorf("pushes: %v", c.pushes)
	}
}

func TestNotLeaderCarriesTheHint(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	session := c.open(secret)
	hint := &wire.LeaderHint{Id: other, ClientAddr: "there:7400", Term: 2}
	p.replica.moveLeader(hint)

	if push := c.push(); push.SessionId != 0 || push.GetLeader().GetId() != other {
		t.Errorf("push: %v", push)
	}
	for _, req := range []*wire.Request{
		heartbeat(session), acquire(session, 1, "l", true), attach(session, secret),
		{Body: &wire.Request_OpenSession{OpenSession: &wire.OpenRequest{Secret: secret}}},
		{Body: &wire.Request_GetLock{GetLock: &wire.GetLockRequest{Name: "l"}}},
		{Body: &wire.Request_RemoveMember{RemoveMember: &wire.RemoveMemberRequest{Reason: "test"}}},
	} {
		if resp := c.expect(wire.Status_NOT_LEADER, req); resp.GetLeader().GetClientAddr() != "there:7400" {
			t.Errorf("%v: no hint in %v", req, resp)
		}
	}
	c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{Stale: true}}})
	measured := c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_ListSamples{ListSamples: &wire.ListSamplesRequest{}}}).GetListSamples()
	if measured.GetNodeId() != self || measured.GetIntervalMs() != 5_000 || len(measured.GetSamples()) != 1 || measured.GetSamples()[0].GetExpirations() != 2 {
		t.Errorf("samples of a follower: %v", measured)
	}

	p.replica.moveLeader(&wire.LeaderHint{Id: self, ClientAddr: "here:7400", Term: 3})
	if push := c.push(); push.GetLeader().GetTerm() != 3 {
		t.Errorf("push: %v", push)
	}
	c.expect(wire.Status_NOT_ATTACHED, heartbeat(session)) // in a new term, pushes may have been missed
	c.expect(wire.Status_OK, attach(session, secret))
	c.expect(wire.Status_OK, heartbeat(session))
}

func TestLostSessionIsLetGo(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	session := c.open(secret)
	view, _ := p.replica.Fork().Session(session)
	p.replica.ProposeFrom(identity.Sender{}, &wire.Command{Op: &wire.Command_ExpireSession{ExpireSession: &wire.ExpireSession{
		SessionId: session, Term: 1, Generation: view.Generation,
	}}}, func(*wire.Result) {})
	if push := c.push(); push.GetLost().GetReason() != wire.SessionLost_EXPIRED {
		t.Errorf("push: %v", push)
	}
	c.expect(wire.Status_NOT_ATTACHED, heartbeat(session))
	c.expect(wire.Status_SESSION_LOST, attach(session, secret))
}

func TestConnectionThatGoesLetsItsSessionsGo(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	session := c.open(secret)
	_ = c.conn.Close()
	eventually(t, "the binding to end", func() bool { return p.replica.bound() == 0 })
	connect(t, p).expect(wire.Status_OK, attach(session, secret))
}

func TestUnknownRequest(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	c.expect(wire.Status_UNSUPPORTED, &wire.Request{})
	c.expect(wire.Status_NOT_ATTACHED, heartbeat(0))
}
