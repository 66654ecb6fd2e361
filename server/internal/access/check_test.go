package access_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// as returns the caller that a role's token proves.
func as(t *testing.T, c *rights.Cluster, role string) *access.Caller {
	t.Helper()
	caller, err := access.Authenticate(c, "c1", access.Presented{Token: c.Tokens[role], Secure: true, Address: "10.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	return caller
}

// TestEveryRequestHasARight walks the schema: a request without a right, or one that is not in the table, fails.
func TestEveryRequestHasARight(t *testing.T) {
	requests := rights.Requests(1)
	if len(requests) < 40 {
		t.Errorf("%d requests: the walk misses some", len(requests))
	}
	for name, request := range requests {
		if access.RightOf(request) == wire.Right_RIGHT_UNSPECIFIED {
			t.Errorf("%s does not say what it requires: give it the option (right)", name)
		}
		if rights.Allowed[name] == nil {
			t.Errorf("%s is not in the table of test/rights", name)
		}
	}
	for name := range rights.Allowed {
		if requests[name] == nil {
			t.Errorf("%s is in the table, and no request", name)
		}
	}
}

// TestRequestsByRole tries every request with every role.
func TestRequestsByRole(t *testing.T) {
	c := rights.New(t)
	for _, role := range rights.Roles {
		caller := as(t, c, role)
		for name, request := range rights.Requests(c.Hold) {
			refused := caller.Check(request)
			if allowed := slices.Contains(rights.Allowed[name], role); allowed != (refused == nil) || !allowed && refused.GetStatus() != wire.Status_PERMISSION_DENIED {
				t.Errorf("%s sends %s: %v", role, name, refused)
			}
		}
	}
}

// TestMessagesThatAreNoRequests verifies that a message without a right is refused.
func TestMessagesThatAreNoRequests(t *testing.T) {
	if res := as(t, rights.New(t), "admin").Check(&wire.LockInfo{}); res.GetStatus() != wire.Status_PERMISSION_DENIED {
		t.Errorf("answered %v", res)
	}
}

// TestNoPolicy verifies that everything is allowed to everybody as long as there is no policy.
func TestNoPolicy(t *testing.T) {
	c := rights.New(t)
	c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "admin"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
		ExpectedRevision: revision(c), Reason: "test",
	}}})
	caller, err := access.Authenticate(c, "c1", access.Presented{})
	if err != nil || caller.Identity() != "anonymous" {
		t.Fatalf("%v, %v", caller, err)
	}
	for name, request := range rights.Requests(c.Hold) {
		if refused := caller.Check(request); refused != nil {
			t.Errorf("%s: %v", name, refused)
		}
	}
}

func revision(c *rights.Cluster) uint64 {
	_, revision := c.Access().Policy()
	return revision
}

// TestEveryLockOfARequest verifies that each of several locks counts, in every form of an acquire and behind a hold.
func TestEveryLockOfARequest(t *testing.T) {
	c := rights.New(t)
	opened := c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "user"}, Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: append(make([]byte, 31), 1)}}})
	session := opened.GetSession().GetSessionId()
	locks := []*wire.LockRequest{{Name: "else/1"}, {Name: "team/b"}}
	held := c.Must(t, &wire.Command{SessionId: session, Seq: 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: locks}}})
	caller := as(t, c, "other")
	for name, request := range map[string]proto.Message{
		"acquire":              &wire.Acquire{Locks: locks},
		"acquire over HTTP":    &wire.AcquireRequest{Locks: locks},
		"cached":               &wire.AcquireCached{Acquire: &wire.Acquire{Locks: locks}},
		"lease":                &wire.AcquireLeaseRequest{Acquire: &wire.Acquire{Locks: locks}},
		"force":                &wire.ForceRelease{HoldId: held.GetHoldId()},
		"close":                &wire.ForceClose{SessionId: session},
		"close of an identity": &wire.ForceClose{Identity: "other"},
	} {
		if res := caller.Check(request); res.GetStatus() != wire.Status_PERMISSION_DENIED {
			t.Errorf("%s: %v", name, res)
		}
	}
	if res := caller.Check(&wire.Acquire{Locks: locks[:1]}); res != nil {
		t.Errorf("its own lock: %v", res)
	}
	if res := caller.Check(&wire.ForceRelease{HoldId: 1 << 40}); res != nil {
		t.Errorf("a hold that does not exist: %v", res)
	}
}

// TestWatchesOfAuditRecords verifies that watching audit records takes AUDIT on the cluster, and that READ on every lock
// shows none of them.
func TestWatchesOfAuditRecords(t *testing.T) {
	c := rights.New(t)
	audited := &wire.Event{Type: wire.Event_AUDITED, Audit: &wire.AuditRecord{Id: 1}}
	for _, role := range rights.Roles {
		caller, may := as(t, c, role), slices.Contains(rights.Allowed["ListAuditRequest"], role)
		if refused := caller.Check(&wire.WatchRequest{Audit: true}); (refused == nil) != may {
			t.Errorf("%s watches audit records: %v", role, refused)
		}
		if shown := caller.Event(audited); (shown != nil) != may {
			t.Errorf("%s sees %v", role, shown)
		}
	}
}

// TestHiddenHoldsAndSessionsLookAbsent verifies that requests about holds and sessions that a caller may not know of are
// passed on, like those about none, and are reported. To whoever may read one of the locks they are refused.
func TestHiddenHoldsAndSessionsLookAbsent(t *testing.T) {
	c := rights.New(t)
	opened := c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "user"}, Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: append(make([]byte, 31), 1)}}})
	idle := opened.GetSession().GetSessionId()
	policy := rights.Policy()
	policy.Roles = append(policy.Roles, &wire.Role{Name: "watcher", Locks: []*wire.LockRule{
		{Prefix: "else/", Verbs: []wire.Verb{wire.Verb_OPERATE, wire.Verb_LOCK}}, {Name: rights.Lock, Verbs: []wire.Verb{wire.Verb_READ}},
	}})
	for _, b := range policy.Bindings {
		if b.Identity == "reader" {
			b.Roles = append(b.Roles, "watcher")
		}
	}
	c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "admin"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
		Policy: policy, ExpectedRevision: revision(c), Reason: "test",
	}}})
	const none, denied = wire.Status_UNSPECIFIED, wire.Status_PERMISSION_DENIED
	for name, test := range map[string]struct {
		request       proto.Message
		other, reader wire.Status_Code
		reported      bool
	}{
		"force":                         {&wire.ForceRelease{HoldId: c.Hold, Reason: "r"}, none, denied, true},
		"force what is not there":       {&wire.ForceRelease{HoldId: 1 << 40, Reason: "r"}, none, none, false},
		"revoke":                        {&wire.Revoke{HoldId: c.Hold, Reason: "r"}, none, denied, true},
		"close":                         {&wire.ForceClose{SessionId: 1, Reason: "r"}, none, denied, true},
		"close a session without locks": {&wire.ForceClose{SessionId: idle, Reason: "r"}, none, none, true},
		"close what is not there":       {&wire.ForceClose{SessionId: 1 << 40, Reason: "r"}, none, none, false},
		"extend":                        {&wire.Extend{HoldId: c.Hold}, none, none, false},
		"extend what is not there":      {&wire.Extend{HoldId: 1 << 40}, none, none, false},
		"extend over HTTP":              {&wire.ExtendRequest{HoldId: c.Hold}, none, none, false},
		"set a value":                   {&wire.SetValue{HoldId: c.Hold}, none, none, false},
	} {
		var reports []access.Denial
		caller, err := access.Authenticate(c, "c1", access.Presented{Token: c.Tokens["other"], Secure: true, Denials: func(d access.Denial) { reports = append(reports, d) }})
		if err != nil {
			t.Fatal(err)
		}
		if got := caller.Check(test.request).GetStatus(); got != test.other || (len(reports) == 1) != test.reported {
			t.Errorf("%s by other: %v, reported %v", name, got, reports)
		}
		if got := as(t, c, "reader").Check(test.request).GetStatus(); got != test.reader {
			t.Errorf("%s by reader: %v", name, got)
		}
	}
}
