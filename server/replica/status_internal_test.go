package replica

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/command"
	"github.com/quorumlock/quorumlock/server/membership"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestStatusOfEachNode verifies the status of a leader, of a recorded node, and of a configured one.
func TestStatusOfEachNode(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		net, nodes := openTogether(t, 1)
		r := nodes[0]
		listens(t, net, "n2", &wire.NodeState{AppliedIndex: 77, Version: "v2", CertificateExpiresUnixMs: 1234, Alarms: []*wire.Alarm{{NodeId: "n3"}}})
		if err := r.do(t.Context(), r.current(), membership.Put(someMember("n2")), 0); err != nil {
			t.Fatal(err)
		}
		if err := r.cluster.Raft().AddNonvoter("n9", "n9:7401", 0, 0).Error(); err != nil {
			t.Fatal(err)
		}
		r.openSession(t, "a")
		s, err := r.Status(t.Context(), &wire.StatusRequest{})
		if err != nil || len(s.Nodes) != 3 || s.Sessions != 1 {
			t.Fatalf("%v, %v", s, err)
		}
		if s.NodeId != "n1" || s.LeaderId != "n1" || s.Term == 0 || s.CommitIndex == 0 || s.AppliedIndex == 0 || s.ClusterId == "" || s.Level == 0 ||
			s.Revision == 0 || s.Settings == nil || s.Lineage == "" || s.GrantsSuspended {
			t.Errorf("status %v", s)
		}
		for i, c := range []struct {
			id, peer, client, http, version string
			voter, leader, reachable        bool
		}{
			{"n1", "n1:7401", "n1:7400", "n1:7402", "", true, true, true},
			{"n2", "n2:7401", "n2:7400", "n2:7402", "v2", false, false, true},
			{"n9", "n9:7401", "", "", "", false, false, false},
		} {
			n := s.Nodes[i]
			if n.Id != c.id || n.PeerAddr != c.peer || n.ClientAddr != c.client || n.HttpAddr != c.http || n.Version != c.version ||
				n.Voter != c.voter || n.Leader != c.leader || n.Reachable != c.reachable || (n.AppliedIndex != 0) != c.reachable {
				t.Errorf("node %v", n)
			}
		}
		if n := s.Nodes[1]; n.AppliedIndex != 77 || len(n.Alarms) != 1 || n.CertificateExpiresUnixMs != 1234 {
			t.Errorf("what node n2 says of itself: %v", n)
		}
	})
}

// TestStatusBeforeTheLogIsApplied verifies that the cluster id comes from the record, and the node's
// addresses from its configuration, unless the state machine has them.
func TestStatusBeforeTheLogIsApplied(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, func(c *Config) { c.CertificateExpiry = func() time.Time { return time.UnixMilli(4321) } })
		n.runRaft(t, "n1", "n2")
		if _, err := n.directory.Store(1, &wire.Membership{ClusterId: "kept"}); err != nil {
			t.Fatal(err)
		}
		want := func(cluster, http string) {
			t.Helper()
			s, err := n.Status(t.Context(), &wire.StatusRequest{Stale: true})
			if err != nil || s.ClusterId != cluster || s.LeaderId != "" || len(s.Nodes) != 2 || s.Nodes[0].HttpAddr != http || s.Nodes[0].Version != "v" || s.Nodes[0].CertificateExpiresUnixMs != 4321 {
				t.Errorf("%v, %v", s, err)
			}
		}
		want("kept", "n1:7402")
		elsewhere := someMember("n1")
		elsewhere.HttpAddr = "recorded:1"
		n.applies(t, beginnings(elsewhere)...)
		want("c", "recorded:1")
		n.applies(t, &wire.Command{Op: &wire.Command_SuspendGrants{SuspendGrants: &wire.SuspendGrants{}}})
		if s, err := n.Status(t.Context(), &wire.StatusRequest{Stale: true}); err != nil || !s.GrantsSuspended {
			t.Errorf("granting is suspended: %v, %v", s, err)
		}
	})
}

// TestStatusWithoutABarrier verifies that a lost proof is status.ErrUnavailable, since no change was requested.
func TestStatusWithoutABarrier(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, c := range []struct{ end, want error }{{nil, status.ErrUnavailable}, {status.ErrUncertain, status.ErrUnavailable}, {status.ErrNotLeader, status.ErrNotLeader}} {
			r := &Replica{Processor: &command.Processor{Proposer: queueing()}, machine: fsm.NewReplicated(1, nil)}
			ctx, cancel := context.WithCancel(t.Context())
			said := make(chan error, 1)
			go func() {
				_, err := r.Status(ctx, &wire.StatusRequest{})
				said <- err
			}()
			synctest.Wait() // until it waits for its proof
			if c.end == nil {
				cancel()
			} else {
				r.Proposer.End(status.Result(status.Code(c.end), ""))
			}
			if err := <-said; !errors.Is(err, c.want) || errors.Is(err, status.ErrUncertain) {
				t.Errorf("%v: %v", c.end, err)
			}
			cancel()
		}
	})
}
