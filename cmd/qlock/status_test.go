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

// removedNode answers for itself. The leader answers through another endpoint after the node, if it leads.
type removedNode struct {
	*fakeService
	leads   bool
	removed chan struct{} // closed when the removed node has answered
}

func (d *removedNode) Status(ctx context.Context, req *wire.StatusRequest) (*wire.StatusResponse, error) {
	if req.GetStale() {
		defer close(d.removed)
		return &wire.StatusResponse{NodeId: "n3", Removed: "this node was removed from cluster \"prod\""}, nil
	}
	<-d.removed
	if d.leads {
		return &wire.StatusResponse{NodeId: "n1", LeaderId: "n1"}, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestRemovedNodeIsNotWaitedFor checks that status does not search for a leader until its timeout if a removed node
// answers. If there are other endpoints, it searches briefly.
func TestRemovedNodeIsNotWaitedFor(t *testing.T) {
	for endpoints, leads := range map[string]bool{"n3:7400": false, "n3:7400,n1:7400": true, "n3:7400,n2:7400": false} {
		node := &removedNode{&fakeService{t: t}, leads, make(chan struct{})}
		began := time.Now()
		got := execTest(t, func(*cli.Context) (service, error) { return node, nil }, "--endpoints", endpoints, "status", "--timeout", "20s")
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: it took %v", endpoints, took)
		}
		switch {
		case leads && (got.code != exitOK || !strings.Contains(got.out, "leader n1")):
			t.Errorf("%s: got %+v", endpoints, got)
		case !leads && (got.code != exitNoLeader || !strings.Contains(got.out, "REMOVED: node n3") || !strings.Contains(got.err, "node n3 was removed from the cluster")):
			t.Errorf("%s: got %+v", endpoints, got)
		}
	}
}

// TestStatusWarnsOfExpiringCertificates checks the line about a node's certificate, from 30 days before its end.
func TestStatusWarnsOfExpiringCertificates(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	for left, want := range map[time.Duration]string{
		30*day + time.Millisecond: "",
		30 * day:                  "CERTIFICATE of n1 expires in 30d, at 2023-12-14T22:13:20Z: renew it with qlock tls renew, and copy it to the node\n",
		time.Hour:                 "CERTIFICATE of n1 expires in 1h, at 2023-11-14T23:13:20Z: renew it with qlock tls renew, and copy it to the node\n",
		-time.Hour:                "CERTIFICATE of n1 EXPIRED at 2023-11-14T21:13:20Z: renew it with qlock tls renew, and copy it to the node\n",
	} {
		var out strings.Builder
		writeExpiries(&out, []*wire.NodeStatus{{Id: "n1", CertificateExpiresUnixMs: now.Add(left).UnixMilli()}, {Id: "n2"}}, now)
		if out.String() != want {
			t.Errorf("%v before: %q, want %q", left, out.String(), want)
		}
	}
	f := &fakeService{t: t, statusFunc: func(*wire.StatusRequest) (*wire.StatusResponse, error) {
		return &wire.StatusResponse{LeaderId: "n1", Nodes: []*wire.NodeStatus{{Id: "n1", CertificateExpiresUnixMs: 1}}}, nil
	}}
	if got := execTest(t, f.dialer, "status"); got.code != 0 || !strings.Contains(got.out, "CERTIFICATE of n1 EXPIRED at 1970-01-01T00:00:00Z") {
		t.Errorf("status: %+v", got)
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
