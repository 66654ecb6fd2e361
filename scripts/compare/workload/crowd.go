package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/scripts/compare/system"
)

// connections is how many are shared where nobody works on them.
const connections = 16

// width is how many sessions are opened or closed at a time.
const width = 256

// closeTimeout is how long the end of all sessions may take.
const closeTimeout = time.Minute

// ttl is that of sessions, except where it is the point.
const ttl = 15 * time.Second

// crowd are sessions and their connections.
type crowd struct {
	sessions []system.Session
	mu       sync.Mutex // guards what follows
	clients  []system.Client
}

// open opens sessions that share connections. Where a connection is a session there are as
// many of the one as of the other. The sessions live no longer than ctx.
func (b *Bed) open(ctx context.Context, sessions, connections int, ttl time.Duration) (*crowd, error) {
	c := &crowd{sessions: make([]system.Session, sessions)}
	for range min(sessions, connections) {
		if _, err := c.connect(b.Cluster); err != nil {
			c.close()
			return nil, err
		}
	}
	first := c.clients
	err := parallel(ctx, sessions, width, func(i int) error {
		s, err := first[i%len(first)].Open(ctx, ttl)
		if errors.Is(err, system.ErrOneSession) {
			var client system.Client
			if client, err = c.connect(b.Cluster); err == nil {
				s, err = client.Open(ctx, ttl)
			}
		}
		if err != nil {
			return fmt.Errorf("open session %d of %d: %w", i+1, sessions, err)
		}
		c.sessions[i] = s
		return nil
	})
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *crowd) connect(to *system.Cluster) (system.Client, error) {
	client, err := to.Dial()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = append(c.clients, client)
	return client, nil
}

// close ends sessions and connections. Servers that do not mind are not asked twice: they
// are about to be ended themselves, or the next workload shows it.
func (c *crowd) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = parallel(ctx, len(c.sessions), width, func(i int) error {
		if s := c.sessions[i]; s != nil {
			_ = s.Close(ctx)
		}
		return nil
	})
	_ = parallel(ctx, len(c.clients), width, func(i int) error {
		_ = c.clients[i].Close()
		return nil
	})
}

// parallel calls do for 0 to n-1, some at a time, until one fails or ctx ends.
func parallel(ctx context.Context, n, width int, do func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, width) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
