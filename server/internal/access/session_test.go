package access_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// own are the requests that an identity may send without a role, while it has sessions.
var own = []string{
	"AttachRequest", "CloseSession", "CloseRequest", "Heartbeat", "HeartbeatRequest", "Acknowledge", "Release", "ReleaseRequest",
	"ReleaseLeaseRequest", "Cancel", "Downgrade", "DowngradeRequest", "EndRequest", "WhoAmIRequest", "GetQuotaRequest",
}

// withoutRole removes the binding of the identity that has the session.
func withoutRole(t *testing.T, c *rights.Cluster) {
	t.Helper()
	policy := rights.Policy()
	policy.Bindings = slices.DeleteFunc(policy.Bindings, func(b *wire.Binding) bool { return b.Identity == "user" })
	c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "admin"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
		Policy: policy, ExpectedRevision: revision(c), Reason: "test",
	}}})
}

// TestSessionsWithoutARole verifies that an identity whose last role was taken away is disconnected, may connect again
// to give up what it has, and nothing else, and may no longer connect once it has no session.
func TestSessionsWithoutARole(t *testing.T) {
	c := rights.New(t)
	presented := access.Presented{Token: c.Tokens["user"], Secure: true}
	before := as(t, c, "user")
	withoutRole(t, c)
	if err := before.Recheck(time.Now()); !errors.Is(err, access.ErrNoRole) {
		t.Errorf("a connection from before the loss: %v", err)
	}
	caller, err := access.Authenticate(c, "c1", presented)
	if err != nil {
		t.Fatalf("with a session: %v", err)
	}
	for name, request := range rights.Requests(c.Hold) {
		if allowed := caller.Check(request) == nil; allowed != slices.Contains(own, name) {
			t.Errorf("%s: allowed: %v", name, allowed)
		}
	}
	acquire := &wire.Request{SessionId: c.Session, Seq: 1, Body: &wire.Request_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: rights.Lock}}}}}
	if refused := caller.CheckRequest(acquire); refused != nil {
		t.Errorf("a retry of what was executed: %v", refused)
	}
	if err := caller.RequireRole(); !errors.Is(err, access.ErrNoRole) {
		t.Errorf("what requires a role: %v", err)
	}
	for range 3 {
		if err := caller.Recheck(time.Now()); err != nil {
			t.Fatalf("with a session, connected again: %v", err)
		}
	}

	c.Must(t, &wire.Command{SessionId: c.Session, Seq: 2, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}})
	if err := caller.Recheck(time.Now()); err != nil {
		t.Errorf("while the answer may be on its way: %v", err)
	}
	if err := caller.Recheck(time.Now()); !errors.Is(err, access.ErrNoRole) {
		t.Errorf("without a session: %v", err)
	}
	if _, err := access.Authenticate(c, "c1", presented); !errors.Is(err, access.ErrNoRole) {
		t.Errorf("without a session, again: %v", err)
	}
}
