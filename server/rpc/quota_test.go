package rpc

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// serveBounded serves a cluster in which every identity has this quota. Connections of the test are anonymous.
func serveBounded(t *testing.T, q *wire.Quota, options ...func(*Config)) *port {
	t.Helper()
	p := serve(t, func(c *Config) {
		c.Quotas = quota.New(c.Replica, 10)
		for _, option := range options {
			option(c)
		}
	})
	bound(p, q)
	return p
}

// bound gives every identity this quota.
func bound(p *port, q *wire.Quota) {
	q.Identity = "*"
	p.replica.apply(&wire.Command{Caller: &wire.Caller{Identity: "root"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Reason: "r", Policy: &wire.Policy{
		Bindings: []*wire.Binding{{Identity: "root", Roles: []string{"admin"}}, {Identity: "*", Roles: []string{"user"}}}, Quotas: []*wire.Quota{q},
	}}}})
}

func TestQuotaOfConnections(t *testing.T) {
	p := serveBounded(t, &wire.Quota{Connections: 1})
	first := connect(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	_, _, err := transport.ClientHandshake(ctx, dial(t, p), &wire.Hello{Agent: "test"})
	bye, ok := errors.AsType[*transport.GoodbyeError](err)
	if !ok || bye.Code != wire.Goodbye_TOO_MANY_CONNECTIONS || bye.Message != `quota connections of "anonymous": 1 of 1 used, this would take 1 more` {
		t.Errorf("the second connection: %v", err)
	}
	_ = first.conn.Close()
	eventually(t, "the place of the closed connection", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		_, _, err := transport.ClientHandshake(ctx, dial(t, p), &wire.Hello{Agent: "test"})
		return err == nil
	})
}

// TestDeniedRequestsCount verifies that requests that the policy denies count towards the rate, and are refused for it
// first.
func TestDeniedRequestsCount(t *testing.T) {
	const rate, sent = 5, 500
	c := connect(t, serveBounded(t, &wire.Quota{RequestsPerSecond: rate}))
	begin, statuses := time.Now(), map[wire.Status_Code]int{}
	for range sent {
		statuses[c.call(&wire.Request{Body: &wire.Request_ListAudit{ListAudit: &wire.ListAuditRequest{}}}).GetResult().GetStatus()]++
	}
	most := rate * (2 + int(time.Since(begin).Seconds()))
	if denied := statuses[wire.Status_PERMISSION_DENIED]; denied < rate || denied > most || statuses[wire.Status_RESOURCE_EXHAUSTED] != sent-denied {
		t.Errorf("%v, at most %d may be denied", statuses, most)
	}
}

// TestShares verifies that an identity without a quota of connections, and one that waits for leases or has tunnels,
// leaves places to others.
func TestShares(t *testing.T) {
	without := func() *wire.Quota { return &wire.Quota{Sessions: 99} }
	t.Run("connections", func(t *testing.T) {
		p := serveBounded(t, without(), func(c *Config) { c.Limits.MaxConnections = 4 })
		connect(t, p)
		connect(t, p)
		_, _, err := transport.ClientHandshake(t.Context(), dial(t, p), &wire.Hello{Agent: "test"})
		if bye, ok := errors.AsType[*transport.GoodbyeError](err); !ok || !strings.HasPrefix(bye.Message, `max_connections: 2 of 4 are taken, and 2 of them by "anonymous"`) {
			t.Errorf("the third of four: %v", err)
		}
	})
	t.Run("leases", func(t *testing.T) {
		p := serveBounded(t, without(), func(c *Config) { c.Limits.MaxLeaseWaits = 4 })
		c := connect(t, p)
		c.expect(wire.Status_GRANTED, acquire(c.open(secret), 1, "l", false))
		c.send(leaseOf(oneKey, "l", true))
		c.send(leaseOf(otherKey, "l", true))
		eventually(t, "both wait", func() bool { return p.replica.awaited() == 2 })
		got := connect(t, p).expect(wire.Status_RESOURCE_EXHAUSTED, leaseOf([]byte("the-key-of-the-third"), "m", false)).GetResult().GetMessage()
		if !strings.HasPrefix(got, "max_lease_waits: 2 of 4 are taken") {
			t.Errorf("says %q", got)
		}
	})
	t.Run("tunnels", func(t *testing.T) {
		_, follower, _ := followed(t, func(c *Config) { c.Limits.MaxTunnels, c.Quotas = 4, quota.New(c.Replica, 10) })
		bound(follower, without())
		first := through(t, follower)
		through(t, follower)
		if _, answer := ask(t, follower, self); answer.GetStatus() != wire.Status_RESOURCE_EXHAUSTED || !strings.HasPrefix(answer.GetMessage(), "max_tunnels: 2 of 4 are taken") {
			t.Errorf("the third of four: %v", answer)
		}
		_ = first.conn.Close()
		eventually(t, "the place is free", func() bool { return follower.relay.Len() == 1 })
		through(t, follower)
	})
}

func TestQuotaOfWatches(t *testing.T) {
	p := serveBounded(t, &wire.Quota{Watches: 1})
	one, two := connect(t, p), connect(t, p)
	id := one.expect(wire.Status_OK, watchAll(0)).GetId()
	if got := two.expect(wire.Status_RESOURCE_EXHAUSTED, watchAll(0)).GetResult().GetMessage(); got != `quota watches of "anonymous": 1 of 1 used, this would take 1 more` {
		t.Errorf("the second watch: %q", got)
	}
	one.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_EndRequest{EndRequest: &wire.EndRequest{RequestId: id}}})
	two.expect(wire.Status_OK, watchAll(0))
}

// TestQuotaOfRequests sends more requests than the quota allows, from two connections, and then a heartbeat and a
// release.
func TestQuotaOfRequests(t *testing.T) {
	p := serveBounded(t, &wire.Quota{RequestsPerSecond: 5})
	one, two := connect(t, p), connect(t, p)
	session := one.open(secret)
	refused, begun := 0, time.Now()
	for range 5 {
		for _, c := range []*peer{one, two} {
			res := c.await(c.send(&wire.Request{Body: &wire.Request_WhoAmI{WhoAmI: &wire.WhoAmIRequest{Stale: true}}})).GetResult()
			if res.GetStatus() == wire.Status_RESOURCE_EXHAUSTED {
				refused++
			}
		}
	}
	if allowed := 5 + int(time.Since(begun).Seconds()*5) + 1; refused < 11-allowed {
		t.Errorf("%d of 10 are refused", refused)
	}
	for range 10 {
		one.expect(wire.Status_OK, &wire.Request{SessionId: session, Body: &wire.Request_Heartbeat{Heartbeat: &wire.Heartbeat{}}})
		one.expect(wire.Status_NOT_HELD, &wire.Request{SessionId: session, Seq: 1, Body: &wire.Request_Release{Release: &wire.Release{HoldId: 7, Token: 7}}})
	}
}

// TestGetQuota asks for the caller's own quotas, and for those of others, which needs a right.
func TestGetQuota(t *testing.T) {
	p := serveBounded(t, &wire.Quota{Claims: 9, Connections: 3})
	c := connect(t, p)
	c.open(secret)
	ask := func(req *wire.GetQuotaRequest) *wire.Request {
		return &wire.Request{Body: &wire.Request_GetQuota{GetQuota: req}}
	}
	got := c.expect(wire.Status_OK, ask(&wire.GetQuotaRequest{})).GetGetQuota().GetQuotas()
	uses := map[wire.QuotaUse_Kind]*wire.QuotaUse{}
	for _, use := range got[0].GetUses() {
		uses[use.GetKind()] = use
	}
	if len(got) != 1 || got[0].GetIdentity() != "anonymous" || got[0].GetQuota() != "*" || uses[wire.QuotaUse_SESSIONS].GetUsed() != 1 ||
		uses[wire.QuotaUse_CLAIMS].GetLimit() != 9 || uses[wire.QuotaUse_CONNECTIONS].GetUsed() != 1 || uses[wire.QuotaUse_CONNECTIONS].GetLimit() != 3 {
		t.Errorf("answers %v", got)
	}
	c.expect(wire.Status_OK, ask(&wire.GetQuotaRequest{Identity: "anonymous"}))
	c.expect(wire.Status_PERMISSION_DENIED, ask(&wire.GetQuotaRequest{Identity: "ann"}))
	c.expect(wire.Status_PERMISSION_DENIED, ask(&wire.GetQuotaRequest{All: true}))
}
