package process_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/process"
)

// pipe is a full pipe that nobody reads, for the log of a node.
type pipe struct{ reads, writes *os.File }

func fullPipe(t *testing.T) pipe {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	p := pipe{os.NewFile(uintptr(fds[0]), "reads"), os.NewFile(uintptr(fds[1]), "writes")}
	t.Cleanup(func() { _, _ = p.reads.Close(), p.writes.Close() })
	if err := unix.SetNonblock(fds[1], true); err != nil {
		t.Fatal(err)
	}
	for size := 4096; size > 0; size /= 2 {
		for {
			if _, err := unix.Write(fds[1], []byte(strings.Repeat("\n", size))); err != nil {
				break
			}
		}
	}
	if err := unix.SetNonblock(fds[1], false); err != nil {
		t.Fatal(err)
	}
	return p
}

// lines reads the pipe, until all its writers have ended, into the channel.
func (p pipe) lines() <-chan string {
	all := make(chan string, 1<<16)
	_ = p.writes.Close() // the nodes have their own
	go func() {
		defer close(all)
		text := bufio.NewScanner(p.reads)
		for text.Scan() {
			if text.Text() != "" {
				all <- text.Text()
			}
		}
	}()
	return all
}

// TestUnreadLogs runs a cluster whose logs go to full pipes that nobody reads. It elects, serves, fails over and expires
// sessions as usual. Then one log is read, and says how many lines it lacks; the reader of the other dies. Nodes stop in order
// and abort, whoever reads.
func TestUnreadLogs(t *testing.T) {
	t.Parallel()
	pipes, stderr := map[string]pipe{}, map[string]*os.File{}
	for _, id := range []string{"n1", "n2", "n3"} {
		pipes[id] = fullPipe(t)
		stderr[id] = pipes[id].writes
	}
	// The shortest buffer, and a line for every connection that ends.
	flags := []string{"--log-level", "trace", "--log-buffer-bytes", "65536"}
	c := process.StartWith(t, programs, process.Options{Nodes: 3, Stderr: stderr, Flags: flags})
	f := openShortest(t, c)
	dies := open(t, c.NewClient(), shortestTTL)
	if _, err := dies.Lock(t.Context(), "expires"); err != nil {
		t.Fatal(err)
	}

	first := c.Leader()
	killed := time.Now()
	c.Kill9(first)
	second := c.AwaitLeader(first)
	if took := time.Since(killed); took > 5*time.Second {
		t.Errorf("no leader for %v after %s was killed", took, first)
	}
	f.kept(t, "a fail-over")
	fillLog(t, c, second)

	log := pipes[second].lines()
	c.Await("the log of "+second+" says what it lacks", process.WaitTimeout, func(context.Context) error {
		for {
			select {
			case line := <-log:
				if strings.Contains(line, "lines of the log are missing here") && strings.Contains(line, "lines=") {
					return nil
				}
			default:
				return errors.New("not yet")
			}
		}
	})
	third := c.Others(first)[0]
	if third == second {
		third = c.Others(first)[1]
	}
	_, _ = pipes[third].reads.Close(), pipes[third].writes.Close()
	c.Signal(syscall.SIGTERM, second) // in order: its log is read
	if code := c.Ended(second); code != 0 {
		t.Errorf("%s exits with %d", second, code)
	}
	if !c.Running(third) {
		t.Fatalf("%s ended with the reader of its log", third)
	}
	c.Restart(first) // nobody reads it still
	c.AwaitLeader(second)
	f.kept(t, "a node whose reader has died")
	// The Go runtime itself writes how it aborts, with all goroutines stopped.
	for id, sig := range map[string]syscall.Signal{third: syscall.SIGTERM, first: syscall.SIGQUIT} {
		began := time.Now()
		c.Signal(sig, id)
		if code := c.Ended(id); time.Since(began) > 10*time.Second {
			t.Errorf("%v ends %s after %v with %d", sig, id, time.Since(began), code)
		}
	}
}

// fillLog makes a node log, until it has dropped lines.
func fillLog(t *testing.T, c *process.Cluster, id string) {
	t.Helper()
	c.Await(id+" drops lines of its log", process.WaitTimeout, func(ctx context.Context) error {
		for range 50 {
			cl, err := client.New(client.Config{Endpoints: []string{c.Endpoint(id)}})
			if err != nil {
				return err
			}
			if s, err := cl.NewSession(ctx, client.SessionOptions{}); err == nil {
				_ = s.Close(ctx)
			}
			_ = cl.Close()
		}
		values, err := c.Metrics(ctx, id)
		if dropped := values["quorumlock_log_dropped_lines_total"]; err == nil && dropped == 0 {
			return fmt.Errorf("%v dropped", dropped)
		}
		return err
	})
}
