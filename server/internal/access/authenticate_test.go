package access_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// forClients is the usage of clients' certificates.
var forClients = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}

// TestWhoACallerIs verifies which credential counts, and that nothing invalid is replaced by a weaker one.
func TestWhoACallerIs(t *testing.T) {
	c := rights.New(t)
	user := &x509.Certificate{SerialNumber: big.NewInt(0x2a), ExtKeyUsage: forClients, URIs: []*url.URL{identity.URI("c1", "user")}}
	node := &x509.Certificate{SerialNumber: big.NewInt(1), ExtKeyUsage: forClients, URIs: []*url.URL{{Scheme: "quorumlock", Host: "c1", Path: "/n1"}}}
	other := &x509.Certificate{SerialNumber: big.NewInt(1), ExtKeyUsage: forClients, URIs: []*url.URL{identity.URI("c2", "admin")}}
	named := &x509.Certificate{SerialNumber: big.NewInt(1), ExtKeyUsage: forClients, Subject: pkix.Name{CommonName: "admin"}}
	nodeNamed := &x509.Certificate{SerialNumber: big.NewInt(1), ExtKeyUsage: forClients, Subject: pkix.Name{CommonName: "node n1"}}
	nodeURI := &x509.Certificate{SerialNumber: big.NewInt(1), ExtKeyUsage: forClients, URIs: []*url.URL{identity.URI("c1", "node n1")}}
	server := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "admin"}, DNSNames: []string{"admin"}}
	for name, test := range map[string]struct {
		presented access.Presented
		want      *wire.Caller
		err       error
		says      string
	}{
		"certificate":               {access.Presented{Certificate: user, Address: "a:1"}, &wire.Caller{Identity: "user", Credential: "certificate 2a", Address: "a:1"}, nil, ""},
		"token":                     {access.Presented{Token: c.Tokens["admin"], Secure: true}, &wire.Caller{Identity: "admin"}, nil, ""},
		"token before certificate":  {access.Presented{Token: c.Tokens["reader"], Secure: true, Certificate: user}, &wire.Caller{Identity: "reader"}, nil, ""},
		"another node's word":       {access.Presented{Origin: &wire.Caller{Identity: "user", Credential: "x"}}, &wire.Caller{Identity: "user", Credential: "x"}, nil, ""},
		"token in the clear":        {access.Presented{Token: c.Tokens["admin"]}, nil, access.ErrUnauthenticated, "over TLS or from loopback only"},
		"unknown token":             {access.Presented{Token: identity.NewToken(), Secure: true, Certificate: user}, nil, access.ErrUnauthenticated, "revoked"},
		"no token at all":           {access.Presented{Token: "secret", Secure: true}, nil, access.ErrUnauthenticated, "malformed"},
		"a node's certificate":      {access.Presented{Certificate: node}, nil, access.ErrUnauthenticated, "is that of the node"},
		"a certificate for any use": {access.Presented{Certificate: server}, nil, access.ErrUnauthenticated, "extended key usage must be clientAuth"},
		"another cluster's":         {access.Presented{Certificate: other}, nil, access.ErrUnauthenticated, `cluster "c2"`},
		"a common name":             {access.Presented{Certificate: named}, nil, access.ErrNoRole, `"cn:admin"`},
		"the name of a node":        {access.Presented{Certificate: nodeNamed}, nil, access.ErrNoRole, `"cn:node n1"`},
		"the URI of a node":         {access.Presented{Certificate: nodeURI}, nil, access.ErrUnauthenticated, "is not allowed"},
		"a node, another says":      {access.Presented{Origin: &wire.Caller{Identity: "node n1"}}, nil, access.ErrUnauthenticated, "is the identity of a node"},
		"nothing":                   {access.Presented{}, nil, access.ErrNoRole, `"anonymous"`},
	} {
		t.Run(name, func(t *testing.T) {
			caller, err := access.Authenticate(c, "c1", test.presented)
			if !errors.Is(err, test.err) {
				t.Fatalf("%v, want %v", err, test.err)
			}
			if err != nil {
				if !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "ql_A") || test.presented.Token != "" && strings.Contains(err.Error(), test.presented.Token) {
					t.Errorf("the error says %q", err)
				}
				return
			}
			got := proto.CloneOf(caller.Origin())
			if test.want.Credential == "" {
				if !strings.HasPrefix(got.Credential, "token ") {
					t.Errorf("proved by %q", got.Credential)
				}
				got.Credential = ""
			}
			if !proto.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// TestEndsOfTokens verifies that a token is refused once it has expired, for new and for established connections.
func TestEndsOfTokens(t *testing.T) {
	c := rights.New(t)
	end := time.Now().Add(time.Hour)
	token := identity.NewToken()
	sum, _ := identity.HashToken(token)
	create := &wire.CreateToken{Sha256: sum, Name: "user", EndsUnixMs: end.UnixMilli(), Reason: "test"}
	c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "admin"}, Op: &wire.Command_CreateToken{CreateToken: create}})
	caller, err := access.Authenticate(c, "c1", access.Presented{Token: token, Secure: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := caller.Recheck(end.Add(-time.Millisecond)); err != nil {
		t.Errorf("before its end: %v", err)
	}
	if err := caller.Recheck(end); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("at its end: %v", err)
	}
	past := identity.NewToken()
	sum, _ = identity.HashToken(past)
	create = &wire.CreateToken{Sha256: sum, Name: "user", EndsUnixMs: 1, Reason: "test"}
	c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "admin"}, Op: &wire.Command_CreateToken{CreateToken: create}})
	if _, err := access.Authenticate(c, "c1", access.Presented{Token: past, Secure: true}); !errors.Is(err, access.ErrUnauthenticated) || !strings.Contains(err.Error(), "expired at 1970") {
		t.Errorf("after its end: %v", err)
	}
}

// TestRecheck verifies which changes end the connections of which callers.
func TestRecheck(t *testing.T) {
	c := rights.New(t)
	callers := map[string]*access.Caller{}
	for _, role := range rights.Roles {
		callers[role] = as(t, c, role)
	}
	ended := func() (list []string) {
		for _, role := range rights.Roles {
			if callers[role].Recheck(time.Now()) != nil {
				list = append(list, role)
			}
		}
		return list
	}
	want := func(when string, roles ...string) {
		t.Helper()
		if got := ended(); strings.Join(got, " ") != strings.Join(roles, " ") {
			t.Errorf("%s: %q are ended, want %q", when, got, roles)
		}
	}
	set := func(change func(*wire.Policy)) {
		t.Helper()
		p := rights.Policy()
		change(p)
		c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "admin"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
			Policy: p, ExpectedRevision: revision(c), Reason: "test",
		}}})
	}
	want("at first")
	set(func(p *wire.Policy) { p.Bindings[1].Roles = []string{"reader", "user"} })
	want("after a right was added")
	// The connection may have used its new rights in between.
	set(func(*wire.Policy) {})
	callers["reader"].Grants()
	want("after it was taken away", "reader")
	want("once it was ended")
	set(func(p *wire.Policy) { p.Bindings = p.Bindings[1:] })
	want("after a binding was removed", "other")
	id := strings.TrimPrefix(callers["user"].Origin().GetCredential(), "token ")
	c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "admin"}, Op: &wire.Command_RevokeToken{RevokeToken: &wire.RevokeToken{TokenId: id, Reason: "test"}}})
	want("after a token was revoked", "user")
}
