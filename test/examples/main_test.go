package examples_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/server"
)

// endpoint is the client port of the node, "10.0.0.1:7400" in a program. A cluster has
// three of them or more; naming one is enough to find the others.
var endpoint string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "quorumlock-examples-")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(dir)
	cfg := server.Defaults()
	cfg.ID, cfg.DataDir = "n1", dir
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

// process is what stands for one program in an example: a client with a session. It
// ends with close.
type process struct {
	*client.Session
	client *client.Client
}

func start(ctx context.Context, name string) (*process, error) {
	c, err := client.New(client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		return nil, err
	}
	session, err := c.NewSession(ctx, client.SessionOptions{Name: name})
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return &process{session, c}, nil
}

// startTwo starts two programs that compete.
func startTwo(ctx context.Context) (first, second *process, err error) {
	if first, err = start(ctx, "first"); err != nil {
		return nil, nil, err
	}
	if second, err = start(ctx, "second"); err != nil {
		first.close(ctx)
		return nil, nil, err
	}
	return first, second, nil
}

// close releases everything that the program holds.
func (p *process) close(ctx context.Context) {
	if err := p.Session.Close(ctx); err != nil {
		fmt.Println(err)
	}
	_ = p.client.Close()
}
