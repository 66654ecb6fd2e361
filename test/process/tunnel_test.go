package process_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quorumlock/quorumlock/test/process"
)

// TestQlockRunThroughAFollower cuts the leader and one follower off from a qlock run, with nftables. The
// command keeps its lock through the other follower for longer than its TTL, and other nodes show the
// client's own address.
func TestQlockRunThroughAFollower(t *testing.T) {
	beside(t)
	c := process.StartWith(t, programs, process.Options{Nodes: 3, Apart: true})
	c.AwaitAll()
	leader := c.Leader()
	followers := c.Others(leader)
	var out strings.Builder
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(out.String())
		}
	})
	marker := filepath.Join(t.TempDir(), "ended")
	run, err := c.StartQlock(t.Context(), &out, "run", "--ttl", shortestTTL.String(), "job", "--", "sh", "-c", `trap 'echo $QLOCK_TOKEN > "`+marker+`"; exit 7' TERM; while :; do sleep 0.1; done`)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	c.Await("the lock", process.WaitTimeout, func(context.Context) error {
		if n := len(c.Lock("job").GetHolders()); n != 1 {
			return fmt.Errorf("%d hold it", n)
		}
		return nil
	})
	token := c.Lock("job").GetHolders()[0].GetToken()
	cut, err := c.CutClientsOff(leader, followers[0])
	defer func() { _ = cut.Heal() }()
	if err != nil {
		t.Fatal(err)
	}
	c.Await("a tunnel", shortestTTL, func(ctx context.Context) error {
		m, err := c.Metrics(ctx, followers[1])
		if err == nil && m["quorumlock_tunnels"] < 1 {
			err = errors.New("there is none")
		}
		return err
	})
	status, err := c.StartQlock(t.Context(), &strings.Builder{}, "status")
	if err == nil {
		err = status.Wait()
	}
	if err != nil {
		t.Errorf("qlock status finds no leader through the follower: %v", err)
	}
	// Long enough for the SDK to try the leader itself.
	c.Never("the lock is lost", 2*shortestTTL, func(context.Context) error {
		select {
		case err := <-ended:
			ended <- err
			return nil
		default:
			return errors.New("it runs")
		}
	})
	if at := c.Lock("job").GetHolders()[0].GetClient().GetAddress(); !strings.HasPrefix(at, c.ClientsAddr()+":") {
		t.Errorf("the holder is shown at %q, want its own address %s", at, c.ClientsAddr())
	}
	if packets, err := cut.Packets(); err != nil || packets == 0 {
		t.Errorf("the cut had no effect: %d packets, %v", packets, err)
	}
	stop(t, run, ended)
	if got, err := os.ReadFile(marker); err != nil || strings.TrimSpace(string(got)) != fmt.Sprint(token) {
		t.Errorf("the command ended with %q, %v; want token %d", got, err, token)
	}
}

// stop terminates a qlock run and expects its command's exit code.
func stop(t *testing.T, run *exec.Cmd, ended <-chan error) {
	t.Helper()
	if err := run.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	err := <-ended
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 7 {
		t.Errorf("qlock run ended with %v, want its command's code", err)
	}
}
