package client

import (
	"context"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/transport"
)

const (
	// helloGrace is how long the functions of the program that a hello calls may go on after the end of their ctx.
	helloGrace = 100 * time.Millisecond
	// mostOverdue bounds the hellos to one address that have not returned in that time.
	mostOverdue = 4
)

// hello is greet in a goroutine of its own. Config.Dial, the functions of Config.TLS and the file system may block for
// longer than ctx allows; the search for the leader then goes on at other nodes.
func (n *connector) hello(ctx context.Context, addr, tunnelTo string) (*greeting, error) {
	n.client.mu.Lock()
	overdue := n.overdue[addr]
	n.client.mu.Unlock()
	if overdue >= mostOverdue {
		return nil, fmt.Errorf("dial %s: %d earlier calls of Config.Dial or of a function of Config.TLS have not returned", addr, overdue)
	}
	type outcome struct {
		greeting *greeting
		err      error
	}
	made := make(chan outcome, 1)
	go func() {
		g, err := n.greet(ctx, addr, tunnelTo)
		made <- outcome{g, err}
	}()
	select {
	case o := <-made:
		return o.greeting, o.err
	case <-ctx.Done():
	}
	grace := time.NewTimer(helloGrace)
	defer grace.Stop()
	select {
	case o := <-made:
		return o.greeting, o.err
	case <-grace.C:
	case <-n.client.ctx.Done():
	}
	countOverdue(n, addr, 1)
	go func() {
		if o := <-made; o.err == nil {
			transport.Cut(o.greeting.nc)
		}
		countOverdue(n, addr, -1)
	}()
	return nil, fmt.Errorf("dial %s: %w", addr, ctx.Err())
}

func countOverdue(n *connector, addr string, by int) {
	n.client.mu.Lock()
	defer n.client.mu.Unlock()
	if n.overdue[addr] += by; n.overdue[addr] == 0 {
		delete(n.overdue, addr)
	}
}
