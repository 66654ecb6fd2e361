package httpapi_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/test/ports"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// three runs a cluster and returns its nodes, the leader first.
func three(t *testing.T) []*server.Node {
	t.Helper()
	var peers []server.Peer
	var configs []server.Config
	for i, addr := range ports.For(t, 3) {
		cfg := alone(t)
		cfg.ID, cfg.Listen.Peer = fmt.Sprintf("n%d", i+1), addr
		peers = append(peers, server.Peer{ID: cfg.ID, Addr: cfg.Listen.Peer})
		configs = append(configs, cfg)
	}
	var nodes []*server.Node
	for _, cfg := range configs {
		cfg.Cluster = peers
		nodes = append(nodes, open(t, cfg))
	}
	for _, node := range nodes {
		ready(t, node.Addrs().HTTP)
	}
	for i, node := range nodes {
		if node.Replica().Serving() {
			nodes[0], nodes[i] = nodes[i], nodes[0]
		}
	}
	return nodes
}

// party is a session used over gRPC.
type party struct {
	t     *testing.T
	creds *wire.Credentials
	http  *http.Client
}

func newParty(t *testing.T, at, name string) *party {
	t.Helper()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	t.Cleanup(transport.CloseIdleConnections)
	secret := sha256.Sum256([]byte(name))
	p := &party{t: t, http: &http.Client{Transport: transport}}
	sessions := wireconnect.NewSessionServiceClient(p.http, "http://"+at, connect.WithGRPC())
	opened, err := sessions.Open(t.Context(), connect.NewRequest(&wire.OpenRequest{Secret: secret[:], TtlMs: 600_000, Client: &wire.ClientInfo{Name: name}}))
	if err != nil {
		t.Fatal(err)
	}
	p.creds = &wire.Credentials{SessionId: opened.Msg.GetSessionId(), Secret: secret[:]}
	return p
}

func (p *party) locks(at string) wireconnect.LockServiceClient {
	return wireconnect.NewLockServiceClient(p.http, "http://"+at, connect.WithGRPC())
}

func (p *party) acquire(at string, seq uint64, name string) (*wire.AcquireResponse, error) {
	resp, err := p.locks(at).Acquire(p.t.Context(), connect.NewRequest(&wire.AcquireRequest{
		Session: p.creds, Seq: seq, AckedBelow: seq, Name: name, WaitForever: true,
	}))
	if err != nil {
		return nil, err
	}
	return resp.Msg, nil
}

// TestFollowersOfARealCluster sends all requests to followers of a real cluster. One of them waits, and is
// carried over to the next leader when the first one stops.
func TestFollowersOfARealCluster(t *testing.T) {
	nodes := three(t)
	asked, other := nodes[1].Addrs().HTTP, nodes[2].Addrs().HTTP
	ann, bob := newParty(t, asked, "ann"), newParty(t, other, "bob")
	held, err := ann.acquire(asked, 1, "orders/1")
	if err != nil || held.GetStatus() != wire.Status_GRANTED {
		t.Fatalf("%v, %v", held, err)
	}
	type outcome struct {
		got *wire.AcquireResponse
		err error
	}
	granted := make(chan outcome, 1)
	go func() {
		got, err := bob.acquire(other, 1, "orders/1")
		granted <- outcome{got, err}
	}()
	queued := func() bool {
		lock, err := ann.locks(asked).Get(t.Context(), connect.NewRequest(&wire.GetLockRequest{Name: "orders/1"}))
		return err == nil && lock.Msg.GetQueueLength() == 1
	}
	until(t, "bob waits", queued)
	if err := nodes[0].Close(t.Context()); err != nil {
		t.Error(err)
	}
	until(t, "bob waits at the next leader", queued)
	released, err := ann.locks(asked).Release(t.Context(), connect.NewRequest(&wire.ReleaseRequest{
		Session: ann.creds, Seq: 2, AckedBelow: 2, HoldId: held.GetHoldId(), Token: held.GetToken(),
	}))
	if err != nil || released.Msg.GetStatus() != wire.Status_OK {
		t.Fatalf("release: %v, %v", released, err)
	}
	select {
	case got := <-granted:
		if got.err != nil || got.got.GetStatus() != wire.Status_GRANTED || got.got.GetToken() <= held.GetToken() {
			t.Errorf("bob got %v, %v", got.got, got.err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("bob waits for ever")
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}
