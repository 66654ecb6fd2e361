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
	"github.com/quorumlock/quorumlock/test/process"
)

// TestAllDisksPutBack copies the directories of all nodes, puts the copies back under living clients, and restarts the
// nodes. One session has acquired a lock since then, one has released its lock, and one waits; a command runs under
// qlock run. All are told, and nothing of theirs is left.
func TestAllDisksPutBack(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			beside(t)
			c := process.Start(t, programs, nodes)
			c.AwaitAll()
			cl := c.NewClient()
			var sessions []*client.Session
			for range 3 {
				s, err := cl.NewSession(t.Context(), client.SessionOptions{TTL: 10 * time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				sessions = append(sessions, s)
			}
			released, err := sessions[1].Lock(t.Context(), "lost/released")
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

			hold, err := sessions[0].Lock(t.Context(), "lost/acquired")
			if err == nil {
				err = released.Unlock(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			waited := make(chan error, 1)
			go func() {
				_, err := sessions[2].Lock(context.Background(), "lost/acquired")
				waited <- err
			}()
			run := exec.CommandContext(t.Context(), filepath.Join(string(programs), "qlock"), "--endpoints", strings.Join(c.Endpoints(), ","),
				"run", "lost/run", "--ttl", "10m", "--", "sleep", "1000")
			var said bytes.Buffer
			run.Stderr = &said
			if err := run.Start(); err != nil {
				t.Fatal(err)
			}
			c.Await("qlock run holds its lock", process.WaitTimeout, func(ctx context.Context) error {
				l, err := cl.GetLock(ctx, "lost/run")
				if err == nil && len(l.Holders) == 0 {
					err = errors.New("it waits")
				}
				return err
			})

			c.Kill9(c.IDs()...)
			for id, dir := range copies {
				c.PutBack(id, dir)
			}
			c.Restart(c.IDs()...)
			c.Leader()
			for i, s := range sessions {
				select {
				case <-s.Lost():
				case <-time.After(process.WaitTimeout):
					t.Fatalf("session %d goes on", i)
				}
				if err := s.Err(); !errors.Is(err, client.ErrRolledBack) {
					t.Errorf("session %d ended with %v", i, err)
				}
			}
			if err := context.Cause(hold.Context()); !errors.Is(err, client.ErrRolledBack) {
				t.Errorf("the hold ended with %v", err)
			}
			select {
			case err := <-waited:
				if !errors.Is(err, client.ErrRolledBack) {
					t.Errorf("the wait ended with %v", err)
				}
			case <-time.After(process.WaitTimeout):
				t.Error("a call waits for ever")
			}
			_ = run.Wait()
			if code := run.ProcessState.ExitCode(); code != 76 || !strings.Contains(said.String(), "rolled back") {
				t.Errorf("qlock run ended with %d: %s", code, said.String())
			}
			next, err := cl.NewSession(t.Context(), client.SessionOptions{TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"lost/acquired", "lost/released", "lost/run"} {
				if _, err := next.Lock(t.Context(), name, client.WithWait(10*time.Second)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}
