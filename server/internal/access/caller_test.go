package access_test

import (
	"crypto/x509"
	"errors"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestEndsOfCertificates verifies that the end of a certificate ends the connection of whoever is identified by it, and
// of nobody else.
func TestEndsOfCertificates(t *testing.T) {
	c := rights.New(t)
	end := time.Now().Add(time.Hour)
	cert := &x509.Certificate{SerialNumber: big.NewInt(7), NotAfter: end, ExtKeyUsage: forClients, URIs: []*url.URL{identity.URI("c1", "user")}}
	for what, test := range map[string]struct {
		presented access.Presented
		ends      bool
	}{
		"a certificate":             {access.Presented{Certificate: cert}, true},
		"a token and a certificate": {access.Presented{Certificate: cert, Token: c.Tokens["user"], Secure: true}, false},
		"a node's own certificate":  {access.Presented{Certificate: cert, Origin: &wire.Caller{Identity: "user"}}, false},
	} {
		caller, err := access.Authenticate(c, "c1", test.presented)
		if err != nil {
			t.Fatal(err)
		}
		if err := caller.Recheck(end); err != nil {
			t.Errorf("%s, before its end: %v", what, err)
		}
		if err := caller.Recheck(end.Add(time.Second)); errors.Is(err, access.ErrUnauthenticated) != test.ends {
			t.Errorf("%s, after its end: %v", what, err)
		}
	}
}

// TestFirstPolicy verifies that the first policy ends the connections of callers without any role only.
func TestFirstPolicy(t *testing.T) {
	c := rights.New(t)
	policy := rights.Policy()
	set := func(policy *wire.Policy) {
		t.Helper()
		c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "admin"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
			Policy: policy, ExpectedRevision: revision(c), Reason: "test",
		}}})
	}
	set(nil)
	user := as(t, c, "user")
	nobody, err := access.Authenticate(c, "c1", access.Presented{})
	if err != nil {
		t.Fatal(err)
	}
	set(policy)
	if err := user.Recheck(time.Now()); err != nil {
		t.Errorf("a caller with a role: %v", err)
	}
	if err := nobody.Recheck(time.Now()); !errors.Is(err, access.ErrNoRole) {
		t.Errorf("a caller without a role: %v", err)
	}
}

// TestNodesAreNotBoundByThePolicy verifies that another node may ask what nodes ask, and nothing else, whatever the
// policy becomes.
func TestNodesAreNotBoundByThePolicy(t *testing.T) {
	c := rights.New(t)
	node := access.Node(c, "n2")
	for name, request := range rights.Requests(c.Hold) {
		_, asked := request.(*wire.VerifyTokenRequest)
		if refused := node.Check(request); (refused == nil) != asked || refused != nil && refused.Status != wire.Status_PERMISSION_DENIED {
			t.Errorf("%s: %v", name, refused)
		}
	}
	policy := rights.Policy()
	policy.Bindings = policy.Bindings[1:]
	c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "admin"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
		Policy: policy, ExpectedRevision: revision(c), Reason: "test",
	}}})
	if err := node.Recheck(time.Now()); err != nil || node.Grants() != nil {
		t.Errorf("after a change: %v, %v", err, node.Grants())
	}
}

// TestQuotasOfOthers verifies who may ask for whose quotas.
func TestQuotasOfOthers(t *testing.T) {
	c := rights.New(t)
	own, policy := &wire.GetQuotaRequest{Identity: "user"}, rights.Policy()
	policy.Roles = append(policy.Roles, &wire.Role{Name: "auditing", Cluster: []wire.Verb{wire.Verb_AUDIT}},
		&wire.Role{Name: "keeping", Cluster: []wire.Verb{wire.Verb_POLICY}})
	policy.Bindings[0].Roles = []string{"keeping"}  // of other
	policy.Bindings[1].Roles = []string{"auditing"} // of reader
	c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "admin"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
		Policy: policy, ExpectedRevision: revision(c), Reason: "test",
	}}})
	for _, test := range []struct {
		role    string
		request *wire.GetQuotaRequest
		allowed bool
	}{
		{"user", &wire.GetQuotaRequest{}, true}, {"user", own, true}, {"user", &wire.GetQuotaRequest{Identity: "admin"}, false},
		{"user", &wire.GetQuotaRequest{All: true}, false}, {"user", &wire.GetQuotaRequest{All: true, Identity: "user"}, false},
		{"other", &wire.GetQuotaRequest{All: true}, true}, {"other", own, true}, {"reader", &wire.GetQuotaRequest{All: true}, true}, {"reader", own, true}, {"admin", own, true},
	} {
		if refused := as(t, c, test.role).Check(test.request); (refused == nil) != test.allowed {
			t.Errorf("%s asks %v: %v", test.role, test.request, refused)
		}
	}
	if refused := as(t, c, "user").Check(&wire.WhoAmIRequest{}); refused != nil {
		t.Errorf("who am I: %v", refused)
	}
}

// TestCloseOfASession verifies that OPERATE on the locks of a session suffices to close it.
func TestCloseOfASession(t *testing.T) {
	c := rights.New(t)
	opened := c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "other"}, Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: append(make([]byte, 31), 1)}}})
	session := opened.GetSession().GetSessionId()
	c.Must(t, &wire.Command{SessionId: session, Seq: 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "else/1"}}}}})
	if refused := as(t, c, "other").Check(&wire.ForceClose{SessionId: session}); refused != nil {
		t.Errorf("with OPERATE on its only lock: %v", refused)
	}
	if refused := as(t, c, "user").Check(&wire.ForceClose{SessionId: session}); refused.GetStatus() != wire.Status_PERMISSION_DENIED {
		t.Errorf("without OPERATE: %v", refused)
	}
}

// TestInvalidTokensAreNotCreated verifies that a malformed request for a token becomes no command.
func TestInvalidTokensAreNotCreated(t *testing.T) {
	c := rights.New(t)
	admin, token := as(t, c, "admin"), identity.NewToken()
	for says, req := range map[string]*wire.CreateTokenRequest{
		"the token is malformed": {Name: "ci", AuthToken: "secret"},
		"is not allowed":         {Name: "c i", AuthToken: token},
		"ttl_ms is":              {Name: "ci", AuthToken: token, TtlMs: 1 << 60},
	} {
		cmd, refused := admin.Command(req)
		if cmd != nil || refused.GetStatus() != wire.Status_INVALID_ARGUMENT || !strings.Contains(refused.GetMessage(), says) {
			t.Errorf("%v, %v, want %q", cmd, refused, says)
		}
		if created := admin.Created(&wire.CreateTokenRequest{AuthToken: "secret"}); created.GetToken() != nil {
			t.Errorf("created %v", created)
		}
	}
	if created := admin.Created(&wire.CreateTokenRequest{AuthToken: c.Tokens["user"]}); created.GetToken().GetName() != "user" {
		t.Errorf("the token of user is shown as %v", created)
	}
}

// TestCommands verifies the commands for requests that change the policy or the tokens, and the bounds of a token's life.
func TestCommands(t *testing.T) {
	admin := as(t, rights.New(t), "admin")
	set, revoke := &wire.SetPolicy{Reason: "r"}, &wire.RevokeToken{TokenId: "7"}
	if cmd, refused := admin.Command(set); cmd.GetSetPolicy() != set || cmd.GetCaller() != admin.Origin() || refused != nil {
		t.Errorf("%v, %v", cmd, refused)
	}
	if cmd, refused := admin.Command(revoke); cmd.GetRevokeToken() != revoke || cmd.GetCaller() != admin.Origin() || refused != nil {
		t.Errorf("%v, %v", cmd, refused)
	}
	const hundredYears = 100 * 365 * 24 * 3600 * 1000
	for ttl, valid := range map[uint64]bool{0: true, 1: true, hundredYears: true, hundredYears + 1: false} {
		before := time.Now().UnixMilli()
		cmd, refused := admin.Command(&wire.CreateTokenRequest{Name: "ci", AuthToken: identity.NewToken(), TtlMs: ttl})
		if (refused == nil) != valid {
			t.Errorf("%d ms: %v", ttl, refused)
		}
		if ends := cmd.GetCreateToken().GetEndsUnixMs(); ttl == 0 && ends != 0 || ttl > 0 && valid && ends-int64(ttl) < before {
			t.Errorf("%d ms: ends at %d", ttl, ends)
		}
	}
}

// TestRightsFollowThePolicy verifies that a caller who is connected has the rights of the policy in force.
func TestRightsFollowThePolicy(t *testing.T) {
	c := rights.New(t)
	reader := as(t, c, "reader")
	for i, roles := range [][]string{{"reader"}, {"other"}, {"reader"}} {
		policy := rights.Policy()
		policy.Bindings[1].Roles = roles
		c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "admin"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
			Policy: policy, ExpectedRevision: revision(c), Reason: "test",
		}}})
		for range 2 {
			if refused := reader.Check(&wire.GetLockRequest{Name: rights.Lock}); (refused == nil) != (roles[0] == "reader") {
				t.Errorf("policy %d: %v", i, refused)
			}
		}
	}
}

// TestTokenOfAnotherIdentity verifies that a token with the id of a revoked one keeps no connection of its identity.
func TestTokenOfAnotherIdentity(t *testing.T) {
	c := rights.New(t)
	user, admin := as(t, c, "user"), &wire.Caller{Identity: "admin"}
	sum, err := identity.HashToken(c.Tokens["user"])
	if err != nil {
		t.Fatal(err)
	}
	c.Must(t, &wire.Command{Caller: admin, Op: &wire.Command_RevokeToken{RevokeToken: &wire.RevokeToken{TokenId: identity.TokenID(sum), Reason: "test"}}})
	sum[31]++
	c.Must(t, &wire.Command{Caller: admin, Op: &wire.Command_CreateToken{CreateToken: &wire.CreateToken{Sha256: sum, Name: "reader", Reason: "test"}}})
	if err := user.Recheck(time.Now()); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("with the token of reader: %v", err)
	}
}

// TestDenials verifies which refusals are reported, and as what.
func TestDenials(t *testing.T) {
	c := rights.New(t)
	var reported []access.Denial
	denials := func(d access.Denial) { reported = append(reported, d) }
	want := func(what string, status wire.Status_Code, request string) {
		t.Helper()
		if len(reported) != 1 || reported[0].Status != status || reported[0].Request != request || reported[0].Message == "" {
			t.Errorf("%s: %+v", what, reported)
		}
		reported = nil
	}
	if _, err := access.Authenticate(c, "c1", access.Presented{Token: "x", Secure: true, Denials: denials}); err == nil {
		t.Error("no token is accepted")
	}
	want("no token", wire.Status_UNAUTHENTICATED, "")
	if _, err := access.Authenticate(c, "c1", access.Presented{Denials: denials}); err == nil {
		t.Error("nobody is accepted")
	}
	want("no role", wire.Status_PERMISSION_DENIED, "")
	user, err := access.Authenticate(c, "c1", access.Presented{Token: c.Tokens["user"], Secure: true, Denials: denials})
	if err != nil {
		t.Fatal(err)
	}
	refused := &wire.Result{Status: wire.Status_PERMISSION_DENIED, Message: "no"}
	user.Denied(&wire.Resize{}, refused)
	want("a request", wire.Status_PERMISSION_DENIED, "Resize")
	framed := &wire.Request{Body: &wire.Request_Revoke{Revoke: &wire.Revoke{}}}
	user.DeniedRequest(framed, refused)
	want("a framed request", wire.Status_PERMISSION_DENIED, "Revoke")
	user.Denied(&wire.Resize{}, &wire.Result{Status: wire.Status_NOT_FOUND})
	user.DeniedRequest(framed, &wire.Result{Status: wire.Status_OK})
	user.DeniedRequest(&wire.Request{}, refused)
	if len(reported) > 0 {
		t.Errorf("reported %+v", reported)
	}
}

// TestVerbsThatStandAlone verifies requests of callers that have only one of the verbs that usually come together.
func TestVerbsThatStandAlone(t *testing.T) {
	c := rights.New(t)
	policy := rights.Policy()
	policy.Roles = append(policy.Roles, &wire.Role{Name: "locking", Locks: []*wire.LockRule{{Prefix: "/", Verbs: []wire.Verb{wire.Verb_LOCK}}}})
	policy.Bindings[1].Roles = []string{"locking"} // of reader
	c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "admin"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
		Policy: policy, ExpectedRevision: revision(c), Reason: "test",
	}}})
	locker := as(t, c, "reader")
	if refused := locker.Check(&wire.VerifyTokenRequest{Name: rights.Lock}); refused != nil {
		t.Errorf("verify with LOCK: %v", refused)
	}
	if refused := locker.Check(&wire.GetLockRequest{Name: rights.Lock}); refused.GetStatus() != wire.Status_PERMISSION_DENIED {
		t.Errorf("read with LOCK: %v", refused)
	}
	if refused := locker.CheckRequest(&wire.Request{}); refused != nil {
		t.Errorf("a request that no node knows: %v", refused)
	}
	if own, other := locker.Owns("reader"), locker.Owns("user"); own != nil || other.GetStatus() != wire.Status_PERMISSION_DENIED {
		t.Errorf("own: %v, another's: %v", own, other)
	}
}

func TestIsLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true,
		"10.0.0.1:1": false, "[fe80::1]:1": false, "example.com:1": false, "127.0.0.1": false, "": false,
	} {
		if got := access.IsLoopback(address); got != want {
			t.Errorf("%q: %v", address, got)
		}
	}
}
