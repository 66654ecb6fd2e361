//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestPolicyClosesSessions checks that --close-sessions is asked of the cluster, even for a policy that is the same.
func TestPolicyClosesSessions(t *testing.T) {
	same := policyFile(t, examplePolicy())
	for _, line := range []string{"remove", "apply testdata/new-policy.yaml", "apply " + same} {
		f, asked := changing(t, examplePolicy())
		got := execTest(t, f.dialer, strings.Fields("policy "+line+" --close-sessions --yes --reason r")...)
		if got.code != 0 || len(*asked) != 1 || !(*asked)[0].GetCloseSessions() {
			t.Errorf("%s: %+v, asked %v", line, got, *asked)
		}
	}
}

// TestPolicyOfUnknownAdministrators checks the warning of a policy whose administrators have no known credential.
func TestPolicyOfUnknownAdministrators(t *testing.T) {
	next := &wire.Policy{Bindings: []*wire.Binding{{Identity: "bob", Roles: []string{"admin"}}, {Identity: "eve", Roles: []string{"admin"}}}}
	const says = "WARNING: perhaps nobody could change this policy: of bob, eve, the cluster knows neither a token that does not expire nor"
	for name, test := range map[string]struct {
		me        string
		certified []string
		token     *wire.TokenInfo
		known     bool
	}{
		"nothing":                  {"certificate 7f", nil, nil, false},
		"another's certificate":    {"certificate 7f", []string{"carol"}, nil, false},
		"a certificate":            {"token 7f", []string{"alice", "eve"}, nil, true},
		"a token":                  {"certificate 7f", nil, &wire.TokenInfo{Id: "1", Name: "bob"}, true},
		"a token that ends":        {"certificate 7f", nil, &wire.TokenInfo{Id: "1", Name: "bob", EndsUnixMs: 9}, false},
		"another's token":          {"certificate 7f", nil, &wire.TokenInfo{Id: "1", Name: "alice"}, false},
		"the caller's certificate": {"certificate bob", nil, nil, true},
		"the caller's token":       {"token bob", nil, nil, false},
	} {
		f, _ := changing(t, examplePolicy())
		f.access.policy = always[*wire.GetPolicyRequest](&wire.GetPolicyResponse{Policy: examplePolicy(), Revision: 412, Certified: test.certified})
		_, me, _ := strings.Cut(test.me, " ")
		f.access.whoAmI = always[*wire.WhoAmIRequest](&wire.WhoAmIResponse{Caller: &wire.Caller{Identity: me, Credential: test.me}})
		f.access.tokens = always[*wire.ListTokensRequest](&wire.ListTokensResponse{Tokens: []*wire.TokenInfo{test.token}})
		got := execTest(t, f.dialer, "policy", "apply", policyFile(t, next), "--dry-run")
		if got.code != 0 || strings.Contains(got.out, says) == test.known {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
