package admin_test

import (
	"context"
	"errors"
	"net"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/admin"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// connected returns a client of a node that answers requests with a function.
func connected(t *testing.T, answer func(*wire.Request) *wire.Response) *admin.Client {
	t.Helper()
	c, err := client.New(client.Config{Endpoints: []string{"n1:1"}, Dial: func(context.Context, string) (net.Conn, error) {
		near, far := net.Pipe()
		go serve(far, answer)
		return near, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return admin.New(c)
}

func serve(conn net.Conn, answer func(*wire.Request) *wire.Response) {
	defer conn.Close()
	_, in, err := transport.ServerHandshake(context.Background(), conn, func(*wire.Hello) (*wire.HelloReply, *wire.Goodbye) {
		return &wire.HelloReply{NodeId: "n1", Leader: &wire.LeaderHint{Id: "n1", ClientAddr: "n1:1", Term: 1}}, nil
	})
	if err != nil {
		return
	}
	out := transport.NewOutbox(conn, transport.OutboxConfig{})
	defer out.Close(nil)
	for {
		var frame wire.ClientFrame
		if in.Read(&frame) != nil {
			return
		}
		resp := answer(frame.GetRequest())
		if resp.Result == nil {
			resp.Result = &wire.Result{Status: wire.Status_OK}
		}
		resp.Id = frame.GetRequest().GetId()
		_ = out.Send(&wire.ServerFrame{Frame: &wire.ServerFrame_Response{Response: resp}})
	}
}

// policy is the same in both forms.
var (
	policy = admin.Policy{
		Roles: []admin.Role{{Name: "deploy", Cluster: []admin.Verb{admin.VerbAudit}, Locks: []admin.LockRule{
			{Prefix: "orders/", Verbs: []admin.Verb{admin.VerbRead, admin.VerbLock}}, {Name: "x", Verbs: []admin.Verb{admin.VerbOperate}},
		}}},
		Bindings: []admin.Binding{{Identity: "ci-*", Roles: []string{"deploy", "reader"}}},
	}
	sent = &wire.Policy{
		Roles: []*wire.Role{{Name: "deploy", Cluster: []wire.Verb{wire.Verb_AUDIT}, Locks: []*wire.LockRule{
			{Prefix: "orders/", Verbs: []wire.Verb{wire.Verb_READ, wire.Verb_LOCK}}, {Name: "x", Verbs: []wire.Verb{wire.Verb_OPERATE}},
		}}},
		Bindings: []*wire.Binding{{Identity: "ci-*", Roles: []string{"deploy", "reader"}}},
	}
	by = admin.By{Operator: "me", Reason: "test"}
)

// TestPolicyCalls checks the requests about the policy and the conversion of their answers.
func TestPolicyCalls(t *testing.T) {
	ctx := t.Context()
	var asked *wire.Request
	answer := &wire.Response{}
	c := connected(t, func(req *wire.Request) *wire.Response {
		asked = req
		return proto.CloneOf(answer)
	})
	answer.Body = &wire.Response_GetPolicy{GetPolicy: &wire.GetPolicyResponse{Policy: sent, Revision: 7}}
	got, revision, err := c.Policy(ctx, admin.Stale())
	if err != nil || revision != 7 || got == nil || !asked.GetGetPolicy().GetStale() {
		t.Fatal(got, revision, err)
	}
	if err := c.SetPolicy(ctx, got, revision, true, by); err != nil {
		t.Fatal(err)
	}
	if want := (&wire.SetPolicy{Policy: sent, ExpectedRevision: 7, CloseSessions: true, Reason: "test", Operator: "me"}); !proto.Equal(asked.GetSetPolicy(), want) {
		t.Errorf("%v, want %v", asked.GetSetPolicy(), want)
	}
	if err := c.CloseSessions(ctx, "ci-7", by); err != nil || !proto.Equal(asked.GetForceClose(), &wire.ForceClose{Identity: "ci-7", Reason: "test", Operator: "me"}) {
		t.Errorf("sessions closed with %v, %v", asked, err)
	}
	if err := c.SetPolicy(ctx, nil, 7, false, by); err != nil || asked.GetSetPolicy().GetPolicy() != nil {
		t.Errorf("removed with %v, %v", asked, err)
	}
	answer.Body = &wire.Response_GetPolicy{GetPolicy: &wire.GetPolicyResponse{Revision: 8}}
	if got, revision, err := c.Policy(ctx); err != nil || got != nil || revision != 8 {
		t.Errorf("%v, %d, %v", got, revision, err)
	}
	answer.Body = &wire.Response_TestPolicy{TestPolicy: &wire.TestPolicyResponse{Allowed: true, Reason: "why"}}
	allowed, reason, err := c.TestPolicy(ctx, admin.PolicyTest{Identity: "ci-7", Verb: admin.VerbLock, Lock: "orders/1", Policy: &policy})
	want := &wire.TestPolicyRequest{Identity: "ci-7", Verb: wire.Verb_LOCK, Lock: "orders/1", Policy: sent}
	if err != nil || !allowed || reason != "why" || !proto.Equal(asked.GetTestPolicy(), want) {
		t.Errorf("%v, %q, %v for %v", allowed, reason, err, asked)
	}
	answer.Body, answer.Result = nil, &wire.Result{Status: wire.Status_PERMISSION_DENIED, Message: "bob may not"}
	if _, _, err := c.Policy(ctx); !errors.Is(err, client.ErrPermissionDenied) {
		t.Error(err)
	}
	if err := c.SetPolicy(ctx, nil, 7, false, by); !errors.Is(err, client.ErrPermissionDenied) {
		t.Error(err)
	}
}

// TestIdentityCalls checks the requests about identities and tokens and the conversion of their answers.
func TestIdentityCalls(t *testing.T) {
	ctx := t.Context()
	var asked *wire.Request
	answer := &wire.Response{}
	c := connected(t, func(req *wire.Request) *wire.Response {
		asked = req
		return proto.CloneOf(answer)
	})
	answer.Body = &wire.Response_WhoAmI{WhoAmI: &wire.WhoAmIResponse{Caller: &wire.Caller{Identity: "ci", Credential: "token 7"}, Roles: []string{"reader"}, HasPolicy: true,
		Locks: []*wire.LockRule{{Prefix: "a/", Verbs: []wire.Verb{wire.Verb_READ}}}, Cluster: []wire.Verb{wire.Verb_AUDIT}}}
	who, err := c.WhoAmI(ctx)
	if want := (admin.Identity{
		Caller: admin.Caller{Identity: "ci", Credential: "token 7"}, Roles: []string{"reader"}, HasPolicy: true,
		Locks: []admin.LockRule{{Prefix: "a/", Verbs: []admin.Verb{admin.VerbRead}}}, Cluster: []admin.Verb{admin.VerbAudit},
	}); err != nil || !reflect.DeepEqual(who, want) {
		t.Errorf("%+v, %v", who, err)
	}
	info := &wire.TokenInfo{Id: "7", Name: "ci", CreatedBy: "me", CreatedUnixMs: 1000, EndsUnixMs: 61_000}
	answer.Body = &wire.Response_CreateToken{CreateToken: &wire.CreateTokenResponse{Token: info}}
	token, about, err := c.CreateToken(ctx, "ci", time.Minute, by)
	if _, invalid := identity.HashToken(token); err != nil || invalid != nil || about.ID != "7" || about.Ends.Sub(about.Created) != time.Minute {
		t.Errorf("%+v, %v, %v", about, err, invalid)
	}
	want := &wire.CreateTokenRequest{Name: "ci", AuthToken: token, TtlMs: 60_000, Reason: "test", Operator: "me"}
	if !proto.Equal(asked.GetCreateToken(), want) {
		t.Errorf("%v", asked)
	}
	if _, _, err := c.CreateToken(ctx, "ci", -1, by); !errors.Is(err, client.ErrInvalidArgument) {
		t.Error(err)
	}
	answer.Body = &wire.Response_ListTokens{ListTokens: &wire.ListTokensResponse{Tokens: []*wire.TokenInfo{info, {Id: "8"}}}}
	tokens, err := c.Tokens(ctx, admin.Stale())
	if err != nil || len(tokens) != 2 || tokens[0] != about || !tokens[1].Ends.IsZero() || !asked.GetListTokens().GetStale() {
		t.Errorf("%+v, %v", tokens, err)
	}
	answer.Body = nil
	if err := c.RevokeToken(ctx, "7", true, by); err != nil || !proto.Equal(asked.GetRevokeToken(), &wire.RevokeToken{TokenId: "7", CloseSessions: true, Reason: "test", Operator: "me"}) {
		t.Errorf("%v, %v", asked, err)
	}
	answer.Result = &wire.Result{Status: wire.Status_UNAUTHENTICATED}
	if _, err := c.WhoAmI(ctx); !errors.Is(err, client.ErrUnauthenticated) {
		t.Error(err)
	}
	if token, _, err := c.CreateToken(ctx, "ci", 0, by); token != "" || !errors.Is(err, client.ErrUnauthenticated) {
		t.Errorf("a token, and %v", err)
	}
}

// TestWatchAudit checks the request for a watch of the audit log, and the conversion of what it gets.
func TestWatchAudit(t *testing.T) {
	asked := make(chan *wire.WatchRequest, 2)
	c := connected(t, func(req *wire.Request) *wire.Response {
		if w := req.GetWatch(); w != nil {
			asked <- w
		}
		return &wire.Response{Body: &wire.Response_Watch{Watch: &wire.WatchResponse{Status: wire.Status_OK, Lineage: "l", Revision: 9, Events: []*wire.Event{
			{Type: wire.Event_AUDITED, Revision: 8, Audit: &wire.AuditRecord{Id: 3, Action: wire.AuditRecord_REVOKE, Revision: 8, Caller: &wire.Caller{Identity: "ann"}}},
			{Type: wire.Event_GRANTED, Revision: 9}, // of no interest, should a node ever send it
		}}}}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	w := c.WatchAudit(ctx, client.Position{Lineage: "l", Revision: 7})
	got, err := w.Next(ctx)
	if err != nil || got.Position != (client.Position{Lineage: "l", Revision: 9}) || len(got.Records) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if r := got.Records[0]; r.ID != 3 || r.Action != admin.Revoke || r.Revision != 8 || r.Caller.Identity != "ann" {
		t.Errorf("%+v", r)
	}
	if req := <-asked; !req.GetAudit() || req.GetAfterRevision() != 7 || req.GetLineage() != "l" || req.GetName() != "" {
		t.Errorf("asked for %v", req)
	}
	w.Close()
	if _, err := w.Next(ctx); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
