//go:build unix

package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// leaderless is a cluster whose leader never answers, but whose nodes do.
type leaderless struct {
	*fakeService
	mu        sync.Mutex
	deadlines map[bool]time.Time // by stale
}

func (l *leaderless) Status(ctx context.Context, req *wire.StatusRequest) (*wire.StatusResponse, error) {
	l.mu.Lock()
	l.deadlines[req.GetStale()], _ = ctx.Deadline()
	l.mu.Unlock()
	if req.GetStale() {
		return &wire.StatusResponse{NodeId: "n2"}, nil
	}
	<-ctx.Done()
	return nil, client.ErrUnavailable
}

// TestStatusTakesItsTimeOnce checks that without a leader status prints what a node knows, within one
// timeout like every other verb, not two.
func TestStatusTakesItsTimeOnce(t *testing.T) {
	l := &leaderless{fakeService: &fakeService{t: t}, deadlines: map[bool]time.Time{}}
	got := execTest(t, func(*cli.Context) (service, error) { return l, nil }, "status", "--timeout", "50ms")
	if got.code != exitNoLeader || !strings.Contains(got.out, "as node n2 sees it") || !strings.Contains(got.err, "no serving leader within 50ms") {
		t.Errorf("got %+v", got)
	}
	if l.deadlines[true].IsZero() || !l.deadlines[true].Equal(l.deadlines[false]) {
		t.Errorf("the leader has until %v, the others until %v", l.deadlines[false], l.deadlines[true])
	}
}

// TestTooLongValueIsAUsageError checks the exit code for a value that is too long: the limit is a setting
// of the cluster, and trying again does not help.
func TestTooLongValueIsAUsageError(t *testing.T) {
	tooLong := &client.StatusError{Status: client.StatusResourceExhausted, Message: "max_value_bytes: the value has 1025 bytes, at most 1024 are allowed"}
	for _, line := range []string{"run a --value x -- true", "elect a --value x -- true"} {
		s := newScene(t, 15*time.Second)
		s.session.lock = func(context.Context, string, time.Duration) (hold, error) { return nil, tooLong }
		if got := execTest(t, s.service.dialer, strings.Fields(line)...); got.code != exitUsage || !strings.Contains(got.err, "--value is too long") {
			t.Errorf("%s: %+v", line, got)
		}
	}
	f := answering(t)
	f.acquire = func(context.Context, leaseRequest) (leased, error) { return leased{}, tooLong }
	if got := execTest(t, f.dialer, "acquire", "a", "--value", "x"); got.code != exitUsage {
		t.Errorf("acquire: %+v", got)
	}
}

// TestElectionIsShownLikeALock checks that programs can read the leader like any lock.
func TestElectionIsShownLikeALock(t *testing.T) {
	want := execTest(t, answering(t).dialer, "show", "orders/42", "-o", "json")
	got := execTest(t, answering(t).dialer, "elect", "orders/42", "--leader", "-o", "json")
	if got.code != 0 || got.out != want.out {
		t.Errorf("elect prints %q, show %q", got.out, want.out)
	}
}
