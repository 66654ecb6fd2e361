package access_test

import (
	"errors"
	"testing"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// follower is a node that lags behind the cluster until it catches up.
type follower struct {
	*rights.Cluster
	applied *fsm.Machine
	caught  int
}

func (f *follower) Access() *fsm.Access          { return f.applied.Access() }
func (f *follower) View(look func(*fsm.Machine)) { look(f.applied) }

func (f *follower) CatchUp() bool {
	f.caught++
	f.applied = f.Machine.Fork()
	return true
}

// TestFollowersCatchUpBeforeTheyRefuse verifies that a follower accepts a token and a right that it has not applied
// yet, that it asks the leader for nothing else, and that it refuses what the cluster does not have.
func TestFollowersCatchUpBeforeTheyRefuse(t *testing.T) {
	f := &follower{Cluster: rights.New(t)}
	f.applied = f.Machine.Fork()
	asked := func(what string, want int) {
		t.Helper()
		if f.caught != want {
			t.Errorf("%s: caught up %d times, want %d", what, f.caught, want)
		}
		f.caught = 0
	}
	token := identity.NewToken()
	sum, _ := identity.HashToken(token)
	admin := &wire.Caller{Identity: "admin"}
	f.Must(t, &wire.Command{Caller: admin, Op: &wire.Command_CreateToken{CreateToken: &wire.CreateToken{Sha256: sum, Name: "reader", Reason: "test"}}})
	caller, err := access.Authenticate(f, "c1", access.Presented{Token: token, Secure: true})
	if err != nil {
		t.Fatalf("a new token: %v", err)
	}
	asked("a new token", 1)

	policy := rights.Policy()
	policy.Bindings[1].Roles = []string{"reader", "user"}
	policy.Bindings = append(policy.Bindings, &wire.Binding{Identity: "anonymous", Roles: []string{"reader"}})
	f.Must(t, &wire.Command{Caller: admin, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
		Policy: policy, ExpectedRevision: revision(f.Cluster), Reason: "test",
	}}})
	acquire := &wire.Request{Body: &wire.Request_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: rights.Lock}}}}}
	if refused := caller.CheckRequest(acquire); refused != nil {
		t.Errorf("a new right: %v", refused)
	}
	asked("a new right", 1)
	if refused := caller.CheckRequest(acquire); refused != nil {
		t.Errorf("a known right: %v", refused)
	}
	asked("a known right", 0)

	f.applied = rights.New(t).Machine
	if _, err := access.Authenticate(f, "c1", access.Presented{}); err != nil {
		t.Errorf("a new binding: %v", err)
	}
	asked("a new binding", 1)
	if _, err := access.Authenticate(f, "c1", access.Presented{Token: identity.NewToken(), Secure: true}); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("an unknown token: %v", err)
	}
	asked("an unknown token", 1)
	for what, presented := range map[string]access.Presented{
		"a malformed token": {Token: "ql_", Secure: true}, "a token in the clear": {Token: identity.NewToken()},
	} {
		if _, err := access.Authenticate(f, "c1", presented); !errors.Is(err, access.ErrUnauthenticated) {
			t.Errorf("%s: %v", what, err)
		}
		asked(what, 0)
	}
	if refused := caller.Check(&wire.GetPolicyRequest{}); refused.GetStatus() != wire.Status_PERMISSION_DENIED {
		t.Errorf("what the policy does not allow: %v", refused)
	}
	asked("what the policy does not allow", 1)
}
