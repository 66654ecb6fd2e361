package replica

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/probe"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestAnsweringNodeIsChecked probes nodes of this cluster and of others, and a node that listens at another's
// address.
func TestAnsweringNodeIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		mine, theirs string
		is, says     string // the node that listens, and the one that it claims to be
		state        bool
		cluster      string
	}{
		"of this cluster":                  {"c", "c", "n2", "n2", true, ""},
		"of no cluster":                    {"c", "", "n2", "n2", true, ""},
		"to a node without cluster":        {"", "c", "n2", "n2", true, ""},
		"of another cluster":               {"c", "d", "n2", "n2", false, "d"},
		"another node":                     {"c", "c", "n9", "n9", false, ""},
		"another node, without cluster":    {"c", "", "n9", "n9", false, ""},
		"another node to one without one":  {"", "c", "n9", "n9", false, ""},
		"another node in the name of this": {"c", "c", "n2", "n9", false, ""},
	} {
		bubble.Test(t, func(t *testing.T) {
			n := openIdle(t, func(cfg *Config) { cfg.ClusterID = c.mine })
			listenAs(t, n.net, "n2", &scripted{id: c.is, cluster: c.theirs, state: &wire.NodeState{Member: someMember(c.says)}})
			a := n.prober.One(t.Context(), Peer{ID: "n2", Addr: "n2:7401"})
			if (a.State != nil) != c.state || a.Cluster != c.cluster || a.Peer.ID != "n2" || (a.Err != nil) != (c.is == "n9" || c.cluster != "") {
				t.Errorf("%s: %+v", name, a)
			}
		})
	}
}

// TestNodeThatCannotRunStops verifies that a node stops if raft fails to start when it could begin a cluster
// with a node that was started later.
func TestNodeThatCannotRunStops(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
		n.running.Go(n.awaitBootstrap)
		time.Sleep(10 * time.Second)
		if cause := n.halted.Load(); cause != nil {
			t.Errorf("alone: %v", *cause)
		}
		n2 := listens(t, n.net, "n2", &wire.NodeState{Empty: true})
		time.Sleep(10 * time.Second)
		if cause := n.halted.Load(); cause == nil || !strings.Contains((*cause).Error(), "raft's settings") {
			t.Errorf("with another one: %v", cause)
		}
		if probes, _ := n2.asked(); probes != 1 {
			t.Errorf("it asked %d times", probes)
		}
	})
}

// TestNodeThatIsStoppedWhileItAsks verifies that stopping a node while it probes others is not a failure.
func TestNodeThatIsStoppedWhileItAsks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := openIdle(t, nil)
		listens(t, n.net, "n2", &wire.NodeState{Empty: true})
		n.net.Isolate("n1", "n2")
		n.running.Go(n.awaitBootstrap)
		time.Sleep(100*time.Millisecond + probe.Timeout/2) // during the first probe
		n.cancel()
		n.running.Wait()
		if cause := n.halted.Load(); cause != nil {
			t.Error(*cause)
		}
	})
}

// TestNodeOfALostClusterStops verifies that a node stops when it meets a node of the cluster that was recovered from its
// own, and of no other cluster.
func TestNodeOfALostClusterStops(t *testing.T) {
	once := wire.RecoveredID("prod", "1")
	for _, c := range []struct {
		mine, theirs string
		stops        bool
	}{{"prod", once, true}, {once, wire.RecoveredID(once, "2"), true}, {once, "prod", false}, {once, wire.RecoveredID("prod", "2"), false}, {"prod", "test", false}, {"prod", "prod", false}} {
		bubble.Test(t, func(t *testing.T) {
			n := openIdle(t, nil)
			if _, err := n.directory.Store(1, &wire.Membership{ClusterId: c.mine}); err != nil {
				t.Fatal(err)
			}
			listenAs(t, n.net, "n2", &scripted{id: "n2", cluster: c.theirs, state: &wire.NodeState{Member: someMember("n2")}})
			n.prober.One(t.Context(), Peer{ID: "n2", Addr: "n2:7401"})
			cause := n.halted.Load()
			if (cause != nil) != c.stops || c.stops && (!errors.Is(*cause, status.ErrOtherCluster) || !strings.Contains((*cause).Error(), c.theirs)) {
				t.Errorf("node of %q, of which another one is %q: %v", c.mine, c.theirs, cause)
			}
		})
	}
}
