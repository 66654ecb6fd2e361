package access_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestAdministratorsWithoutCertificates verifies which changes a node refuses that accepts no client certificates. In the
// cluster, admin keeps the policy and each role has a token that does not expire.
func TestAdministratorsWithoutCertificates(t *testing.T) {
	c := rights.New(t)
	tokenOf := func(name string) string {
		sum, err := identity.HashToken(c.Tokens[name])
		if err != nil {
			t.Fatal(err)
		}
		return identity.TokenID(sum)
	}
	create := func(name string, ends int64, sum byte) {
		op := &wire.CreateToken{Sha256: bytes.Repeat([]byte{sum}, 32), Name: name, EndsUnixMs: ends, Reason: "test"}
		c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "admin"}, Op: &wire.Command_CreateToken{CreateToken: op}})
	}
	kept := func(identities ...string) *wire.Command {
		p := &wire.Policy{}
		for _, one := range identities {
			p.Bindings = append(p.Bindings, &wire.Binding{Identity: one, Roles: []string{"admin"}})
		}
		return &wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: p, Reason: "test"}}}
	}
	revoke := func(id string) *wire.Command {
		return &wire.Command{Op: &wire.Command_RevokeToken{RevokeToken: &wire.RevokeToken{TokenId: id, Reason: "test"}}}
	}
	certified := kept("ann")
	certified.Caller = &wire.Caller{Identity: "ann", Credential: "certificate 7f"}
	byToken := kept("ann")
	byToken.Caller = &wire.Caller{Identity: "ann", Credential: "token 7f"}
	check := func(what string, cmd *wire.Command, refused bool) {
		t.Helper()
		res := access.CheckAdministrators(c.Access(), cmd)
		if (res != nil) != refused || refused && (res.GetStatus() != wire.Status_FAILED_PRECONDITION || !strings.Contains(res.GetMessage(), "qlock token create")) {
			t.Errorf("%s: %v", what, res)
		}
	}
	check("an identity without a token", kept("ann"), true)
	check("one of certificates only", kept("cn:ann"), true)
	check("by a caller with a token", byToken, true)
	check("by a caller with a certificate", certified, false)
	check("one with a token", kept("admin"), false)
	check("one of two with a token", kept("ann", "admin"), false)
	check("whoever connects", kept("anonymous"), false)
	check("a policy that nobody keeps", kept("*"), false)
	check("an invalid policy", kept("admin", "admin"), false)
	check("no policy", &wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{}}}, false)
	create("ann", 1<<40, 1)
	check("one with a token that ends", kept("ann"), true)

	check("the administrator's only token", revoke(tokenOf("admin")), true)
	check("somebody else's token", revoke(tokenOf("user")), false)
	check("an unknown token", revoke("000000000000"), false)
	create("admin", 0, 2)
	check("one of the administrator's tokens", revoke(tokenOf("admin")), false)
	both, certificates := kept("admin", "cn:ann"), kept("cn:ann")
	both.GetSetPolicy().ExpectedRevision, both.Caller = revision(c), &wire.Caller{Identity: "admin"}
	c.Must(t, both)
	certificates.GetSetPolicy().ExpectedRevision, certificates.Caller = revision(c), &wire.Caller{Identity: "cn:ann", Credential: "certificate 7f"}
	c.Must(t, certificates)
	check("a token under a policy of certificates", revoke(tokenOf("admin")), false)
}
