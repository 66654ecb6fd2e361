package httpapi_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/test/manual"
)

// open runs a node until the test ends.
func open(t *testing.T, cfg server.Config) *server.Node {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	node, err := server.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
		defer stop()
		if err := node.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return node
}

func alone(t *testing.T) server.Config {
	cfg := server.Defaults()
	cfg.ID, cfg.DataDir = "n1", t.TempDir()
	cfg.Listen = server.Addresses{Peer: "127.0.0.1:0", Client: "127.0.0.1:0", HTTP: "127.0.0.1:0"}
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = 500*time.Millisecond, 500*time.Millisecond, 500*time.Millisecond
	return cfg
}

// ready waits until the node reports that it is ready.
func ready(t *testing.T, addr string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for {
		if resp, err := client.Get("http://" + addr + "/readyz"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("not ready in time")
		}
	}
}

// TestExamplesOfTheManual runs the manual's examples. Only the address differs.
func TestExamplesOfTheManual(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl here")
	}
	node := open(t, alone(t))
	ready(t, node.Addrs().HTTP)
	manual.Run(t, "../../docs/HTTP.md", manual.Shell{
		Replace: strings.NewReplacer("127.0.0.1:7402", node.Addrs().HTTP), Env: os.Environ(),
	})
}
