package single

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Main runs the tests with a node and returns the exit code. The node accepts session TTLs from minTTL on; 0
// means the usual 5 s. ready is called with the address of its client port.
func Main(m *testing.M, minTTL time.Duration, ready func(endpoint string)) int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "quorumlock-node-")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(dir)
	cfg := server.Defaults()
	cfg.ID, cfg.DataDir = "n1", dir
	cfg.Listen = server.Addresses{Peer: "127.0.0.1:0", Client: "127.0.0.1:0"}
	cfg.Settings = &wire.Settings{MinTtlMs: uint32(minTTL.Milliseconds())}
	node, err := server.Open(ctx, cfg)
	if err != nil {
		return failed(err)
	}
	ready(node.Addrs().Client)
	code := m.Run()
	if err := node.Close(ctx); err != nil {
		return failed(err)
	}
	if err := goleak.Find(); err != nil {
		return failed(err)
	}
	return code
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}
