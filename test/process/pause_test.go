package process_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// frozenFor is much longer than an election, and shorter than the load's TTL.
const frozenFor = 4 * time.Second

func TestPausedLeaderIsReplacedAndStepsDown(t *testing.T) {
	c := process.Start(t, programs, 3)
	l := startLoad(t, c)
	old := c.Leader()
	term := c.AwaitAll().GetTerm()
	fault := l.Log.Now()
	c.Stop(old)
	next := c.AwaitLeader(old)
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.outage(fault, "SIGSTOP of the leader", 8*time.Second)

	// The longer it is frozen, the staler its view of the locks is.
	c.Await("a while", 2*frozenFor, func(context.Context) error {
		if frozen := l.Log.Now() - fault; frozen < frozenFor {
			return fmt.Errorf("%v", frozen)
		}
		return nil
	})
	resumed := l.Log.Now()
	c.Continue(old)
	took := c.Await("the old leader steps down", process.WaitTimeout, func(ctx context.Context) error {
		metrics, err := c.Metrics(ctx, old)
		if err != nil {
			return err
		}
		if metrics["quorumlock_is_leader"] != 0 || metrics["quorumlock_term"] <= float64(term) {
			return fmt.Errorf("it leads: %v, in term %v", metrics["quorumlock_is_leader"], metrics["quorumlock_term"])
		}
		return nil
	})
	t.Logf("%s led, then %s; %v after SIGCONT the old one knew", old, next, took.Round(time.Millisecond))
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.outage(resumed, "SIGCONT of the old leader", 4*time.Second)
	c.AwaitAll()
	l.finish()
}

// TestPausedLeaderAnswersNoStaleRead freezes a leader until it has been replaced, with a read waiting in its
// socket. When it resumes, it must not answer from its stale state.
func TestPausedLeaderAnswersNoStaleRead(t *testing.T) {
	c := process.Start(t, programs, 3)
	s := open(t, c.NewClient(), loadTTL)
	ctx, cancel := context.WithTimeout(t.Context(), process.WaitTimeout)
	defer cancel()
	first, err := s.Lock(ctx, "read")
	if err != nil {
		t.Fatal(err)
	}
	old := c.Leader()
	c.Freeze(old)
	answers := make(chan readAnswer, 1)
	go func() { answers <- readFrom(ctx, c.HTTP(old), "read") }()

	c.AwaitLeader(old)
	if err := first.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	second, err := s.Lock(ctx, "read")
	if err != nil {
		t.Fatal(err)
	}
	c.Continue(old)
	switch a := <-answers; {
	case a.err != nil:
		t.Log("it answered:", a.err)
	case len(a.lock.GetHolders()) != 1 || a.lock.GetHolders()[0].GetToken() != second.Token():
		t.Errorf("it answered %v, though token %d was granted", a.lock, second.Token())
	}
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

type readAnswer struct {
	lock *wire.GetLockResponse
	err  error
}

// readFrom reads from one node over HTTP.
func readFrom(ctx context.Context, base, name string) readAnswer {
	plain := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := wireconnect.NewLockServiceClient(plain, base).Get(ctx, connect.NewRequest(&wire.GetLockRequest{Name: name}))
	if err != nil {
		return readAnswer{err: err}
	}
	return readAnswer{lock: resp.Msg}
}

func TestGracefulStopHandsOver(t *testing.T) {
	c := process.Start(t, programs, 3)
	l := startLoad(t, c)
	old := c.Leader()
	fault := l.Log.Now()
	c.Terminate(old)
	t.Logf("%s ended %v after SIGTERM", old, (l.Log.Now() - fault).Round(time.Millisecond))
	l.AwaitGrants(l.Log.Now(), afterFault)
	l.outage(fault, "SIGTERM of the leader", 4*time.Second)
	t.Logf("%s led, now %s", old, c.AwaitLeader(old))
	c.Restart(old)
	c.AwaitAll()
	l.finish()
}

// TestPauseIsNoHungDisk stops all processes while they write, for longer than the disk timeout. None may end
// because of that when it continues.
func TestPauseIsNoHungDisk(t *testing.T) {
	const diskTimeout, paused = time.Second, 2 * time.Second
	c := process.StartWith(t, programs, process.Options{Nodes: 3, Flags: []string{"--disk-timeout", diskTimeout.String()}})
	l := startLoad(t, c)
	for range 5 {
		l.AwaitGrants(l.Log.Now(), afterFault)
		for _, id := range c.IDs() {
			c.Stop(id)
		}
		c.Pass(paused)
		for _, id := range c.IDs() {
			c.Continue(id)
		}
		c.AwaitAll()
	}
	for _, id := range c.IDs() {
		if strings.Contains(c.Log(id), "the disk hangs") {
			t.Errorf("%s takes a pause for a hung disk", id)
		}
	}
	l.finish()
}
