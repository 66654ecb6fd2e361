package process_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/admin"
	"github.com/quorumlock/quorumlock/test/process"
)

// startService starts the command service and returns it with the lines that it prints.
func startService(t *testing.T, c *process.Cluster) (*exec.Cmd, <-chan string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "service")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./service").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append(os.Environ(), "QLOCK_ENDPOINTS="+strings.Join(c.Endpoints(), ","))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1_000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for range lines {
		}
		_ = cmd.Wait()
	})
	return cmd, lines
}

// said waits until the service has printed lines with all of these beginnings, in any order.
func said(t *testing.T, lines <-chan string, beginnings ...string) {
	t.Helper()
	timeout := time.After(process.WaitTimeout)
	for len(beginnings) > 0 {
		select {
		case line, more := <-lines:
			if !more {
				t.Fatalf("the service ended; it did not say %q", beginnings)
			}
			beginnings = slices.DeleteFunc(beginnings, func(b string) bool { return strings.HasPrefix(line, b) })
		case <-timeout:
			t.Fatalf("the service did not say %q", beginnings)
		}
	}
}

// TestServiceOutlivesAPause stops the process of a service for three TTLs. It works again by itself, and its
// holders were told. Before that, somebody merely waits for its leadership, which it keeps.
func TestServiceOutlivesAPause(t *testing.T) {
	t.Parallel()
	c := process.Start(t, programs, 3)
	service, lines := startService(t, c)
	said(t, lines, "holding with token", "leading with token")

	token := c.Lock("leader").GetHolders()[0].GetToken()
	rival := open(t, c.NewClient(), time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := rival.Lock(ctx, "leader")
		waited <- err
	}()
	said(t, lines, "wanted")
	c.Pass(time.Second)
	if holders := c.Lock("leader").GetHolders(); len(holders) != 1 || holders[0].GetToken() != token {
		t.Fatalf("a waiter ended the leadership: %v", holders)
	}
	cancel()
	<-waited

	if err := service.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.Pass(3 * shortestTTL)
	observer := admin.New(c.NewClient())
	c.Await("the lock of the stopped service is free", process.WaitTimeout, func(ctx context.Context) error {
		lock, err := observer.Lock(ctx, "service")
		if errors.Is(err, client.ErrNotFound) {
			return nil
		}
		return cmp.Or(err, fmt.Errorf("held by %v", lock.Holders))
	})
	if err := service.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	said(t, lines, "lost [leader service] quorumlock: session expired", "leadership over: quorumlock: session expired", "holding with token", "leading with token")
	if err := service.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	said(t, lines, "ends:")
}

// TestServiceOutlivesItsCluster kills all nodes and starts them again after a minute; in the short version,
// after two TTLs.
func TestServiceOutlivesItsCluster(t *testing.T) {
	t.Parallel()
	outage := 2 * shortestTTL
	if full {
		outage = time.Minute
	}
	c := process.Start(t, programs, 3)
	losses := make(chan client.Loss, 10)
	s := c.NewClient().Supervise(client.SupervisedOptions{
		SessionOptions: client.SessionOptions{TTL: shortestTTL}, OnLost: func(l client.Loss) { losses <- l },
	})
	hold, err := s.Lock(t.Context(), "service")
	if err != nil {
		t.Fatal(err)
	}
	c.Kill9(c.IDs()...)
	c.Pass(outage)
	for _, id := range c.IDs() {
		c.Restart(id)
	}
	ctx, cancel := context.WithTimeout(t.Context(), process.WaitTimeout)
	defer cancel()
	again, err := s.Lock(ctx, "service")
	if err != nil || again.Token() <= hold.Token() {
		t.Fatal(err)
	}
	loss := <-losses
	if cause := context.Cause(hold.Context()); !errors.Is(cause, client.ErrExpired) || !errors.Is(loss.Reason, client.ErrExpired) || !slices.Equal(loss.Locks, []string{"service"}) {
		t.Errorf("%v, %+v", cause, loss)
	}
	if err := s.Close(ctx); err != nil || len(losses) > 0 {
		t.Errorf("%v, %d losses", err, len(losses))
	}
}
