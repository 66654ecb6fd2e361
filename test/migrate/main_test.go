package migrate_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/single"
)

// endpoint is the client port of the node that the pages use.
var endpoint string

// ttl is the TTL of the sessions here. It is short, since some examples wait for an expiry.
const ttl = time.Second

func TestMain(m *testing.M) {
	os.Exit(single.Main(m, ttl, func(addr string) { endpoint = addr }))
}

// program stands for one program on one machine.
type program struct {
	client  *client.Client
	session *client.Session
}

// start starts a program with a session. An error panics, which fails the example.
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

// crash ends a program without notifying the cluster.
func (p *program) crash() { _ = p.client.Close() }

// stop ends it gracefully.
func (p *program) stop(ctx context.Context) {
	_ = p.session.Close(ctx)
	_ = p.client.Close()
}
