package system

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// startTimeout is how long the servers of a system may take until they serve.
const startTimeout = 60 * time.Second

// Cluster is a system's servers while they run.
type Cluster struct {
	// Dial makes a connection of its own.
	Dial    func() (Client, error)
	servers []*process
}

// Servers is how many there are.
func (c *Cluster) Servers() int { return len(c.servers) }

// CPU is the time that all servers have used together since they were started.
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

// Memory is the resident memory of all servers together, in bytes.
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

// While is a context that ends when ctx does, and when a server ends by itself: then its cause
// says so.
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

// launch starts servers and waits until ready finds nothing missing. dial makes connections
// to them.
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

// await asks until all is ready and a lock can be had.
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

// probe takes a lock once.
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
