package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestAllDisksPutBack copies the directories of all nodes, puts the copies back under living clients, and restarts the
// nodes. One session has acquired a lock since then, one has released its lock, and one waits; a command runs under
// qlock run. All are told, and nothing of theirs is left.
func TestAllDisksPutBack(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			beside(t)
			putBackUnderClients(t, process.Start(t, programs, nodes))
		})
	}
}

func putBackUnderClients(t *testing.T, c *process.Cluster) {
	c.AwaitAll()
	cl := c.NewClient()
	holds, releases, waits := longSession(t, cl), longSession(t, cl), longSession(t, cl)
	released, err := releases.Lock(t.Context(), "lost/released")
	if err != nil {
		t.Fatal(err)
	}
	copies := map[string]string{}
	c.Kill9(c.IDs()...)
	for _, id := range c.IDs() {
		copies[id] = c.Copy(id, process.Ended)
	}
	c.Restart(c.IDs()...)
	c.AwaitAll()

	hold, err := holds.Lock(t.Context(), "lost/acquired")
	if err == nil {
		err = released.Unlock(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		_, err := waits.Lock(context.Background(), "lost/acquired")
		waited <- err
	}()
	run, said := startRun(t, c, cl, "lost/run")

	c.Kill9(c.IDs()...)
	for id, dir := range copies {
		c.PutBack(id, dir)
	}
	c.Restart(c.IDs()...)
	c.Leader()
	for what, s := range map[string]*client.Session{"holds": holds, "releases": releases, "waits": waits} {
		select {
		case <-s.Lost():
		case <-time.After(process.WaitTimeout):
			t.Fatalf("the session that %s goes on", what)
		}
		if err := s.Err(); !errors.Is(err, client.ErrRolledBack) {
			t.Errorf("the session that %s ended with %v", what, err)
		}
	}
	if err := context.Cause(hold.Context()); !errors.Is(err, client.ErrRolledBack) {
		t.Errorf("the hold ended with %v", err)
	}
	if err := <-waited; !errors.Is(err, client.ErrRolledBack) {
		t.Errorf("the wait ended with %v", err)
	}
	_ = run.Wait()
	if code := run.ProcessState.ExitCode(); code != 76 || !strings.Contains(said.String(), "rolled back") {
		t.Errorf("qlock run ended with %d: %s", code, said.String())
	}
	next := longSession(t, cl)
	for _, name := range []string{"lost/acquired", "lost/released", "lost/run"} {
		if _, err := next.Lock(t.Context(), name, client.WithWait(10*time.Second)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// longSession opens a session that does not expire during a test.
func longSession(t *testing.T, cl *client.Client) *client.Session {
	t.Helper()
	s, err := cl.NewSession(t.Context(), client.SessionOptions{TTL: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// startRun starts a long command under qlock run, and waits until it has the lock. It also returns the messages.
func startRun(t *testing.T, c *process.Cluster, cl *client.Client, name string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	run := exec.CommandContext(t.Context(), filepath.Join(string(programs), "qlock"), "--endpoints", strings.Join(c.Endpoints(), ","),
		"run", name, "--ttl", "10m", "--", "sleep", "1000")
	said := &bytes.Buffer{}
	run.Stderr = said
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	c.Await("qlock run holds its lock", process.WaitTimeout, func(ctx context.Context) error {
		l, err := wirecall.Of(cl).GetLock(ctx, &wire.GetLockRequest{Name: name, AllowFree: true})
		if err == nil && len(l.GetHolders()) == 0 {
			err = errors.New("it waits")
		}
		return err
	})
	return run, said
}
