package access_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// numbered are the messages of frames that have a number.
var numbered = map[string]bool{
	"Acquire": true, "AcquireCached": true, "Release": true, "Cancel": true, "SetValue": true, "Upgrade": true, "Downgrade": true, "Extend": true,
}

// TestNumbersChangeNoVerdict gives every framed request the number of an executed one, of another one, and of a session
// that does not exist, and compares the verdict with that on the same request without a number.
func TestNumbersChangeNoVerdict(t *testing.T) {
	c := rights.New(t)
	examples := rights.Requests(c.Hold)
	bodies := (&wire.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for _, role := range rights.Roles {
		caller := as(t, c, role)
		for i := range bodies.Len() {
			name := string(bodies.Get(i).Message().Name())
			with := func(session, seq uint64) wire.Status_Code {
				req := &wire.Request{SessionId: session, Seq: seq}
				req.ProtoReflect().Set(bodies.Get(i), protoreflect.ValueOfMessage(proto.CloneOf(examples[name]).ProtoReflect()))
				return caller.CheckRequest(req).GetStatus()
			}
			want := with(0, 0)
			if want == 0 && !numbered[name] {
				want = wire.Status_INVALID_ARGUMENT
			}
			for _, number := range [][2]uint64{{c.Session, 1}, {c.Session, 2}, {c.Session + 1, 1}} {
				if got := with(number[0], number[1]); got != want {
					t.Errorf("%s sends %s with the number %v: %v, want %v", role, name, number, got, want)
				}
			}
		}
	}
}

// TestOnlyRetriesPassWithoutTheRight verifies that a request that was executed may be sent again after its right was
// withdrawn, by its identity and with its secret, and that no other one may.
func TestOnlyRetriesPassWithoutTheRight(t *testing.T) {
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
	framed := func(role string, seq uint64, lock string) *wire.Result {
		acquire := &wire.Acquire{Locks: []*wire.LockRequest{{Name: lock}}}
		return as(t, c, role).CheckRequest(&wire.Request{SessionId: c.Session, Seq: seq, Body: &wire.Request_Acquire{Acquire: acquire}})
	}
	overHTTP := func(role string, seq uint64, lock, secret string) *wire.Result {
		session := &wire.Credentials{SessionId: c.Session, Secret: []byte(secret)}
		return as(t, c, role).Check(&wire.AcquireRequest{Session: session, Seq: seq, Name: lock})
	}
	lease := func(role string, secret []byte, lock string) *wire.Result {
		acquire := &wire.Acquire{Locks: []*wire.LockRequest{{Name: lock}}}
		return as(t, c, role).Check(&wire.AcquireLeaseRequest{Secret: secret, Acquire: acquire})
	}
	open := func(role, secret string) *wire.Result {
		return as(t, c, role).Check(&wire.OpenRequest{Secret: []byte(secret)})
	}
	for name, res := range map[string]*wire.Result{
		"framed": framed("user", 1, rights.Lock), "HTTP": overHTTP("user", 1, rights.Lock, rights.Secret), "lease": lease("user", secret, "team/leased"),
		"open": open("user", rights.Secret),
	} {
		if res != nil {
			t.Errorf("%s: the retry is refused: %v", name, res)
		}
	}
	for name, res := range map[string]*wire.Result{
		"framed": framed("user", 2, rights.Lock), "framed, another lock": framed("user", 1, "team/b"), "framed, by another identity": framed("reader", 1, rights.Lock),
		"HTTP": overHTTP("user", 2, rights.Lock, rights.Secret), "HTTP, another lock": overHTTP("user", 1, "team/b", rights.Secret),
		"HTTP, by another identity": overHTTP("reader", 1, rights.Lock, rights.Secret), "HTTP, without the secret": overHTTP("user", 1, rights.Lock, "another-secret-16"),
		"lease": lease("user", []byte("another-secret-16"), "team/leased"), "lease of another lock": lease("user", secret, "team/b"),
		"lease, by another identity": lease("reader", secret, "team/leased"), "lease with a session's secret": lease("user", []byte(rights.Secret), "team/leased"),
		"open": open("user", "another-secret-16"), "open, by another identity": open("reader", rights.Secret), "open with a lease's secret": open("user", string(secret)),
	} {
		if res.GetStatus() != wire.Status_PERMISSION_DENIED {
			t.Errorf("%s: a new request: %v", name, res)
		}
	}
}
