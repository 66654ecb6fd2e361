package upgrade_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/admin"
	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/test/ports"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// recordTranscript runs three nodes and lets clients use the client port and the HTTP port. It returns what all of them
// said.
func recordTranscript(t *testing.T) []recorded {
	t.Helper()
	between, outside := &tap{}, &tap{}
	r := &transcript{t: t, seen: map[string]int{}}
	clients, bases, stop := startNodes(t, between)
	useSDK(t, clients, outside)
	refuse(t, clients[0], outside)
	useHTTP(r, bases[0])
	stop()
	between.mu.Lock()
	defer between.mu.Unlock()
	for _, c := range between.conns {
		r.peer(c)
	}
	for _, c := range outside.conns {
		r.client(c)
	}
	return r.all
}

// startNodes starts three nodes and waits until one leads. It returns their client addresses and the base URLs of their
// HTTP ports.
func startNodes(t *testing.T, network transport.Network) (clients, bases []string, stop func()) {
	t.Helper()
	addrs := ports.For(t, 9)
	var peers []server.Peer
	for i := range 3 {
		peers = append(peers, server.Peer{ID: fmt.Sprint("n", i+1), Addr: addrs[i]})
		clients, bases = append(clients, addrs[3+i]), append(bases, "http://"+addrs[6+i])
	}
	var nodes []*server.Node
	for i, p := range peers {
		node, err := server.Open(t.Context(), server.Config{
			ID: p.ID, DataDir: filepath.Join(t.TempDir(), p.ID), Cluster: peers, Network: network, Version: "test",
			Listen: server.Addresses{Peer: p.Addr, Client: clients[i], HTTP: addrs[6+i]},
		})
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, node)
	}
	return clients, bases, func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		for _, node := range nodes {
			if err := node.Close(ctx); err != nil {
				t.Error(err)
			}
		}
	}
}

// useSDK acquires, waits, changes and reads.
func useSDK(t *testing.T, endpoints []string, network *tap) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	c, err := client.New(client.Config{Endpoints: endpoints, Agent: "recorder", Dial: network.Dial})
	must(t, err)
	defer c.Close()
	first, err := c.NewSession(ctx, client.SessionOptions{TTL: 5 * time.Second})
	must(t, err)
	second, err := c.NewSession(ctx, client.SessionOptions{TTL: 5 * time.Second})
	must(t, err)
	held, err := first.Lock(ctx, "said", client.WithValue([]byte("v")), client.WithMaxHold(time.Minute))
	must(t, err)
	must(t, held.SetValue(ctx, []byte("w")))
	must(t, held.Extend(ctx, time.Minute))
	if _, err := second.Lock(ctx, "said", client.WithTry()); err == nil {
		t.Error("a held lock was acquired")
	}
	waited := make(chan error, 1)
	go func() {
		next, err := second.Lock(ctx, "said")
		if err == nil {
			err = next.Unlock(ctx)
		}
		waited <- err
	}()
	operator := admin.New(c)
	await(t, "the wait", func() bool {
		lock, err := operator.Lock(ctx, "said")
		return err == nil && lock.QueueLength == 1
	})
	must(t, held.Unlock(ctx))
	must(t, <-waited)
	if _, err := operator.Status(ctx); err != nil {
		t.Error(err)
	}
	must(t, second.Close(ctx))
	must(t, first.Close(ctx))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refuse sends a hello that is refused, and reads the goodbye.
func refuse(t *testing.T, addr string, network *tap) {
	t.Helper()
	conn, err := network.Dial(t.Context(), addr)
	must(t, err)
	defer conn.Close()
	hello := &wire.ClientFrame{Frame: &wire.ClientFrame_Hello{Hello: &wire.Hello{Version: transport.Version, AuthToken: "ql_unknown"}}}
	must(t, transport.NewFrameWriter(conn, transport.DefaultMaxFrame).WriteFirst(hello))
	must(t, conn.SetReadDeadline(time.Now().Add(waitTimeout)))
	reply := &wire.ServerFrame{}
	must(t, transport.NewFrameReader(conn, transport.DefaultMaxFrame).Read(reply))
	if reply.GetGoodbye() == nil {
		t.Errorf("answered with %v", reply)
	}
}

// useHTTP makes requests in JSON and adds them and their answers.
func useHTTP(r *transcript, base string) {
	r.t.Helper()
	secret := bytes.Repeat([]byte{7}, 16)
	opened := &wire.OpenResponse{}
	call(r, base, "SessionService/Open", &wire.OpenRequest{Secret: secret, TtlMs: 10_000, Client: &wire.ClientInfo{Name: "recorder"}}, opened)
	session := &wire.Credentials{SessionId: opened.SessionId, Secret: secret}
	call(r, base, "SessionService/Heartbeat", &wire.HeartbeatRequest{Session: session}, &wire.HeartbeatResponse{})
	acquired := &wire.AcquireResponse{}
	call(r, base, "LockService/Acquire", &wire.AcquireRequest{Session: session, Seq: 1, Name: "http", Mode: wire.Mode_EXCLUSIVE, Value: []byte("v")}, acquired)
	call(r, base, "LockService/Get", &wire.GetLockRequest{Name: "http"}, &wire.GetLockResponse{})
	call(r, base, "LockService/List", &wire.ListLocksRequest{Prefix: "ht"}, &wire.ListLocksResponse{})
	call(r, base, "LockService/Release", &wire.ReleaseRequest{Session: session, Seq: 2, AckedBelow: 2, HoldId: acquired.HoldId, Token: acquired.Token}, &wire.ReleaseResponse{})
	call(r, base, "SessionService/Close", &wire.CloseRequest{Session: session}, &wire.CloseResponse{})
	call(r, base, "LeaseService/Acquire", &wire.AcquireLeaseRequest{Secret: secret, TtlMs: 10_000, Acquire: acquire("lease")}, &wire.AcquireResponse{})
	call(r, base, "OperatorService/ListAudit", &wire.ListAuditRequest{PageSize: 10}, &wire.ListAuditResponse{})
	call(r, base, "ClusterService/Status", &wire.StatusRequest{}, &wire.StatusResponse{})
	call(r, base, "AccessService/WhoAmI", &wire.WhoAmIRequest{}, &wire.WhoAmIResponse{})
}

// httpClient keeps no connection, which would outlive the nodes.
var httpClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{}).DialContext}}

// call makes a request, and records it and the answer as they were sent.
func call(r *transcript, base, method string, request, response proto.Message) {
	r.t.Helper()
	said := recordOf(r.t, "HTTP request", request, nil)
	resp, err := httpClient.Post(base+"/quorumlock.v1."+method, "application/json", bytes.NewReader(said.JSON))
	must(r.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(r.t, err)
	if err := protojson.Unmarshal(body, response); err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("%s: %s: %s, %v", method, resp.Status, body, err)
	}
	answer := recorded{Where: "HTTP response", Message: response.ProtoReflect().Descriptor().FullName(), JSON: json.RawMessage(bytes.TrimSpace(body))}
	r.all = append(r.all, said, answer)
}
