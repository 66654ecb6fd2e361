package examples_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/single"
)

// endpoint is the client port of the node; in a program it is, for example, "10.0.0.1:7400". A cluster has
// three or more of them. One is enough to find the others.
var endpoint string

func TestMain(m *testing.M) {
	os.Exit(single.Main(m, 0, func(addr string) { endpoint = addr }))
}

// process stands for one program in an example: a client with a session. It ends with close.
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
