package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// nodeStatus returns a node of the cluster's status.
func nodeStatus(s *wire.StatusResponse, id string) *wire.NodeStatus {
	for _, n := range s.GetNodes() {
		if n.GetId() == id {
			return n
		}
	}
	return &wire.NodeStatus{}
}

// fails runs a command that must fail with that exit code and these texts.
func fails(t *testing.T, c *process.Cluster, code int, texts []string, words ...string) {
	t.Helper()
	args := append([]string{"--endpoints", strings.Join(c.Endpoints(), ",")}, words...)
	_, err := programs.Qlock(t.Context(), args...)
	for _, text := range append(texts, fmt.Sprint("exit code ", code)) {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("qlock %s: %q is not in %v", strings.Join(words, " "), text, err)
		}
	}
}

// TestDrainUnderLoad drains the leader, stops it, starts it again and gives leadership back, as an upgrade of a node does.
func TestDrainUnderLoad(t *testing.T) {
	c := process.Start(t, programs, 3)
	l := startLoad(t, c)
	id := c.Leader()
	others := c.Others(id)

	began := l.Log.Now()
	if out := qlock(t, c, "cluster", "drain", id, "--reason", "kernel update"); out != id+" is drained: it is safe to stop it\n" {
		t.Errorf("drain said %q", out)
	}
	if leader := c.Leader(); leader == id {
		t.Errorf("%s leads although it is drained", leader)
	}
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.outage(began, "drain of the leader", 4*time.Second)

	began = l.Log.Now()
	c.Terminate(id)
	l.AwaitGrants(l.Log.Now(), afterFault)
	c.Restart(id)
	status := c.AwaitAll()
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.outage(began, "stop and start of a drained node", 4*time.Second)
	if n := nodeStatus(status, id); !n.GetDrained() || n.GetLeader() {
		t.Errorf("after its restart: %v", n)
	}
	c.AwaitMetrics("it says so", []string{id}, map[string]float64{"quorumlock_drained": 1})

	fails(t, c, 70, []string{id, "is drained", "undrain"}, "cluster", "transfer", id, "--reason", "test")
	qlock(t, c, "cluster", "drain", id, "--reason", "once more")
	qlock(t, c, "cluster", "drain", others[0], "--reason", "test")
	fails(t, c, 70, []string{others[1], "no voter is left that may lead"}, "cluster", "drain", others[1], "--reason", "test")
	for _, drained := range []string{id, others[0], others[0]} {
		if out := qlock(t, c, "cluster", "undrain", drained, "--reason", "done"); out != drained+" may lead again\n" {
			t.Errorf("undrain said %q", out)
		}
	}
	began = l.Log.Now()
	qlock(t, c, "cluster", "transfer", id, "--reason", "test")
	if leader := c.Leader(); leader != id {
		t.Errorf("%s leads after a transfer to %s", leader, id)
	}
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.outage(began, "transfer back", 4*time.Second)
	l.finish()
}

// TestDrainSaysWhatIsMissing drains a node without which the cluster would lose its majority.
func TestDrainSaysWhatIsMissing(t *testing.T) {
	c := process.Start(t, programs, 3)
	leader := c.Leader()
	others := c.Others(leader)
	c.Kill9(others[1])
	drain := []string{"cluster", "drain", others[0], "--reason", "test"}
	fails(t, c, 79, []string{others[0] + " is drained, and it is not safe to stop it", "1 of 3 voters", others[1] + " does not answer"}, append(drain, "--timeout", "3s")...)
	if out := qlock(t, c, append(drain, "--no-wait")...); out != others[0]+" is drained\n" {
		t.Errorf("without waiting: %q", out)
	}
	c.Restart(others[1])
	if out := qlock(t, c, drain...); !strings.Contains(out, "it is safe to stop it") {
		t.Errorf("with all nodes: %q", out)
	}
}

// TestRemovedNodeSaysSoAndWaits removes a node, starts it again with its directory, also while too few others run, and
// adds it with an empty one.
func TestRemovedNodeSaysSoAndWaits(t *testing.T) {
	c := process.Start(t, programs, 3)
	id := c.Others(c.Leader())[0]
	peer := nodeStatus(c.AwaitAll(), id).GetPeerAddr()
	qlock(t, c, "cluster", "remove", id, "--reason", "test")
	saysSo(t, c, id)
	c.Terminate(id)
	c.Restart(id)
	saysSo(t, c, id)
	fails(t, c, 70, []string{id, "is not empty"}, "cluster", "add", id, peer, "--reason", "too early")

	// One of two voters is no majority, whatever a removed node says.
	rest := c.Others(id)
	c.Terminate(append(rest, id)...)
	c.Restart(rest[0], id)
	c.Never("a leader with the removed node's vote", 4*time.Second, func(ctx context.Context) error {
		for _, n := range []string{rest[0], id} {
			if m, err := c.Metrics(ctx, n); err == nil && m["quorumlock_is_leader"] == 1 {
				return nil
			}
		}
		return errors.New("none")
	})
	c.Restart(rest[1])
	if s := c.AwaitAll(); len(s.GetNodes()) != 2 {
		t.Errorf("%d members", len(s.GetNodes()))
	}
	saysSo(t, c, id)

	c.Terminate(id)
	c.Wipe(id)
	c.Restart(id)
	qlock(t, c, "cluster", "add", id, peer, "--reason", "back")
	if s := c.AwaitAll(); len(s.GetNodes()) != 3 {
		t.Errorf("%d members", len(s.GetNodes()))
	}
}

// saysSo waits until a running node says in its log, to probes of its readiness and in its status that it was removed.
func saysSo(t *testing.T, c *process.Cluster, id string) {
	t.Helper()
	c.AwaitLog(id, "this node was removed from its cluster and no longer takes part")
	c.Await("it is not ready", process.WaitTimeout, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.HTTP(id)+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		var said struct{ Reason string }
		if err := json.NewDecoder(resp.Body).Decode(&said); err != nil || resp.StatusCode != http.StatusServiceUnavailable ||
			!strings.Contains(said.Reason, "was removed from cluster") || !strings.Contains(said.Reason, "qlock cluster add "+id) {
			return fmt.Errorf("%d %q, %w", resp.StatusCode, said.Reason, err)
		}
		return nil
	})
	asked := time.Now()
	out, err := programs.Qlock(t.Context(), "--endpoints", c.Endpoint(id), "status", "--timeout", "1m")
	if took := time.Since(asked); took > 2*time.Second+busy {
		t.Errorf("its status took %v", took)
	}
	if err == nil || !strings.Contains(err.Error(), "exit code 69") || !strings.Contains(err.Error(), "was removed from the cluster") || !strings.Contains(out, "REMOVED: node "+id) {
		t.Errorf("its status: %v\n%s", err, out)
	}
	if !c.Running(id) {
		t.Errorf("%s has ended", id)
	}
}
