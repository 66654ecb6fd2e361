package replica

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
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

// withPolicy returns a node that serves without TLS, in whose state there is a policy whatever its peer address is, and
// the channel for what it reports when it fails.
func withPolicy(t *testing.T, stores storage.Backend, peerAddr string) (*Replica, chan error) {
	t.Helper()
	halted := make(chan error, 1)
	cfg := lone(t, stores, func(err error) { halted <- err })
	cfg.Advertise.Peer, cfg.Cluster = peerAddr, []Peer{{ID: cfg.ID, Addr: peerAddr}}
	r := serving(t, cfg)
	done := make(chan *wire.Result, 1)
	r.Propose(&wire.Command{Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{Reason: "test", Policy: &wire.Policy{
		Bindings: []*wire.Binding{{Identity: "root", Roles: []string{"admin"}}},
	}}}}, func(res *wire.Result) { done <- res })
	if res := <-done; res.GetStatus() != wire.Status_OK {
		t.Fatal(res)
	}
	return r, halted
}

// TestMembersNeedTLSUnderAPolicy verifies that no member beyond loopback is added without TLS to a cluster with a policy.
func TestMembersNeedTLSUnderAPolicy(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r, _ := withPolicy(t, inMemory(), "127.0.0.1:7401")
		if err := r.checkInForce(); err != nil {
			t.Errorf("on loopback: %v", err)
		}
		err := r.AddMember(t.Context(), &wire.AddMemberRequest{Id: "n2", PeerAddr: "n2:7401", Reason: "test"})
		if !errors.Is(err, status.ErrPrecondition) || !strings.Contains(err.Error(), "n2:7401 has none: start every node with --peer-tls-cert") {
			t.Error(err)
		}
		r.cfg.PeerTLS = &transport.TLSFiles{}
		if err := r.checkInForce("n2:7401"); err != nil {
			t.Errorf("with TLS: %v", err)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestNodesNeedTLSUnderAPolicy verifies that a node beyond loopback without TLS does not start if a snapshot has a
// policy, and serves nobody if its log has one.
func TestNodesNeedTLSUnderAPolicy(t *testing.T) {
	for _, where := range []string{"log", "snapshot"} {
		t.Run(where, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				stores := inMemory()
				r, halted := withPolicy(t, stores, "n1:7401")
				if where == "snapshot" {
					if err := r.cluster.Raft().Snapshot().Error(); err != nil {
						t.Fatal(err)
					}
				}
				if err := r.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				again, err := Open(t.Context(), lone(t, stores, func(err error) { halted <- err }))
				if err == nil {
					select {
					case err = <-halted:
					case <-time.After(time.Minute):
					}
					if again.Serving() {
						t.Error("the node serves")
					}
					if err := again.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
				if !errors.Is(err, status.ErrPrecondition) || !strings.Contains(err.Error(), "--peer-tls-cert") || (again == nil) != (where == "snapshot") {
					t.Errorf("%v, %v", again, err)
				}
			})
		})
	}
}
