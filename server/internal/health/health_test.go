package health_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/server/internal/health"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a node in the state that a test sets.
type node struct {
	leader  string
	serving bool
	behind  bool
	removed string
	status  *wire.StatusResponse
	err     error
}

func (n *node) Leader() *wire.LeaderHint { return &wire.LeaderHint{Id: n.leader} }
func (n *node) Serving() bool            { return n.serving }
func (n *node) CaughtUp() bool           { return !n.behind }
func (n *node) Removed() string          { return n.removed }
func (n *node) Status(context.Context, *wire.StatusRequest) (*wire.StatusResponse, error) {
	return n.status, n.err
}

func TestReady(t *testing.T) {
	for _, c := range []struct {
		name    string
		node    node
		closing bool
		reason  string
	}{
		{"leader", node{leader: "n1", serving: true}, false, ""},
		{"stopping", node{leader: "n1", serving: true}, true, "stopping"},
		{"no leader", node{}, false, "no leader is known"},
		{"removed", node{removed: "removed from cluster c"}, false, "removed from cluster c"},
		{"removed, as it believed, and follows a leader", node{leader: "n2", removed: "removed", status: &wire.StatusResponse{}}, false, ""},
		{"elected", node{leader: "n1"}, false, "not ready to serve"},
		{"follower", node{leader: "n2", status: &wire.StatusResponse{CommitIndex: 2_000, AppliedIndex: 1_500}}, false, ""},
		{"follower that has just started", node{leader: "n2", behind: true, status: &wire.StatusResponse{CommitIndex: 500, AppliedIndex: 500}}, false, "caught up"},
		{"follower at the limit", node{leader: "n2", status: &wire.StatusResponse{CommitIndex: 2_000, AppliedIndex: 1_000}}, false, ""},
		{"follower that lags", node{leader: "n2", status: &wire.StatusResponse{CommitIndex: 2_000, AppliedIndex: 500}}, false, "1500 log entries"},
		{"follower that cannot tell", node{leader: "n2", err: errors.New("disk")}, false, "disk"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &health.Probe{NodeID: "n1", Replica: &c.node, Closing: func() bool { return c.closing }}
			got := p.Ready(t.Context())
			if got.Ready != (c.reason == "") || !strings.Contains(got.Reason, c.reason) || got.NodeID != "n1" || got.LeaderID != c.node.leader {
				t.Errorf("got %+v, want the reason %q", got, c.reason)
			}
		})
	}
}

func serve(t *testing.T, n *node) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := health.Serve(l, &health.Probe{NodeID: "n1", Replica: n}, func(err error) { t.Error(err) })
	t.Cleanup(s.Close)
	return l.Addr().String()
}

// get sends a request on a new connection.
func get(t *testing.T, url string) (status int, body map[string]any) {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_ = json.NewDecoder(resp.Body).Decode(&body)
	return resp.StatusCode, body
}

func TestListenerAnswersHealthAndNothingElse(t *testing.T) {
	n := &node{leader: "n1", serving: true}
	at := "http://" + serve(t, n)
	if status, body := get(t, at+"/healthz"); status != 200 || body["nodeId"] != "n1" {
		t.Errorf("/healthz: %d %v", status, body)
	}
	if status, body := get(t, at+"/readyz"); status != 200 || body["ready"] != true {
		t.Errorf("/readyz: %d %v", status, body)
	}
	if status, _ := get(t, at+"/metrics"); status != 404 {
		t.Errorf("/metrics: %d", status)
	}
	n.serving = false
	if status, body := get(t, at+"/readyz"); status != 503 || body["reason"] == "" {
		t.Errorf("/readyz: %d %v", status, body)
	}
}

// TestListenerAnswersDuringAFlood verifies that idle connections neither take all places nor stay open.
func TestListenerAnswersDuringAFlood(t *testing.T) {
	at := serve(t, &node{leader: "n1", serving: true})
	for range 200 {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	started := time.Now()
	if status, _ := get(t, "http://"+at+"/healthz"); status != 200 {
		t.Errorf("/healthz: %d", status)
	}
	if took := time.Since(started); took > time.Second {
		t.Errorf("it took %v", took)
	}
}
