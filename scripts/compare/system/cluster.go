package system

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// startTimeout bounds the start of a system's servers until they serve.
const startTimeout = 60 * time.Second

// Cluster is the set of a system's running servers.
type Cluster struct {
	// Dial makes a new connection.
	Dial func() (Client, error)
	// Check returns an error if what was measured so far is not what the system's title says. It may be nil.
	Check func(context.Context) error
	// Endpoints are the addresses of Quorumlock's nodes for clients in other processes.
	Endpoints []string
	servers   []*process
}

// Servers returns the number of servers.
func (c *Cluster) Servers() int { return len(c.servers) }

// CPU returns the total CPU time of all servers since their start.
func (c *Cluster) CPU() (time.Duration, error) {
	var all time.Duration
	for _, p := range c.servers {
		used, err := cpu(p.cmd.Process.Pid)
		if err != nil {
			return 0, errors.Join(err, p.ended())
		}
		all += used
	}
	return all, nil
}

// Memory returns the total resident memory of all servers, in bytes.
func (c *Cluster) Memory() (int64, error) {
	var all int64
	for _, p := range c.servers {
		resident, err := memory(p.cmd.Process.Pid)
		if err != nil {
			return 0, errors.Join(err, p.ended())
		}
		all += resident
	}
	return all, nil
}

// While returns a context that ends when ctx does, or when a server ends on its own: then that is its cause.
func (c *Cluster) While(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	for _, p := range c.servers {
		go func() {
			select {
			case <-p.done:
				cancel(p.ended())
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// Stop ends all servers.
func (c *Cluster) Stop() {
	for _, p := range c.servers {
		p.kill()
	}
}

// launch starts servers and waits until ready succeeds. dial makes connections to them.
func launch(ctx context.Context, dir string, commands []*exec.Cmd, dial func() (Client, error), ready func(context.Context) error) (*Cluster, error) {
	c := &Cluster{Dial: dial}
	for i, cmd := range commands {
		name := fmt.Sprintf("%s %d", filepath.Base(cmd.Path), i+1)
		p, err := start(name, filepath.Join(dir, fmt.Sprintf("%d.log", i+1)), cmd)
		if err != nil {
			c.Stop()
			return nil, err
		}
		c.servers = append(c.servers, p)
	}
	if err := c.await(ctx, ready); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// await waits until ready succeeds and a lock can be acquired.
func (c *Cluster) await(ctx context.Context, ready func(context.Context) error) error {
	ctx, release := c.While(ctx)
	defer release()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := ready(attempt)
		if err == nil {
			err = c.probe(attempt)
		}
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the servers do not serve: %w: %w\n%s", context.Cause(ctx), err, tail(c.servers[0].log, 10))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// probe acquires a lock once.
func (c *Cluster) probe(ctx context.Context) error {
	client, err := c.Dial()
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := client.Open(ctx, 10*time.Second)
	if err != nil {
		return err
	}
	hold, err := session.Lock(ctx, "probe")
	if err != nil {
		return err
	}
	return errors.Join(hold.Unlock(ctx), session.Close(ctx))
}
