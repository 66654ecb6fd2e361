package access_test

import (
	"testing"

	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestRetriesPassWithoutTheRight verifies that a request that was executed may be sent again after its right was
// withdrawn, and that another one may not.
func TestRetriesPassWithoutTheRight(t *testing.T) {
	c := rights.New(t)
	secret := []byte("0123456789abcdef")
	hash, err := wire.HashSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	locks := []*wire.LockRequest{{Name: "team/leased"}}
	user := &wire.Caller{Identity: "user"}
	c.Must(t, &wire.Command{Caller: user, Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{SecretHash: hash[:], Acquire: &wire.Acquire{Locks: locks}}}})
	policy := rights.Policy()
	policy.Bindings[2].Roles = []string{"reader"}
	c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "admin"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
		Policy: policy, ExpectedRevision: revision(c), Reason: "test",
	}}})
	caller, session := as(t, c, "user"), c.Session
	acquire := &wire.Acquire{Locks: []*wire.LockRequest{{Name: rights.Lock}}}
	framed := func(seq uint64) *wire.Result {
		return caller.CheckRequest(&wire.Request{SessionId: session, Seq: seq, Body: &wire.Request_Acquire{Acquire: acquire}})
	}
	overHTTP := func(seq uint64) *wire.Result {
		return caller.Check(&wire.AcquireRequest{Session: &wire.Credentials{SessionId: session}, Seq: seq, Name: rights.Lock})
	}
	lease := func(secret []byte) *wire.Result {
		return caller.Check(&wire.AcquireLeaseRequest{Secret: secret, Acquire: &wire.Acquire{Locks: locks}})
	}
	for name, res := range map[string]*wire.Result{"framed": framed(1), "HTTP": overHTTP(1), "lease": lease(secret)} {
		if res != nil {
			t.Errorf("%s: the retry is refused: %v", name, res)
		}
	}
	for name, res := range map[string]*wire.Result{"framed": framed(2), "HTTP": overHTTP(2), "lease": lease([]byte("another-secret-16"))} {
		if res.GetStatus() != wire.Status_PERMISSION_DENIED {
			t.Errorf("%s: a new request: %v", name, res)
		}
	}
}
