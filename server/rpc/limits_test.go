package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/test/scrape"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestReaderStopsAtTheBoundOfRequestsInFlight(t *testing.T) {
	const bound = 4
	p := serve(t, func(c *Config) { c.Limits.MaxInFlight = bound })
	c := connect(t, p)
	session := c.open(secret)
	p.replica.hold()
	var ids []uint64
	for range 10 * bound {
		ids = append(ids, c.send(heartbeat(session)))
	}
	eventually(t, "the bound to be reached", func() bool { return p.replica.heldBack() == bound })
	if other := connect(t, p); other.reply.NodeId != self {
		t.Error("others are served meanwhile")
	}
	if n := p.replica.heldBack(); n != bound {
		t.Errorf("%d requests under way, the bound is %d", n, bound)
	}
	p.replica.release()
	for _, id := range ids {
		if resp := c.await(id); resp.GetResult().GetStatus() != wire.Status_OK {
			t.Errorf("answer %v", resp)
		}
	}
}

func TestGracefulCloseAnswersWhatIsUnderWay(t *testing.T) {
	p := serve(t, nil)
	c, idle := connect(t, p), connect(t, p)
	session := c.open(secret)
	p.replica.hold()
	id := c.send(heartbeat(session))
	eventually(t, "the request to be under way", func() bool { return p.replica.heldBack() == 1 })

	closed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		closed <- p.Close(ctx)
	}()
	idle.goodbye(wire.Goodbye_SHUTDOWN)
	if _, err := net.Dial("tcp", p.Addr().String()); err == nil {
		t.Error("new connections are taken while closing")
	}
	p.replica.release()
	if resp := c.await(id); resp.GetResult().GetStatus() != wire.Status_OK {
		t.Errorf("answer %v", resp)
	}
	c.goodbye(wire.Goodbye_SHUTDOWN)
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestCloseDoesNotWaitForeverForAClient(t *testing.T) {
	p := serve(t, nil)
	stuck := connect(t, p)
	stuck.open(secret)
	half := dial(t, p) // still in its handshake
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	closedByNode(t, half)
	closedByNode(t, stuck.conn)
}

func TestReads(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	first, second := c.open([]byte("a-secret-of-sixteen")), c.open(secret)
	c.expect(wire.Status_GRANTED, acquire(first, 1, "a/b", true))
	c.expect(wire.Status_QUEUED, acquire(second, 1, "a/b", true))

	got := c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_GetLock{GetLock: &wire.GetLockRequest{Name: "a/b"}}}).GetGetLock()
	if len(got.GetHolders()) != 1 || len(got.GetQueue()) != 1 || got.GetHolders()[0].GetHeartbeatAgeMs() != 1500 {
		t.Errorf("lock: %v", got)
	}
	list := c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{Prefix: "a/"}}}).GetListLocks()
	if len(list.GetLocks()) != 1 || list.GetLocks()[0].GetName() != "a/b" {
		t.Errorf("locks: %v", list)
	}
	c.expect(wire.Status_NOT_FOUND, &wire.Request{Body: &wire.Request_GetLock{GetLock: &wire.GetLockRequest{Name: "free"}}})
	c.expect(wire.Status_INVALID_ARGUMENT, &wire.Request{Body: &wire.Request_GetLock{GetLock: &wire.GetLockRequest{Name: "/"}}})
}

func TestReadsWaitForTheirBarrier(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	p.replica.hold()
	id := c.send(&wire.Request{Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{}}})
	c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_ListLocks{ListLocks: &wire.ListLocksRequest{Stale: true}}})
	if c.others[id] != nil {
		t.Error("the read was answered before its proof")
	}
	p.replica.release()
	if resp := c.await(id); resp.GetResult().GetStatus() != wire.Status_OK {
		t.Errorf("answer %v", resp)
	}
}

func TestAdministration(t *testing.T) {
	p := serve(t, func(c *Config) { c.Limits.AdminTimeout = 50 * time.Millisecond })
	c := connect(t, p)
	if got := c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_Status{Status: &wire.StatusRequest{}}}); got.GetStatus().GetNodeId() != self {
		t.Errorf("status %v", got)
	}
	c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_AddMember{AddMember: &wire.AddMemberRequest{Reason: "test"}}})
	c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_SetDrained{SetDrained: &wire.SetDrainedRequest{Reason: "test"}}})
	acknowledge := &wire.Request{Body: &wire.Request_AcknowledgeAlarms{AcknowledgeAlarms: &wire.AcknowledgeAlarmsRequest{Reason: "test"}}}
	if got := c.expect(wire.Status_OK, acknowledge); got.GetAcknowledgeAlarms().GetRevision() != 77 {
		t.Errorf("acknowledged %v", got)
	}

	p.replica.administerWith(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	c.expect(wire.Status_UNAVAILABLE, &wire.Request{Body: &wire.Request_AddMember{AddMember: &wire.AddMemberRequest{Reason: "test"}}})
}

func TestTransferNamesTheNextLeader(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	next := &wire.LeaderHint{Id: other, ClientAddr: "there:7400", Term: 2}
	p.replica.administerWith(func(context.Context) error {
		p.replica.moveLeader(&wire.LeaderHint{Term: 1})
		go p.replica.moveLeader(next)
		return nil
	})
	resp := c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_TransferLeadership{TransferLeadership: &wire.TransferLeadershipRequest{Reason: "test"}}})
	if resp.GetLeader().GetId() != other {
		t.Errorf("answer %v", resp)
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	p := serve(t, func(c *Config) { c.Registry = registry })
	c := connect(t, p)
	c.open(secret)
	conn := dial(t, p)
	_, _ = io.WriteString(conn, "garbage!")
	closedByNode(t, conn)
	eventually(t, "the connection to be counted out", func() bool { return p.Connections() == 1 })
	got := scrape.Values(t, registry)
	for name, want := range map[string]float64{
		"client_connections": 1, "client_connections_refused_total": 1, "client_requests_total": 1,
	} {
		sum := 0.0
		for key, value := range got {
			if of, _, _ := strings.Cut(key, " "); of == name {
				sum += value
			}
		}
		if sum != want {
			t.Errorf("%s is %v, want %v", name, sum, want)
		}
	}
}

func TestAdministrationIsBounded(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	free := make(chan struct{})
	p.replica.administerWith(func(context.Context) error { <-free; return nil })
	var ids []uint64
	for range 64 {
		ids = append(ids, c.send(&wire.Request{Body: &wire.Request_AddMember{AddMember: &wire.AddMemberRequest{Reason: "test"}}}))
	}
	session := c.open(secret) // queued after all of them, but not delayed by them
	c.expect(wire.Status_OK, heartbeat(session))
	close(free)
	refused := 0
	for _, id := range ids {
		if c.await(id).GetResult().GetStatus() == wire.Status_RESOURCE_EXHAUSTED {
			refused++
		}
	}
	if refused < 16 {
		t.Errorf("%d refused, want at least 16", refused)
	}
}

func TestAcceptErrorsDoNotEndThePort(t *testing.T) {
	tired := &tiredListener{failures: 3}
	p := serve(t, func(c *Config) { tired.Listener = c.Listener; c.Listener = tired })
	unhurt(t, p)
	if n := p.log.count("cannot accept"); n != 3 {
		t.Errorf("%d complaints, want 3", n)
	}
}

// tiredListener fails at first, as if the process had no file descriptors left.
type tiredListener struct {
	net.Listener
	failures int
}

func (l *tiredListener) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, errors.Join(os.NewSyscallError("accept", errors.New("too many open files")))
	}
	return l.Listener.Accept()
}
