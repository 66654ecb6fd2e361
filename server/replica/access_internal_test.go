package replica

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestPolicyNeedsTLSBetweenNodes verifies that a policy is refused, directly and through a restore, in a cluster whose
// nodes neither authenticate each other nor are all on loopback.
func TestPolicyNeedsTLSBetweenNodes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := serving(t, lone(t, inMemory(), func(err error) { t.Error(err) }))
		policy := &wire.Policy{Bindings: []*wire.Binding{{Identity: "anonymous", Roles: []string{"admin"}}}}
		set := func(policy *wire.Policy) *wire.Command {
			return &wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Policy: policy, Reason: "test"}}}
		}
		if res := r.CheckChange(set(policy)); res.GetStatus() != wire.Status_FAILED_PRECONDITION || !strings.Contains(res.GetMessage(), "--peer-tls-cert") {
			t.Errorf("without TLS: %v", res)
		}
		if res := r.CheckChange(set(nil)); res != nil {
			t.Errorf("no policy: %v", res)
		}
		_, err := r.Restore(t.Context(), &wire.RestoreRequest{Policy: policy, Reason: "test"})
		if err == nil || !strings.Contains(err.Error(), "--peer-tls-cert") {
			t.Errorf("a restore: %v", err)
		}
		r.cfg.PeerTLS = &transport.TLSFiles{}
		if res := r.CheckChange(set(policy)); res != nil {
			t.Errorf("with TLS: %v", res)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
