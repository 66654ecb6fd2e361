package server

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout is the timeout of waits in tests.
const testTimeout = 20 * time.Second

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(testTimeout)
	defer deadline.Stop()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for !holds() {
		select {
		case <-poll.C:
		case <-deadline.C:
			t.Fatal("timed out waiting for: " + what)
		}
	}
}

// quick returns the configuration of a single node on loopback with short timeouts and free ports.
func quick(t *testing.T) Config {
	t.Helper()
	return Config{
		ID:                 "n1",
		DataDir:            t.TempDir(),
		Listen:             Addresses{Peer: "127.0.0.1:0", Client: "127.0.0.1:0", HTTP: "127.0.0.1:0"},
		HeartbeatTimeout:   100 * time.Millisecond,
		ElectionTimeout:    100 * time.Millisecond,
		LeaderLeaseTimeout: 100 * time.Millisecond,
		CommitTimeout:      5 * time.Millisecond,
		Logger:             hclog.New(&hclog.LoggerOptions{Output: testLog{t}, Level: hclog.Info}),
	}
}

// testLog writes to the log of a test.
type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	if l.t.Context().Err() == nil { // not allowed after the test has ended
		l.t.Logf("%s", p)
	}
	return len(p), nil
}

func open(t *testing.T, cfg Config) *Node {
	t.Helper()
	node, err := Open(bounded(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, node) })
	return node
}

func shut(t *testing.T, node *Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := node.Close(ctx); err != nil {
		t.Error("close:", err)
	}
}

func serving(t *testing.T, nodes ...*Node) *Node {
	t.Helper()
	var leader *Node
	eventually(t, "a leader that serves", func() bool {
		for _, n := range nodes {
			if n.Replica().Serving() {
				leader = n
			}
		}
		return leader != nil
	})
	return leader
}

// speaker is a client that speaks the protocol directly, one request at a time.
type speaker struct {
	t      *testing.T
	conn   net.Conn
	reply  *wire.HelloReply
	r      *transport.FrameReader
	w      *transport.FrameWriter
	nextID uint64
	pushes []*wire.Push
}

func speak(t *testing.T, conn net.Conn) *speaker {
	t.Helper()
	t.Cleanup(func() { transport.Cut(conn) })
	reply, r, err := transport.ClientHandshake(bounded(t), conn, &wire.Hello{Agent: "test"})
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	return &speaker{t: t, conn: conn, reply: reply, r: r, w: transport.NewFrameWriter(conn, transport.DefaultMaxFrame)}
}

func dial(t *testing.T, node *Node) *speaker {
	t.Helper()
	conn, err := transport.TCP{}.Dial(bounded(t), node.Addrs().Client)
	if err != nil {
		t.Fatal(err)
	}
	return speak(t, conn)
}

func (s *speaker) expect(status wire.Status_Code, req *wire.Request) *wire.Response {
	s.t.Helper()
	resp := s.answer(req)
	if got := resp.GetResult().GetStatus(); got != status {
		s.t.Fatalf("status %v, want %v: %v", got, status, resp)
	}
	return resp
}

// answer sends a request and returns the response.
func (s *speaker) answer(req *wire.Request) *wire.Response {
	s.t.Helper()
	s.nextID++
	req.Id = s.nextID
	if err := s.w.Write(&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: req}}); err != nil {
		s.t.Fatal("send:", err)
	}
	for {
		if resp := s.read().GetResponse(); resp != nil {
			return resp
		}
	}
}

// read returns the next frame. It collects pushes.
func (s *speaker) read() *wire.ServerFrame {
	s.t.Helper()
	var frame wire.ServerFrame
	if err := s.r.Read(&frame); err != nil {
		s.t.Fatal("read:", err)
	}
	if push := frame.GetPush(); push != nil {
		s.pushes = append(s.pushes, push)
	}
	return &frame
}

func (s *speaker) push() *wire.Push {
	s.t.Helper()
	for len(s.pushes) == 0 {
		s.read()
	}
	push := s.pushes[0]
	s.pushes = s.pushes[1:]
	return push
}

// goodbye reads up to the node's goodbye.
func (s *speaker) goodbye() *wire.Goodbye {
	s.t.Helper()
	for {
		if bye := s.read().GetGoodbye(); bye != nil {
			var frame wire.ServerFrame
			if err := s.r.Read(&frame); !errors.Is(err, io.EOF) {
				s.t.Fatalf("after the goodbye: %v, want EOF", err)
			}
			return bye
		}
	}
}

func (s *speaker) open(secret string) uint64 {
	s.t.Helper()
	resp := s.expect(wire.Status_OK, opening([]byte(secret)))
	if resp.RemainingTtlMs == 0 || resp.RemainingTtlMs > uint64(resp.GetResult().GetSession().GetTtlMs()) {
		s.t.Errorf("remaining TTL in %v", resp)
	}
	return resp.GetResult().GetSession().GetSessionId()
}

func opening(secret []byte) *wire.Request {
	return &wire.Request{Body: &wire.Request_OpenSession{OpenSession: &wire.OpenRequest{Secret: secret}}}
}

func attach(session uint64, secret string) *wire.Request {
	return &wire.Request{SessionId: session, Body: &wire.Request_Attach{Attach: &wire.AttachRequest{Secret: []byte(secret)}}}
}

func acquire(session, seq uint64, name string) *wire.Request {
	return &wire.Request{SessionId: session, Seq: seq, Body: &wire.Request_Acquire{Acquire: &wire.Acquire{
		Locks: []*wire.LockRequest{{Name: name}}, WaitForever: true,
	}}}
}

func release(session, seq uint64, hold *wire.Result) *wire.Request {
	return &wire.Request{SessionId: session, Seq: seq, Body: &wire.Request_Release{Release: &wire.Release{
		HoldId: hold.GetHoldId(), Token: hold.GetToken(),
	}}}
}

func heartbeat(session uint64) *wire.Request {
	return &wire.Request{SessionId: session, Body: &wire.Request_Heartbeat{Heartbeat: &wire.Heartbeat{}}}
}
