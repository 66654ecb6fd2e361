package rpc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// want returns the request for an acquire.
func want(session, seq uint64, acquire *wire.Acquire) *wire.Request {
	return &wire.Request{SessionId: session, Seq: seq, Body: &wire.Request_Acquire{Acquire: acquire}}
}

func reading(name string) *wire.Acquire {
	return &wire.Acquire{Locks: []*wire.LockRequest{{Name: name, Mode: wire.Mode_SHARED}}}
}

func upgrade(session, seq uint64, hold *wire.Result, forever bool) *wire.Request {
	return &wire.Request{SessionId: session, Seq: seq, Body: &wire.Request_Upgrade{Upgrade: &wire.Upgrade{
		HoldId: hold.GetHoldId(), Token: hold.GetToken(), WaitForever: forever,
	}}}
}

func downgrade(session, seq uint64, hold *wire.Result) *wire.Request {
	return &wire.Request{SessionId: session, Seq: seq, Body: &wire.Request_Downgrade{Downgrade: &wire.Downgrade{
		HoldId: hold.GetHoldId(), Token: hold.GetToken(),
	}}}
}

func extend(session, seq uint64, hold *wire.Result, ms uint32) *wire.Request {
	return &wire.Request{SessionId: session, Seq: seq, Body: &wire.Request_Extend{Extend: &wire.Extend{
		HoldId: hold.GetHoldId(), Token: hold.GetToken(), MaxHoldMs: ms,
	}}}
}

// two opens a connection with two sessions.
func two(t *testing.T) (p *port, c *peer, first, second uint64) {
	t.Helper()
	p = serve(t, nil)
	c = connect(t, p)
	return p, c, c.open([]byte("a-secret-of-sixteen")), c.open(secret)
}

func TestUpgradeAndDowngrade(t *testing.T) {
	_, c, first, second := two(t)
	one := c.expect(wire.Status_GRANTED, want(first, 1, reading("l"))).GetResult()
	other := c.expect(wire.Status_GRANTED, want(second, 1, reading("l"))).GetResult()

	c.expect(wire.Status_NOT_ACQUIRED, upgrade(first, 2, one, false))
	if queued := c.expect(wire.Status_QUEUED, upgrade(first, 3, one, true)).GetResult(); queued.GetPosition() != 1 || queued.GetHoldId() != one.GetHoldId() {
		t.Errorf("queued: %v", queued)
	}
	c.expect(wire.Status_UPGRADE_CONFLICT, upgrade(second, 2, other, true))
	c.expect(wire.Status_OK, release(second, 3, other))
	push := c.push()
	got := push.GetOutcome()
	if push.GetSessionId() != first || got.GetStatus() != wire.Status_GRANTED || got.GetSeq() != 3 || got.GetHoldId() != one.GetHoldId() || got.GetToken() <= other.GetToken() {
		t.Fatalf("push: %v", push)
	}
	c.expect(wire.Status_NOT_ACQUIRED, want(second, 4, reading("l")))
	c.expect(wire.Status_OK, downgrade(first, 4, got))
	c.expect(wire.Status_GRANTED, want(second, 5, reading("l")))
}

func TestHoldsOfOthersAreNotTouched(t *testing.T) {
	p, c, first, second := two(t)
	hold := c.expect(wire.Status_GRANTED, want(first, 1, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "l"}}, MaxHoldMs: 60_000})).GetResult()
	stale := &wire.Result{HoldId: hold.GetHoldId(), Token: hold.GetToken() + 1}
	for i, req := range []*wire.Request{
		upgrade(second, 1, hold, false), downgrade(second, 2, hold), extend(second, 3, hold, 0), release(second, 4, hold),
		upgrade(first, 2, stale, false), downgrade(first, 3, stale), extend(first, 4, stale, 0),
	} {
		if got := c.call(req).GetResult().GetStatus(); got != wire.Status_NOT_HELD {
			t.Errorf("request %d: %v", i, got)
		}
	}
	stranger := connect(t, p)
	for _, req := range []*wire.Request{upgrade(first, 5, hold, false), downgrade(first, 6, hold), extend(first, 7, hold, 0)} {
		stranger.expect(wire.Status_NOT_ATTACHED, req)
	}
	c.expect(wire.Status_OK, extend(first, 5, hold, 120_000))
}

// maxNames bounds the locks named by one acquire.
const maxNames = 64

func TestAcquireOfManyLocks(t *testing.T) {
	_, c, first, second := two(t)
	many := func(n int) *wire.Acquire {
		a := &wire.Acquire{}
		for i := range n {
			a.Locks = append(a.Locks, &wire.LockRequest{Name: fmt.Sprintf("many/%d", i)})
		}
		return a
	}
	hold := c.expect(wire.Status_GRANTED, want(first, 1, many(maxNames))).GetResult()
	c.expect(wire.Status_INVALID_ARGUMENT, want(first, 2, many(maxNames+1)))
	refused := c.expect(wire.Status_NOT_ACQUIRED, want(second, 1, many(2))).GetResult()
	if len(refused.GetHolders()) != 1 || len(refused.GetHolders()[0].GetLocks()) != maxNames {
		t.Errorf("holders: %v", refused.GetHolders())
	}
	c.expect(wire.Status_OK, release(first, 3, hold))
	c.expect(wire.Status_GRANTED, want(second, 2, many(2)))
}

func TestSemaphoreAndReentrancy(t *testing.T) {
	_, c, first, second := two(t)
	pool := func(permits, limit uint64) *wire.Acquire {
		return &wire.Acquire{Locks: []*wire.LockRequest{{Name: "pool", Permits: permits, Limit: limit}}}
	}
	c.expect(wire.Status_GRANTED, want(first, 1, pool(2, 3)))
	c.expect(wire.Status_MISMATCH, want(second, 1, pool(1, 4)))
	c.expect(wire.Status_NOT_ACQUIRED, want(second, 2, pool(2, 3)))
	c.expect(wire.Status_GRANTED, want(second, 3, pool(1, 3)))

	again := &wire.Acquire{Locks: []*wire.LockRequest{{Name: "r"}}, Reentrant: true}
	hold := c.expect(wire.Status_GRANTED, want(first, 2, again)).GetResult()
	if twice := c.expect(wire.Status_GRANTED, want(first, 3, again)).GetResult(); twice.GetCount() != 2 || twice.GetToken() != hold.GetToken() {
		t.Errorf("entered twice: %v", twice)
	}
	if left := c.expect(wire.Status_OK, release(first, 4, hold)).GetResult(); left.GetCount() != 1 {
		t.Errorf("released once: %v", left)
	}
}

func TestOperators(t *testing.T) {
	p, c, first, second := two(t)
	hold := c.expect(wire.Status_GRANTED, want(first, 1, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "l"}}, LockDelayMs: 5_000})).GetResult()
	force := func(token uint64) *wire.Request {
		return &wire.Request{Body: &wire.Request_ForceRelease{ForceRelease: &wire.ForceRelease{
			HoldId: hold.GetHoldId(), Token: token, Reason: "stuck", Operator: "ann",
		}}}
	}
	skip := &wire.Request{Body: &wire.Request_SkipDelay{SkipDelay: &wire.SkipDelay{Name: "l", Reason: "checked", Operator: "ann"}}}
	resize := func(name string) *wire.Request {
		return &wire.Request{Body: &wire.Request_Resize{Resize: &wire.Resize{Name: name, Limit: 9, Reason: "more", Operator: "ann"}}}
	}
	c.expect(wire.Status_NOT_HELD, force(hold.GetToken()+1))
	c.expect(wire.Status_NOT_FOUND, skip)
	c.expect(wire.Status_NOT_FOUND, resize("l"))
	c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_Revoke{Revoke: &wire.Revoke{
		HoldId: hold.GetHoldId(), Token: hold.GetToken(), Reason: "please", GraceMs: 1_000, Operator: "ann",
	}}})
	c.expect(wire.Status_OK, force(hold.GetToken()))
	c.expect(wire.Status_NOT_HELD, force(hold.GetToken()))

	shown := c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_GetLock{GetLock: &wire.GetLockRequest{Name: "l"}}}).GetGetLock()
	if d := shown.GetDelays(); len(d) != 1 || d[0].GetRemainingMs() != 2_000 {
		t.Errorf("delays: %v", d)
	}
	c.expect(wire.Status_OK, skip)
	c.expect(wire.Status_GRANTED, want(second, 1, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "pool", Limit: 3}}}))
	c.expect(wire.Status_OK, resize("pool"))

	audit := c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_ListAudit{ListAudit: &wire.ListAuditRequest{PageSize: 3}}}).GetListAudit()
	if r := audit.GetRecords(); len(r) != 3 || r[0].GetAction() != wire.AuditRecord_RESIZE || r[2].GetAction() != wire.AuditRecord_FORCE_RELEASE || audit.GetNextPageToken() == "" {
		t.Errorf("audit: %v", audit)
	}
	p.replica.moveLeader(&wire.LeaderHint{Id: other, Term: 2})
	if resp := c.expect(wire.Status_NOT_LEADER, resize("pool")); resp.GetLeader().GetId() != other {
		t.Errorf("no hint: %v", resp)
	}
}

func TestRestoreIsAdministration(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	req := &wire.RestoreRequest{Backup: &wire.Backup{Token: 7}, Reason: "lost"}
	for i := range uint64(256) {
		req.Audit = append(req.Audit, &wire.AuditRecord{Id: i + 1, Reason: strings.Repeat("r", 256), Lock: strings.Repeat("l", 512)})
	}
	resp := c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_Restore{Restore: req}})
	if resp.GetRestore().GetTokenFloor() != 1<<40 || p.replica.restored.GetBackup().GetToken() != 7 {
		t.Errorf("restored: %v", resp)
	}
}

func TestQuestions(t *testing.T) {
	_, c, first, second := two(t)
	hold := c.expect(wire.Status_GRANTED, want(first, 1, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "a"}}, MaxHoldMs: 9_000})).GetResult()
	c.expect(wire.Status_GRANTED, acquire(second, 1, "b", false))
	verify := func(name string, token uint64) *wire.Request {
		return &wire.Request{Body: &wire.Request_VerifyToken{VerifyToken: &wire.VerifyTokenRequest{Name: name, Token: token}}}
	}
	got := c.expect(wire.Status_OK, verify("a", hold.GetToken())).GetVerifyToken()
	if !got.GetHeld() || got.GetHolder().GetHoldId() != hold.GetHoldId() || got.GetHolder().GetHeartbeatAgeMs() != 1500 || got.GetHolder().GetRemainingHoldMs() != 3_000 {
		t.Errorf("verified: %v", got)
	}
	if c.expect(wire.Status_OK, verify("b", hold.GetToken())).GetVerifyToken().GetHeld() {
		t.Error("a token of another lock is taken")
	}
	c.expect(wire.Status_INVALID_ARGUMENT, verify("a//b", 1))

	wait := acquire(first, 2, "b", true)
	c.expect(wire.Status_QUEUED, wait)
	closing := acquire(second, 2, "a", true)
	refused := c.expect(wire.Status_DEADLOCK, closing).GetResult()
	if len(refused.GetCycle()) != 2 || refused.GetMessage() == "" {
		t.Errorf("refused: %v", refused)
	}
	cycles := &wire.Request{Body: &wire.Request_ListDeadlocks{ListDeadlocks: &wire.ListDeadlocksRequest{}}}
	if d := c.expect(wire.Status_OK, cycles).GetListDeadlocks().GetDeadlocks(); len(d) != 0 {
		t.Errorf("cycles: %v", d)
	}
	allowed := acquire(second, 3, "a", true)
	allowed.GetAcquire().AllowDeadlock = true
	c.expect(wire.Status_QUEUED, allowed)
	if d := c.expect(wire.Status_OK, cycles).GetListDeadlocks().GetDeadlocks(); len(d) != 1 || len(d[0].GetCycle()) != 2 {
		t.Errorf("cycles: %v", d)
	}

	contended := &wire.Request{Body: &wire.Request_ListContended{ListContended: &wire.ListContendedRequest{Limit: 1}}}
	if got := c.expect(wire.Status_OK, contended).GetListContended(); got.GetContended() != 2 || len(got.GetLocks()) != 1 || got.GetLocks()[0].GetOldest().GetSessionId() != second {
		t.Errorf("contended: %v", got)
	}
	one := func(id uint64) *wire.Request {
		return &wire.Request{Body: &wire.Request_GetSession{GetSession: &wire.GetSessionRequest{SessionId: id}}}
	}
	if got := c.expect(wire.Status_OK, one(first)).GetGetSession(); len(got.GetHolds()) != 1 || got.GetHolds()[0].GetName() != "a" || len(got.GetWaits()) != 1 || got.GetWaits()[0].GetName() != "b" {
		t.Errorf("session: %v", got)
	}
	c.expect(wire.Status_NOT_FOUND, one(first+second))
}
