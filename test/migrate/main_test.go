package migrate_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// endpoint is the client port of the node that the pages talk to.
var endpoint string

// ttl is that of the sessions here: short, since some of them die for show.
const ttl = time.Second

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "quorumlock-migrate-")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(dir)
	cfg := server.Defaults()
	cfg.ID, cfg.DataDir = "n1", dir
	cfg.Settings = &wire.Settings{MinTtlMs: uint32(ttl.Milliseconds())}
	cfg.Listen = server.Addresses{Peer: "127.0.0.1:0", Client: "127.0.0.1:0"}
	node, err := server.Open(ctx, cfg)
	if err != nil {
		return failed(err)
	}
	endpoint = node.Addrs().Client
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

// program stands for one program on one machine.
type program struct {
	client  *client.Client
	session *client.Session
}

// start runs a program that takes part. An error ends the example, which then fails
// for want of its output.
func start(ctx context.Context, name string) *program {
	c, err := client.New(client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		panic(err)
	}
	session, err := c.NewSession(ctx, client.SessionOptions{TTL: ttl, Name: name})
	if err != nil {
		panic(err)
	}
	return &program{c, session}
}

// crash ends a program without a word to the cluster.
func (p *program) crash() { _ = p.client.Close() }

// stop ends it in order.
func (p *program) stop(ctx context.Context) {
	_ = p.session.Close(ctx)
	_ = p.client.Close()
}
