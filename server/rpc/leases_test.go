package rpc

import (
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

var (
	oneKey   = []byte("the-key-of-lease-one")
	otherKey = []byte("the-key-of-lease-two")
)

func leaseOf(key []byte, name string, forever bool) *wire.Request {
	return &wire.Request{Body: &wire.Request_AcquireLease{AcquireLease: &wire.AcquireLeaseRequest{
		Secret: key, TtlMs: 20_000, Client: &wire.ClientInfo{Name: "curl", Address: "forged:1"},
		Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}, WaitForever: forever},
	}}}
}

func extendLease(key []byte, hold uint64, ttl uint32) *wire.Request {
	return &wire.Request{Body: &wire.Request_ExtendLease{ExtendLease: &wire.ExtendLeaseRequest{Secret: key, HoldId: hold, TtlMs: ttl}}}
}

func releaseLease(key []byte, hold uint64) *wire.Request {
	return &wire.Request{Body: &wire.Request_ReleaseLease{ReleaseLease: &wire.ReleaseLeaseRequest{Secret: key, HoldId: hold}}}
}

func TestLifeOfALease(t *testing.T) {
	p := serve(t, nil)
	c, elsewhere := connect(t, p), connect(t, p)
	got := c.expect(wire.Status_GRANTED, leaseOf(oneKey, "l", false))
	hold := got.GetResult()
	if hold.GetSessionId() == 0 || hold.GetToken() == 0 || got.GetRemainingTtlMs() != 9000 {
		t.Errorf("granted: %v", got)
	}
	again := elsewhere.expect(wire.Status_GRANTED, leaseOf(oneKey, "l", false)).GetResult()
	if again.GetHoldId() != hold.GetHoldId() || again.GetToken() != hold.GetToken() {
		t.Errorf("asked again: %v", again)
	}
	c.expect(wire.Status_NOT_ACQUIRED, leaseOf(otherKey, "l", false))
	c.expect(wire.Status_NOT_HELD, extendLease(otherKey, hold.GetHoldId(), 0))
	c.expect(wire.Status_NOT_HELD, releaseLease(otherKey, hold.GetHoldId()))
	c.expect(wire.Status_OK, extendLease(oneKey, hold.GetHoldId(), 30_000))
	c.expect(wire.Status_INVALID_ARGUMENT, extendLease(oneKey, hold.GetHoldId(), 1))
	c.expect(wire.Status_NOT_HELD, extendLease(oneKey, hold.GetHoldId()+1, 0))

	sessions := c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_ListSessions{ListSessions: &wire.ListSessionsRequest{}}}).GetListSessions().GetSessions()
	if len(sessions) != 1 || !sessions[0].GetLeased() || sessions[0].GetTtlMs() != 30_000 || sessions[0].GetClient().GetAddress() != c.conn.LocalAddr().String() {
		t.Errorf("sessions: %v", sessions)
	}
	c.expect(wire.Status_INVALID_ARGUMENT, attach(hold.GetSessionId(), oneKey))
	c.expect(wire.Status_NOT_ATTACHED, heartbeat(hold.GetSessionId()))
	elsewhere.expect(wire.Status_OK, releaseLease(oneKey, hold.GetHoldId())) // a lease belongs to no connection
	c.expect(wire.Status_NOT_HELD, releaseLease(oneKey, hold.GetHoldId()))
}

func TestLeaseWaitsForItsFinalOutcome(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	session := c.open(secret)
	held := c.expect(wire.Status_GRANTED, acquire(session, 1, "l", false)).GetResult()
	first, again := c.send(leaseOf(oneKey, "l", true)), c.send(leaseOf(oneKey, "l", true))
	cancelled := c.send(leaseOf(otherKey, "l", true))
	eventually(t, "all of them wait", func() bool { return p.replica.awaited() == 3 })
	c.expect(wire.Status_OK, heartbeat(session)) // not blocked by the waits
	c.expect(wire.Status_OK, releaseLease(otherKey, 0))
	if got := c.await(cancelled).GetResult(); got.GetStatus() != wire.Status_CANCELLED {
		t.Errorf("cancelled: %v", got)
	}
	c.expect(wire.Status_OK, release(session, 2, held))
	one, two := c.await(first).GetResult(), c.await(again).GetResult()
	if one.GetStatus() != wire.Status_GRANTED || one.GetToken() != two.GetToken() || one.GetSessionId() == 0 || one.GetSessionId() != two.GetSessionId() {
		t.Errorf("granted: %v and %v", one, two)
	}
}

func TestLeaseWhoseClientOrLeaderDisconnects(t *testing.T) {
	p := serve(t, nil)
	c, gone := connect(t, p), connect(t, p)
	c.expect(wire.Status_GRANTED, acquire(c.open(secret), 1, "l", false))
	gone.send(leaseOf(otherKey, "l", true))
	eventually(t, "it waits", func() bool { return p.replica.awaited() == 1 })
	_ = gone.conn.Close()
	eventually(t, "nobody waits in its place", func() bool { return p.replica.awaited() == 0 })

	// A caller can leave without its connection.
	left := c.send(leaseOf(otherKey, "l", true))
	eventually(t, "it waits", func() bool { return p.replica.awaited() == 1 })
	c.expect(wire.Status_OK, unwatch(left))
	if got := c.await(left).GetResult(); got.GetStatus() != wire.Status_UNCERTAIN || p.replica.awaited() != 0 {
		t.Errorf("got %v, %d wait in its place", got, p.replica.awaited())
	}
	c.expect(wire.Status_NOT_FOUND, unwatch(left))

	id := c.send(leaseOf(oneKey, "l", true))
	eventually(t, "it waits", func() bool { return p.replica.awaited() == 1 })
	p.replica.moveLeader(&wire.LeaderHint{Id: other, Term: 2})
	if got := c.await(id).GetResult(); got.GetStatus() != wire.Status_UNCERTAIN {
		t.Errorf("got %v", got)
	}
	c.expect(wire.Status_NOT_LEADER, leaseOf(oneKey, "l", true))
}

func TestLimitsOfLeases(t *testing.T) {
	p := serve(t, func(c *Config) { c.Limits.MaxLeaseWaits = 2 })
	c := connect(t, p)
	c.expect(wire.Status_INVALID_ARGUMENT, leaseOf([]byte("short"), "l", false))
	c.expect(wire.Status_INVALID_ARGUMENT, extendLease([]byte("short"), 1, 0))
	c.expect(wire.Status_INVALID_ARGUMENT, releaseLease([]byte("short"), 1))
	c.expect(wire.Status_INVALID_ARGUMENT, &wire.Request{Body: &wire.Request_AcquireLease{AcquireLease: &wire.AcquireLeaseRequest{Secret: oneKey}}})
	many := leaseOf(oneKey, "l", false)
	for i := range maxNames {
		many.GetAcquireLease().Acquire.Locks = append(many.GetAcquireLease().Acquire.Locks, &wire.LockRequest{Name: fmt.Sprintf("l/%d", i)})
	}
	c.expect(wire.Status_INVALID_ARGUMENT, many)

	c.expect(wire.Status_GRANTED, acquire(c.open(secret), 1, "l", false))
	c.send(leaseOf(oneKey, "l", true))
	c.send(leaseOf(otherKey, "l", true))
	eventually(t, "both wait", func() bool { return p.replica.awaited() == 2 })
	refused := c.expect(wire.Status_RESOURCE_EXHAUSTED, leaseOf([]byte("the-key-of-the-third"), "m", false))
	if refused.GetResult().GetMessage() == "" {
		t.Error("it does not name the limit")
	}
}
