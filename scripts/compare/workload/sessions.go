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

// connections is the number of shared connections for sessions that do no work.
const connections = 16

// width is the number of sessions that are opened or closed concurrently.
const width = 256

// closeTimeout bounds the closing of all sessions.
const closeTimeout = time.Minute

// ttl is the TTL of sessions, unless the workload is about TTLs.
const ttl = 15 * time.Second

// sessionSet is a set of sessions and their connections.
type sessionSet struct {
	sessions []system.Session
	mu       sync.Mutex // guards the fields below
	clients  []system.Client
}

// open opens sessions that share connections. If a connection supports only one session, it opens as many
// connections as sessions. The sessions end with ctx, at the latest.
func (b *Bed) open(ctx context.Context, sessions, connections int, ttl time.Duration) (*sessionSet, error) {
	c := &sessionSet{sessions: make([]system.Session, sessions)}
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

func (c *sessionSet) connect(to *system.Cluster) (system.Client, error) {
	client, err := to.Dial()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = append(c.clients, client)
	return client, nil
}

// close closes sessions and connections. It ignores errors: the servers are about to be ended, or the next
// workload detects the problem.
func (c *sessionSet) close() {
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

// parallel calls do for 0 to n-1, width at a time, until one fails or ctx ends.
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
