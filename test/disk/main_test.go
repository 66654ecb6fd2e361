package disk_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// full enables the long version of every test.
var full = os.Getenv("QUORUMLOCK_CHECK") == "1"

// programs are the binaries under test, built once.
var programs process.Programs

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "quorumlock-disk-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	leave := func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}
	if programs, err = process.Build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		leave(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(leave))
}

func onlyInFull(t *testing.T) {
	t.Helper()
	if !full {
		t.Skip("takes long: set QUORUMLOCK_CHECK=1")
	}
}

// safe is a session that acquires one lock after the other and keeps them. Every acknowledged lock must still
// be held after a disk fault.
type safe struct {
	t       *testing.T
	c       *process.Cluster
	session *client.Session
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	tokens map[string]uint64
}

// fillSafe starts acquiring, and returns once some locks are held.
func fillSafe(t *testing.T, c *process.Cluster) *safe {
	t.Helper()
	session, err := c.NewClient().NewSession(t.Context(), client.SessionOptions{TTL: 10 * time.Minute, Name: "safe"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &safe{t: t, c: c, session: session, stop: cancel, tokens: map[string]uint64{}}
	t.Cleanup(s.close)
	s.done.Go(func() { s.take(ctx) })
	s.await(20)
	return s
}

func (s *safe) take(ctx context.Context) {
	rest := time.NewTicker(2 * time.Millisecond)
	defer rest.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("kept/%d", i)
		if h, err := s.session.Lock(ctx, name); err == nil {
			s.mu.Lock()
			s.tokens[name] = h.Token()
			s.mu.Unlock()
		}
		select {
		case <-rest.C:
		case <-ctx.Done():
		}
	}
}

func (s *safe) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tokens)
}

// await waits for this many more locks.
func (s *safe) await(more int) {
	s.t.Helper()
	started := s.count()
	s.c.Await(fmt.Sprintf("%d more locks", more), 2*process.WaitTimeout, func(context.Context) error {
		if now := s.count(); now < started+more {
			return fmt.Errorf("%d", now-started)
		}
		return nil
	})
}

// close stops acquiring.
func (s *safe) close() {
	s.stop()
	s.done.Wait()
}

// lost returns the number of locks that are no longer held as acknowledged.
func (s *safe) lost() (n int) {
	s.t.Helper()
	s.close()
	for name, token := range s.tokens {
		var holders []*wire.HolderInfo
		s.c.Await("a look at "+name, process.WaitTimeout, func(ctx context.Context) error {
			lock, err := wirecall.Of(s.c.Client()).GetLock(ctx, &wire.GetLockRequest{Name: name})
			holders = lock.GetHolders()
			if errors.Is(err, client.ErrNotFound) {
				return nil
			}
			return err
		})
		if len(holders) != 1 || holders[0].GetToken() != token {
			n++
		}
	}
	return n
}

// complete fails the test if any lock is lost.
func (s *safe) complete() {
	s.t.Helper()
	if lost := s.lost(); lost > 0 {
		s.t.Errorf("%d of %d locks that were acknowledged are not there", lost, len(s.tokens))
	}
	s.t.Logf("%d locks were acknowledged", len(s.tokens))
}

// ended fails the test unless the node has ended on its own with an error that contains those words.
func ended(t *testing.T, c *process.Cluster, id string, words ...string) {
	t.Helper()
	if code := c.Ended(id); code != 70 {
		t.Errorf("%s: exit code %d, want 70", id, code)
	}
	log := c.Log(id)
	last := log[max(0, strings.LastIndex(log, "\nqlockd: ")):]
	for _, want := range words {
		if !strings.Contains(last, want) {
			t.Errorf("the last words of %s have no %q: %s", id, want, last)
		}
	}
}

var errWaiting = errors.New("not yet")
