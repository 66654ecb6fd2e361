package rpc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// governed serves a cluster with the policy of package rights.
func governed(t *testing.T, change func(*Config)) (*port, *rights.Cluster) {
	p, c := serve(t, change), rights.New(t)
	p.replica.mu.Lock()
	p.replica.machine = c.Machine
	p.replica.mu.Unlock()
	return p, c
}

// change applies a command of the administrator.
func (p *port) change(cmd *wire.Command) {
	cmd.Caller = &wire.Caller{Identity: "admin"}
	p.replica.mu.Lock()
	defer p.replica.mu.Unlock()
	if res := p.replica.apply(cmd).Results[0]; res.GetStatus() != wire.Status_OK {
		panic(res)
	}
}

// as connects with a token.
func as(t *testing.T, p *port, token string) *peer {
	t.Helper()
	conn := dial(t, p)
	reply, r, err := transport.ClientHandshake(t.Context(), conn, &wire.Hello{Agent: "test", AuthToken: token})
	if err != nil {
		t.Fatal(err)
	}
	return greeting(t, conn, reply, r)
}

// refusedHello connects with a token that is refused, and returns the goodbye.
func refusedHello(t *testing.T, p *port, token string) *transport.GoodbyeError {
	t.Helper()
	_, _, err := transport.ClientHandshake(t.Context(), dial(t, p), &wire.Hello{Agent: "test", AuthToken: token})
	bye, ok := asGoodbye(err)
	if !ok {
		t.Fatalf("hello: %v", err)
	}
	return bye
}

// TestEveryRequestByRole sends every request as every role.
func TestEveryRequestByRole(t *testing.T) {
	p, c := governed(t, nil)
	bodies := (&wire.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for _, role := range rights.Roles {
		client := as(t, p, c.Tokens[role])
		if got := client.reply.GetIdentity(); got != role {
			t.Errorf("the token of %s proves %q", role, got)
		}
		examples := rights.Requests(c.Hold)
		for i := range bodies.Len() {
			field := bodies.Get(i)
			name := string(field.Message().Name())
			req := &wire.Request{}
			req.ProtoReflect().Set(field, protoreflect.ValueOfMessage(examples[name].ProtoReflect()))
			res := client.call(req).GetResult()
			if denied := res.GetStatus() == wire.Status_PERMISSION_DENIED; denied == slices.Contains(rights.Allowed[name], role) {
				t.Errorf("%s sends %s: %v", role, name, res)
			}
		}
	}
}

// TestNothingIsDoneBeforeTheVerdict sends every request with the number of an executed one, as a role that may do little.
// The node must not be asked to do what is refused, such as dialling a new member.
func TestNothingIsDoneBeforeTheVerdict(t *testing.T) {
	p, c := governed(t, nil)
	var acted atomic.Bool
	p.replica.administerWith(func(context.Context) error { acted.Store(true); return nil })
	client := as(t, p, c.Tokens["user"])
	client.expect(wire.Status_OK, &wire.Request{SessionId: c.Session, Body: &wire.Request_Attach{Attach: &wire.AttachRequest{Secret: []byte(rights.Secret)}}})
	bodies := (&wire.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for i := range bodies.Len() {
		name := string(bodies.Get(i).Message().Name())
		req := &wire.Request{SessionId: c.Session, Seq: 1}
		req.ProtoReflect().Set(bodies.Get(i), protoreflect.ValueOfMessage(rights.Requests(c.Hold)[name].ProtoReflect()))
		res := client.call(req).GetResult()
		denied := res.GetStatus() == wire.Status_PERMISSION_DENIED
		if denied == slices.Contains(rights.Allowed[name], "user") || name != "Acquire" && succeeded(res) {
			t.Errorf("%s with the number of an acquire: %v", name, res)
		}
	}
	if acted.Load() {
		t.Error("the node was asked to act")
	}
}

// TestUnusualEncodingsAreCheckedToo sends an acquire in an encoding that no client uses, which takes another way
// through the port.
func TestUnusualEncodingsAreCheckedToo(t *testing.T) {
	p, c := governed(t, nil)
	client := as(t, p, c.Tokens["reader"])
	for _, locks := range [][]*wire.LockRequest{{{Name: "x/1"}}, {{Name: "x/1"}, {Name: "x/2"}}} {
		res := client.call(&wire.Request{Body: &wire.Request_Acquire{Acquire: &wire.Acquire{Locks: locks}}}).GetResult()
		if res.GetStatus() != wire.Status_PERMISSION_DENIED {
			t.Errorf("acquire of %d locks: %v", len(locks), res)
		}
	}
}

// TestSessionsBelongToTheirIdentity verifies that the secret alone does not open a session of another identity.
func TestSessionsBelongToTheirIdentity(t *testing.T) {
	p, c := governed(t, nil)
	secret := []byte("0123456789abcdef")
	session := as(t, p, c.Tokens["user"]).open(secret)
	attach := &wire.Request{SessionId: session, Body: &wire.Request_Attach{Attach: &wire.AttachRequest{Secret: secret}}}
	admin := as(t, p, c.Tokens["admin"])
	admin.expect(wire.Status_PERMISSION_DENIED, proto.CloneOf(attach))
	admin.expect(wire.Status_PERMISSION_DENIED, &wire.Request{Body: &wire.Request_OpenSession{OpenSession: &wire.OpenRequest{Secret: secret}}})
	as(t, p, c.Tokens["user"]).expect(wire.Status_OK, attach)
}

// TestRefusedHellos verifies what a caller without a valid credential, or without a role, is told.
func TestRefusedHellos(t *testing.T) {
	p, _ := governed(t, nil)
	if bye := refusedHello(t, p, identity.NewToken()); bye.Code != wire.Goodbye_UNAUTHENTICATED {
		t.Errorf("an unknown token: %v", bye)
	}
	if bye := refusedHello(t, p, ""); bye.Code != wire.Goodbye_PERMISSION_DENIED {
		t.Errorf("anonymous, without a role: %v", bye)
	}
	strict := serve(t, func(c *Config) { c.RequireIdentity = true })
	if bye := refusedHello(t, strict, ""); bye.Code != wire.Goodbye_UNAUTHENTICATED {
		t.Errorf("no credential where one is required: %v", bye)
	}
}

// TestRevokedCallersAreDisconnected verifies that connections end when their token is revoked or their binding is
// removed, and that others stay.
func TestRevokedCallersAreDisconnected(t *testing.T) {
	denied := make(chan access.Denial, 8)
	next := func() (d access.Denial) {
		select {
		case d = <-denied:
		case <-time.After(10 * time.Second):
			t.Error("nothing was reported")
		}
		return d
	}
	p, c := governed(t, func(c *Config) { c.Denials = func(d access.Denial) { denied <- d } })
	user, other, admin := as(t, p, c.Tokens["user"]), as(t, p, c.Tokens["other"]), as(t, p, c.Tokens["admin"])
	sum, err := identity.HashToken(c.Tokens["user"])
	if err != nil {
		t.Fatal(err)
	}
	p.change(&wire.Command{Op: &wire.Command_RevokeToken{RevokeToken: &wire.RevokeToken{TokenId: identity.TokenID(sum), Reason: "test"}}})
	user.goodbye(wire.Goodbye_UNAUTHENTICATED)
	if d := next(); d.Caller.GetIdentity() != "user" || d.Status != wire.Status_UNAUTHENTICATED || d.Message == "" {
		t.Errorf("denied %v", d)
	}
	policy := rights.Policy()
	policy.Bindings = slices.DeleteFunc(policy.Bindings, func(b *wire.Binding) bool { return b.Identity == "other" })
	_, revision := c.Access().Policy()
	p.change(&wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: policy, ExpectedRevision: revision, Reason: "test"}}})
	other.goodbye(wire.Goodbye_PERMISSION_DENIED)
	if d := next(); d.Caller.GetIdentity() != "other" || d.Status != wire.Status_PERMISSION_DENIED || len(denied) != 0 {
		t.Errorf("denied %v, and %d others", d, len(denied))
	}
	admin.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_Status{Status: &wire.StatusRequest{}}})
}

// TestAnswersHideOtherLocks verifies that the answer to an acquire has no holders that the caller may not read.
func TestAnswersHideOtherLocks(t *testing.T) {
	p, c := governed(t, nil)
	policy := rights.Policy()
	policy.Roles[0].Locks = append(policy.Roles[0].Locks, &wire.LockRule{Name: rights.Lock, Verbs: []wire.Verb{wire.Verb_LOCK}})
	_, revision := c.Access().Policy()
	p.change(&wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: policy, ExpectedRevision: revision, Reason: "test"}}})
	for role, holders := range map[string]int{"other": 0, "admin": 1} {
		client := as(t, p, c.Tokens[role])
		session := client.open([]byte(role + "-0123456789abcdef"))
		res := client.call(&wire.Request{SessionId: session, Seq: 1, Body: &wire.Request_Acquire{Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: rights.Lock, Mode: wire.Mode_EXCLUSIVE}}, WaitForever: true,
		}}}).GetResult()
		if res.GetStatus() != wire.Status_QUEUED || len(res.GetHolders()) != holders {
			t.Errorf("%s: %v", role, res)
		}
	}
}

func asGoodbye(err error) (*transport.GoodbyeError, bool) {
	bye, ok := errors.AsType[*transport.GoodbyeError](err)
	return bye, ok
}

// TestWatchesHideOtherLocks verifies that a watch sees the events of the locks that its caller may read, and no others.
func TestWatchesHideOtherLocks(t *testing.T) {
	p, c := governed(t, nil)
	for role, want := range map[string][]string{"other": {"else/1"}, "reader": {rights.Lock, "else/1"}} {
		client := as(t, p, c.Tokens[role])
		id := client.send(&wire.Request{Body: &wire.Request_Watch{Watch: &wire.WatchRequest{}}})
		client.await(id)
		p.replica.history.Add(
			&wire.Event{Type: wire.Event_RELEASED, Revision: p.replica.history.Last() + 1, Lock: rights.Lock},
			&wire.Event{Type: wire.Event_RELEASED, Revision: p.replica.history.Last() + 2, Lock: "else/1"},
		)
		var got []string
		for len(got) < len(want) {
			for _, e := range client.seen(id).GetEvents() {
				got = append(got, e.GetLock())
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s sees %q, want %q", role, got, want)
		}
	}
}

// TestMalformedRequestsAreNoDenials sends a long name to which the caller has no right.
func TestMalformedRequestsAreNoDenials(t *testing.T) {
	p, c := governed(t, nil)
	client := as(t, p, c.Tokens["other"])
	for _, req := range []*wire.Request{
		{Body: &wire.Request_Watch{Watch: &wire.WatchRequest{Name: strings.Repeat("\x01", 500_000)}}},
		{Body: &wire.Request_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: strings.Repeat("/", 500_000)}}}}},
	} {
		if res := client.call(req).GetResult(); res.GetStatus() != wire.Status_INVALID_ARGUMENT || len(res.GetMessage()) > 200 {
			t.Errorf("%v, %d bytes", res.GetStatus(), len(res.GetMessage()))
		}
	}
}
