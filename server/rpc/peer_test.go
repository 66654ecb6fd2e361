package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout is the timeout of waits in tests.
const testTimeout = 10 * time.Second

// port is a server with its replica and its log.
type port struct {
	*Server
	replica *fake
	log     *logBuffer
	dial    func() (net.Conn, error)
}

// serve starts a server on loopback.
func serve(t *testing.T, change func(*Config)) *port {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, listener, func() (net.Conn, error) { return net.Dial("tcp", listener.Addr().String()) }, change)
}

// serveInMemory starts a server on in-memory connections, for tests in virtual time.
func serveInMemory(t *testing.T, change func(*Config)) *port {
	t.Helper()
	listener := newPipes()
	return serveOn(t, listener, listener.dial, change)
}

func serveOn(t *testing.T, listener net.Listener, dial func() (net.Conn, error), change func(*Config)) *port {
	t.Helper()
	p := &port{replica: newFake(t), log: &logBuffer{}, dial: dial}
	cfg := Config{
		Listener:    listener,
		Replica:     p.replica,
		NodeID:      self,
		ClusterID:   func() string { return "c" },
		ClientAddrs: func() []string { return []string{"n1:7400", "n2:7400"} },
		Logger:      hclog.New(&hclog.LoggerOptions{Output: p.log, Level: hclog.Debug}),
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if p.Server, err = Serve(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error("close:", err)
		}
		if n := p.Connections(); n != 0 {
			t.Errorf("%d connections are left after Close", n)
		}
		if n := p.replica.bound(); n != 0 {
			t.Errorf("%d sessions are bound after Close", n)
		}
	})
	return p
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(testTimeout)
	defer deadline.Stop()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for !holds() {
		select {
		case <-poll.C:
		case <-deadline.C:
			t.Fatal("timed out waiting for: " + what)
		}
	}
}

// peer is a client that speaks the protocol directly.
type peer struct {
	t      *testing.T
	conn   net.Conn
	reply  *wire.HelloReply
	r      *transport.FrameReader
	w      *transport.FrameWriter
	nextID uint64
	pushes []*wire.Push
	others map[uint64]*wire.Response
}

func dial(t *testing.T, p *port) net.Conn {
	t.Helper()
	conn, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func connect(t *testing.T, p *port) *peer {
	t.Helper()
	conn := dial(t, p)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	reply, r, err := transport.ClientHandshake(ctx, conn, &wire.Hello{Agent: "test"})
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	return &peer{
		t: t, conn: conn, reply: reply, r: r,
		w:      transport.NewFrameWriter(conn, transport.DefaultMaxFrame),
		others: map[uint64]*wire.Response{},
	}
}

// send sends a request without waiting for the answer.
func (p *peer) send(req *wire.Request) uint64 {
	p.t.Helper()
	p.nextID++
	req.Id = p.nextID
	if err := p.w.Write(&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: req}}); err != nil {
		p.t.Fatal("send:", err)
	}
	return req.Id
}

// await reads until the answer with this id has arrived.
func (p *peer) await(id uint64) *wire.Response {
	p.t.Helper()
	for p.others[id] == nil {
		p.read()
	}
	resp := p.others[id]
	delete(p.others, id)
	return resp
}

func (p *peer) read() {
	p.t.Helper()
	var frame wire.ServerFrame
	if err := p.r.Read(&frame); err != nil {
		p.t.Fatal("read:", err)
	}
	switch f := frame.Frame.(type) {
	case *wire.ServerFrame_Response:
		p.others[f.Response.Id] = f.Response
	case *wire.ServerFrame_Push:
		p.pushes = append(p.pushes, f.Push)
	default:
		p.t.Fatalf("unexpected frame %T: %v", f, &frame)
	}
}

func (p *peer) call(req *wire.Request) *wire.Response {
	p.t.Helper()
	return p.await(p.send(req))
}

// expect sends a request and checks the status of the answer.
func (p *peer) expect(status wire.Status_Code, req *wire.Request) *wire.Response {
	p.t.Helper()
	resp := p.call(req)
	if got := resp.GetResult().GetStatus(); got != status {
		p.t.Fatalf("status %v, want %v: %v", got, status, resp)
	}
	return resp
}

// push waits for the next push.
func (p *peer) push() *wire.Push {
	p.t.Helper()
	for len(p.pushes) == 0 {
		p.read()
	}
	push := p.pushes[0]
	p.pushes = p.pushes[1:]
	return push
}

// goodbye reads up to the node's goodbye, which must be followed by the end of the stream.
func goodbye(t *testing.T, r *transport.FrameReader) *wire.Goodbye {
	t.Helper()
	for {
		var frame wire.ServerFrame
		if err := r.Read(&frame); err != nil {
			t.Fatal("no goodbye came:", err)
		}
		if bye := frame.GetGoodbye(); bye != nil {
			if err := r.Read(&frame); !errors.Is(err, io.EOF) {
				t.Fatalf("after the goodbye: %v, want EOF", err)
			}
			return bye
		}
	}
}

func (p *peer) goodbye(code wire.Goodbye_Code) *wire.Goodbye {
	p.t.Helper()
	bye := goodbye(p.t, p.r)
	if bye.GetCode() != code {
		p.t.Fatalf("goodbye %v, want %v", bye, code)
	}
	return bye
}

var secret = []byte("0123456789abcdef")

// open opens a session with this secret and returns its ID.
func (p *peer) open(secret []byte) uint64 {
	p.t.Helper()
	resp := p.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_OpenSession{OpenSession: &wire.OpenRequest{Secret: secret}}})
	return resp.GetResult().GetSession().GetSessionId()
}

func attach(session uint64, secret []byte) *wire.Request {
	return &wire.Request{SessionId: session, Body: &wire.Request_Attach{Attach: &wire.AttachRequest{Secret: secret}}}
}

func acquire(session, seq uint64, name string, forever bool) *wire.Request {
	return &wire.Request{SessionId: session, Seq: seq, Body: &wire.Request_Acquire{Acquire: &wire.Acquire{
		Locks: []*wire.LockRequest{{Name: name}}, WaitForever: forever,
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

// logBuffer is a log that tests can read.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.buf.Bytes(), []byte(text))
}
