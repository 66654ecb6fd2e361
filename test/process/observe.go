package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// pollEvery is the interval between two checks of a condition.
	pollEvery = 10 * time.Millisecond
	// lookTimeout bounds one check.
	lookTimeout = 4 * time.Second
)

// Await checks a condition until it holds, that is, until it returns nil, and returns how long that took.
// After the timeout it fails the test with the last error.
func (c *Cluster) Await(what string, within time.Duration, holds func(context.Context) error) time.Duration {
	c.t.Helper()
	took, err := poll(within, holds)
	if err != nil {
		c.t.Fatalf("%s: not within %v: %v", what, within, err)
	}
	return took
}

// Never checks a condition for a given time, and fails the test if it ever holds. It is for what must not
// happen, for which time is the only thing to wait for.
func (c *Cluster) Never(what string, during time.Duration, holds func(context.Context) error) {
	c.t.Helper()
	if took, err := poll(during, holds); err == nil {
		c.t.Fatalf("%s: after %v", what, took)
	}
}

// Pass lets time pass, for what must last a while.
func (c *Cluster) Pass(d time.Duration) { <-time.After(d) }

func poll(within time.Duration, holds func(context.Context) error) (took time.Duration, last error) {
	started := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	last = errors.New("it was not looked at")
	for {
		look, done := context.WithTimeout(ctx, lookTimeout)
		err := holds(look)
		done()
		if err == nil {
			return time.Since(started), nil
		}
		if ctx.Err() == nil {
			last = err // the error of a check that was cut off is less informative
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, last
		}
	}
}

// Leader returns the node that leads, once there is one that serves.
func (c *Cluster) Leader() (id string) {
	c.t.Helper()
	return c.AwaitStatus("a leader", func(s *wire.StatusResponse) error {
		if s.GetLeaderId() == "" {
			return errors.New("none")
		}
		return nil
	}).GetLeaderId()
}

// AwaitLeader waits until a node other than notThis leads and serves, and returns it.
func (c *Cluster) AwaitLeader(notThis string) (id string) {
	c.t.Helper()
	return c.AwaitStatus("another leader", func(s *wire.StatusResponse) error {
		if id := s.GetLeaderId(); id == "" || id == notThis {
			return fmt.Errorf("the leader is %q", id)
		}
		return nil
	}).GetLeaderId()
}

// AwaitAll waits until there is a leader that reaches every member, and all of them are voters.
func (c *Cluster) AwaitAll() *wire.StatusResponse {
	c.t.Helper()
	return c.AwaitStatus("all nodes up", func(s *wire.StatusResponse) error {
		for _, n := range s.GetNodes() {
			if !n.GetReachable() || !n.GetVoter() {
				return fmt.Errorf("%s: reachable %v, voter %v", n.GetId(), n.GetReachable(), n.GetVoter())
			}
		}
		if s.GetLeaderId() == "" {
			return errors.New("no leader")
		}
		return nil
	})
}

// AwaitCaughtUp waits until all nodes have applied what the leader had applied at the first request. A
// running node may not know the leader yet.
func (c *Cluster) AwaitCaughtUp() {
	c.t.Helper()
	had := c.AwaitAll().GetAppliedIndex()
	c.AwaitStatus("all nodes caught up", func(s *wire.StatusResponse) error {
		for _, n := range s.GetNodes() {
			if n.GetAppliedIndex() < had {
				return fmt.Errorf("%s: at entry %d of %d", n.GetId(), n.GetAppliedIndex(), had)
			}
		}
		return nil
	})
}

// AwaitLeaderIndex waits until the leader has a commit index, and returns it.
func (c *Cluster) AwaitLeaderIndex() (committed float64) {
	c.t.Helper()
	leader := c.Leader()
	c.Await("the commit index of "+leader, WaitTimeout, func(ctx context.Context) error {
		metrics, err := c.Metrics(ctx, leader)
		if committed = metrics["quorumlock_commit_index"]; err == nil && committed == 0 {
			err = errors.New("none")
		}
		return err
	})
	return committed
}

// AwaitStatus waits until the cluster's status, read linearizably, is as wanted.
func (c *Cluster) AwaitStatus(what string, wanted func(*wire.StatusResponse) error) (status *wire.StatusResponse) {
	c.t.Helper()
	c.Await(what, WaitTimeout, func(ctx context.Context) (err error) {
		if status, err = wirecall.Of(c.client).Status(ctx, &wire.StatusRequest{}); err != nil {
			return err
		}
		return wanted(status)
	})
	return status
}

// Lock returns what the cluster knows about one lock, read linearizably.
func (c *Cluster) Lock(name string) (lock *wire.GetLockResponse) {
	c.t.Helper()
	c.Await("a look at lock "+name, WaitTimeout, func(ctx context.Context) (err error) {
		lock, err = wirecall.Of(c.client).GetLock(ctx, &wire.GetLockRequest{Name: name})
		return err
	})
	return lock
}

// Log returns everything that a node has logged so far, in all of its processes.
func (c *Cluster) Log(id string) string {
	text, err := os.ReadFile(c.node(id).log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Metrics reads a node's metrics. The keys include the labels.
func (c *Cluster) Metrics(ctx context.Context, id string) (map[string]float64, error) {
	resp, err := c.get(ctx, c.HTTP(id)+"/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	values := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		key, text, ok := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); ok && err == nil && key != "#" {
			values[key] = value
		}
	}
	return values, lines.Err()
}

// AwaitMetrics waits until the metrics of all given nodes are as wanted.
func (c *Cluster) AwaitMetrics(what string, ids []string, wanted map[string]float64) {
	c.t.Helper()
	c.Await(what, WaitTimeout, func(ctx context.Context) error {
		for _, id := range ids {
			got, err := c.Metrics(ctx, id)
			if err != nil {
				return err
			}
			for key, want := range wanted {
				if value, ok := got[key]; !ok || value != want {
					return fmt.Errorf("%s: %s is %v (there: %v), want %v", id, key, value, ok, want)
				}
			}
		}
		return nil
	})
}

// AwaitLog waits until a node has logged a text.
func (c *Cluster) AwaitLog(id, text string) {
	c.t.Helper()
	c.Await(fmt.Sprintf("%q in the log of %s", text, id), WaitTimeout, func(context.Context) error {
		if !strings.Contains(c.Log(id), text) {
			return errors.New("not there")
		}
		return nil
	})
}
