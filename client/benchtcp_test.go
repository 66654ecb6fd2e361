package client

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// prompt is a node that grants everything immediately over real TCP, at the lowest possible cost. Its
// benchmarks measure the client and the system calls of both sides.
type prompt struct {
	listener net.Listener
	serving  sync.WaitGroup
}

func newPrompt(b testing.TB) *prompt {
	l, err := transport.TCP{}.Listen(b.Context(), "127.0.0.1:0")
	ok(b, err)
	p := &prompt{listener: l}
	p.serving.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			p.serving.Go(func() {
				defer nc.Close()
				p.serve(nc)
			})
		}
	})
	b.Cleanup(func() {
		_ = l.Close()
		p.serving.Wait()
	})
	return p
}

// serve answers everything that has arrived in one write.
func (p *prompt) serve(nc net.Conn) {
	_, in, err := transport.ServerHandshake(context.Background(), nc, func(*wire.Hello) (*wire.HelloReply, *wire.Goodbye) {
		return &wire.HelloReply{NodeId: "n1", Leader: &wire.LeaderHint{Id: "n1", Term: 1}, MaxInFlight: 1024}, nil
	})
	var requests wire.ClientFrameDecoder
	var out []byte
	response := &wire.Response{RemainingTtlMs: 59_999}
	answer := &wire.ServerFrame{Frame: &wire.ServerFrame_Response{Response: response}}
	result := &wire.Result{}
	holds := uint64(0)
	for err == nil {
		if err = in.ReadBy(&requests); err != nil {
			return
		}
		req := requests.Frame.GetRequest()
		*result = wire.Result{Status: wire.Status_OK, Seq: req.GetSeq(), Revision: req.GetSeq()}
		switch req.GetBody().(type) {
		case *wire.Request_OpenSession:
			result.Session = &wire.SessionState{SessionId: req.GetId(), TtlMs: 60_000}
		case *wire.Request_Acquire:
			holds++
			result.Status, result.HoldId, result.Token, result.Count = wire.Status_GRANTED, holds, holds, 1
			result.Digest, result.Name = req.Digest(), req.GetAcquire().GetLocks()[0].GetName()
		}
		response.Id, response.Result = req.GetId(), result
		if out, err = transport.AppendFrame(out, answer, transport.DefaultMaxFrame); err == nil && in.Buffered() == 0 {
			_, err = nc.Write(out)
			out = out[:0]
		}
	}
}

// sessions opens n sessions that share a connection.
func (p *prompt) sessions(t testing.TB, n int) (all []*Session) {
	c, err := New(Config{Endpoints: []string{p.listener.Addr().String()}})
	ok(t, err)
	t.Cleanup(func() { _ = c.Close() })
	for range n {
		s, err := c.NewSession(t.Context(), SessionOptions{TTL: time.Minute})
		ok(t, err)
		all = append(all, s)
	}
	return all
}

// BenchmarkPairs measures a lock and its release over real TCP. Compare the CPU time of a fixed number of
// pairs.
func BenchmarkPairs(b *testing.B) {
	for _, shape := range []struct{ connections, callers int }{{1, 1}, {128, 1}, {1, 64}, {16, 64}} {
		b.Run(fmt.Sprintf("%dx%d", shape.connections, shape.callers), func(b *testing.B) {
			p := newPrompt(b)
			var callers []*Session
			for range shape.connections {
				callers = append(callers, p.sessions(b, shape.callers)...)
			}
			b.ReportAllocs()
			b.ResetTimer()
			pairs(b, callers, b.N)
		})
	}
}

// pairs makes each session lock and unlock its share of n times.
func pairs(b testing.TB, sessions []*Session, n int) {
	ctx := context.Background()
	var working sync.WaitGroup
	for i, s := range sessions {
		working.Go(func() {
			name := fmt.Sprint("orders/", i)
			for range n / len(sessions) {
				hold, err := s.Lock(ctx, name)
				if err == nil {
					err = hold.Unlock(ctx)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	working.Wait()
}
