package rpc

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/command"
	"github.com/quorumlock/quorumlock/server/internal/notify"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// prompt is a replica that answers every command immediately with the same result.
type prompt struct {
	Replica // nil: only the methods below may be called
	answer  wire.Result
	flushed func()
}

func (p *prompt) ProposeFrom(_ identity.Sender, _ *wire.Command, done func(*wire.Result)) {
	done(&p.answer)
}
func (p *prompt) ProposeAll(all []command.Proposal) {
	for _, one := range all {
		one.Done(&p.answer)
	}
	p.flushed()
}
func (p *prompt) Heartbeat(_ uint64, _ []*wire.IdleHold, done func(*wire.Result)) {
	done(&p.answer)
	p.flushed()
}
func (p *prompt) OnAnswered(f func()) (cancel func()) {
	p.flushed = f
	return func() {}
}
func (p *prompt) Remaining(uint64) (time.Duration, bool)          { return 9 * time.Second, true }
func (p *prompt) Leader() *wire.LeaderHint                        { return nil }
func (p *prompt) OnLeader(func(*wire.LeaderHint)) (cancel func()) { return func() {} }
func (p *prompt) Bind(uint64, notify.Sink)                        {}
func (p *prompt) CatchUp() bool                                   { return false }

func (p *prompt) Access() *fsm.Access        { return &fsm.Access{} }
func (p *prompt) Unbind(uint64, notify.Sink) {}

// repeated is a connection that delivers the same bytes left times and discards what is written to it.
type repeated struct {
	net.Conn // nil: only the methods below may be called
	bytes    []byte
	left     int
	at       int
}

func (r *repeated) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) && r.left > 0 {
		copied := copy(p[n:], r.bytes[r.at:])
		n, r.at = n+copied, r.at+copied
		if r.at == len(r.bytes) {
			r.at, r.left = 0, r.left-1
		}
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (r *repeated) Write(p []byte) (int, error)      { return len(p), nil }
func (r *repeated) Close() error                     { return nil }
func (r *repeated) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (r *repeated) SetDeadline(time.Time) error      { return nil }
func (r *repeated) SetReadDeadline(time.Time) error  { return nil }
func (r *repeated) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkRequest measures a request from its bytes to those of its answer, without the replica.
func BenchmarkRequest(b *testing.B) {
	acquire := &wire.Acquire{Locks: []*wire.LockRequest{{Name: "orders/4242", Mode: wire.Mode_EXCLUSIVE}}, WaitForever: true}
	release := &wire.Release{HoldId: 5_000_017, Token: 391_484_405_014_593_763}
	for name, req := range map[string]*wire.Request{
		"acquire":   {Id: 70_001, SessionId: 1, Seq: 35_001, AckedBelow: 35_001, Body: &wire.Request_Acquire{Acquire: acquire}},
		"release":   {Id: 70_002, SessionId: 1, Seq: 35_002, AckedBelow: 35_002, Body: &wire.Request_Release{Release: release}},
		"heartbeat": {Id: 70_003, SessionId: 1, Body: &wire.Request_Heartbeat{Heartbeat: &wire.Heartbeat{}}},
	} {
		b.Run(name, func(b *testing.B) { benchmarkRequest(b, req) })
	}
}

func benchmarkRequest(b *testing.B, req *wire.Request) {
	frame, err := transport.AppendFrame(nil, &wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: req}}, transport.DefaultMaxFrame)
	if err != nil {
		b.Fatal(err)
	}
	srv, err := Serve(Config{Listener: newPipes(), Replica: &prompt{answer: wire.Result{Status: wire.Status_OK}}, NodeID: self})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Close(context.Background())
	l := newLink(&repeated{bytes: frame, left: b.N}, srv.cfg.Limits)
	c := newConn(srv, l, &greeted{hello: &wire.Hello{Agent: "bench"}, caller: access.Node(srv.cfg.Replica, "n1"), frames: transport.NewFrameReader(l, transport.DefaultMaxFrame)})
	c.attached[req.SessionId] = struct{}{}
	b.ReportAllocs()
	b.ResetTimer()
	if err := c.frames.Receive(c); err != io.EOF {
		b.Fatal(err)
	}
	b.StopTimer()
	if err := c.out.Close(nil); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPush measures the delivery of a grant to a waiting session.
func BenchmarkPush(b *testing.B) {
	srv, err := Serve(Config{Listener: newPipes(), Replica: &prompt{}, NodeID: self})
	if err != nil {
		b.Fatal(err)
	}
	defer srv.Close(context.Background())
	l := newLink(&repeated{}, srv.cfg.Limits)
	c := newConn(srv, l, &greeted{hello: &wire.Hello{Agent: "bench"}, caller: access.Node(srv.cfg.Replica, "n1"), frames: transport.NewFrameReader(l, transport.DefaultMaxFrame)})
	outcome := &wire.Result{Status: wire.Status_GRANTED, Seq: 35_001, Revision: 5_000_017, HoldId: 5_000_017, Token: 391_484_405_014_593_763, Count: 1}
	push := &wire.Push{SessionId: 1, Body: &wire.Push_Outcome{Outcome: outcome}}
	b.ReportAllocs()
	for b.Loop() {
		c.Push(push)
		srv.flusher.flush()
	}
	if err := c.out.Close(nil); err != nil {
		b.Fatal(err)
	}
}
