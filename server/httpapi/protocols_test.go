package httpapi

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// TestTokensInEveryProtocol verifies that a token in the metadata of a call identifies its caller, and that refusals of
// tokens and rights have the code of the protocol.
func TestTokensInEveryProtocol(t *testing.T) {
	leader, follower, _, r := governed(t)
	for name, options := range map[string][]connect.ClientOption{"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()}} {
		for _, p := range []*port{leader, follower} {
			access := wireconnect.NewAccessServiceClient(h2c(t), "http://"+p.addr, options...)
			locks := wireconnect.NewLockServiceClient(h2c(t), "http://"+p.addr, options...)
			for token, want := range map[string]connect.Code{
				r.Tokens["reader"]: 0, r.Tokens["other"]: connect.CodePermissionDenied, "ql_unknown": connect.CodeUnauthenticated, "": connect.CodePermissionDenied,
			} {
				get := connect.NewRequest(&wire.GetLockRequest{Name: rights.Lock})
				if token != "" {
					get.Header().Set("Authorization", "Bearer "+token)
				}
				if _, err := locks.Get(t.Context(), get); err == nil && want != 0 || err != nil && connect.CodeOf(err) != want {
					t.Errorf("%s at %s with %.8q: %v, want %v", name, p.addr, token, err, want)
				}
			}
			who := connect.NewRequest(&wire.WhoAmIRequest{})
			who.Header().Set("Authorization", "bearer "+r.Tokens["reader"])
			if got, err := access.WhoAmI(t.Context(), who); err != nil || got.Msg.GetCaller().GetIdentity() != "reader" {
				t.Errorf("%s at %s: %v, %v", name, p.addr, got, err)
			}
		}
	}
}
