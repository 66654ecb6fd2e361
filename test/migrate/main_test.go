package migrate_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/single"
)

// endpoint is the client port of the node that the pages talk to.
var endpoint string

// ttl is that of the sessions here: short, since some of them die for show.
const ttl = time.Second

func TestMain(m *testing.M) {
	os.Exit(single.Main(m, ttl, func(addr string) { endpoint = addr }))
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
