package transport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func welcome(*wire.Hello) (*wire.HelloReply, *wire.Goodbye) {
	return &wire.HelloReply{NodeId: "n1", MaxFrameBytes: 500}, nil
}

type served struct {
	hello  *wire.Hello
	reader *transport.FrameReader
	err    error
}

// serve runs the node's side on one end of a pipe and returns the other.
func serve(ctx context.Context, answer func(*wire.Hello) (*wire.HelloReply, *wire.Goodbye)) (net.Conn, net.Conn, <-chan served) {
	client, server := net.Pipe()
	done := make(chan served, 1)
	go func() {
		hello, r, err := transport.ServerHandshake(ctx, server, answer)
		if err != nil {
			transport.Hangup(server, time.Second)
		}
		done <- served{hello, r, err}
	}()
	return client, server, done
}

func TestHandshake(t *testing.T) {
	client, server, done := serve(t.Context(), welcome)
	defer server.Close()
	defer client.Close()
	reply, r, err := transport.ClientHandshake(t.Context(), client, &wire.Hello{Agent: "test/1"})
	if err != nil {
		t.Fatal(err)
	}
	s := <-done
	if s.err != nil {
		t.Fatal(s.err)
	}
	if reply.GetVersion() != transport.Version || reply.GetNodeId() != "n1" || s.hello.GetAgent() != "test/1" {
		t.Errorf("reply %v, hello %v", reply, s.hello)
	}
	// The node's limit applies on both sides.
	big, err := transport.AppendFrame(nil, sized(600), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for name, way := range map[string]struct {
		from net.Conn
		to   *transport.FrameReader
	}{"to the node": {client, s.reader}, "to the client": {server, r}} {
		go way.from.Write(big)
		if err := way.to.Read(&wire.ClientFrame{}); !errors.Is(err, transport.ErrFrameTooLarge) {
			t.Errorf("%s: %v, want ErrFrameTooLarge", name, err)
		}
	}
}

func TestVersions(t *testing.T) {
	for offered, want := range map[uint32]uint32{1: 1, 2: 1, 99: 1, 0: 0} {
		if got := transport.Negotiate(offered); got != want {
			t.Errorf("offered %d: %d, want %d", offered, got, want)
		}
	}
	// A client with a newer version gets this one.
	client, server, done := serve(t.Context(), welcome)
	defer server.Close()
	defer client.Close()
	reply, _, err := transport.ClientHandshake(t.Context(), client, &wire.Hello{Version: 7})
	if err != nil || reply.GetVersion() != 1 {
		t.Errorf("got version %d, %v", reply.GetVersion(), err)
	}
	<-done
}

func TestVersionZeroIsRefused(t *testing.T) {
	client, _, done := serve(t.Context(), welcome)
	defer client.Close()
	first := &wire.ClientFrame{Frame: &wire.ClientFrame_Hello{Hello: &wire.Hello{}}}
	go transport.NewFrameWriter(client, 1000).WriteFirst(first)
	var f wire.ServerFrame
	if err := transport.NewFrameReader(client, 1000).Read(&f); err != nil {
		t.Fatal(err)
	}
	if f.GetGoodbye().GetCode() != wire.Goodbye_VERSION {
		t.Errorf("got %v, want a goodbye", &f)
	}
	if s := <-done; !errors.Is(s.err, transport.ErrVersion) || !errors.Is(s.err, transport.ErrGoodbye) {
		t.Errorf("the node's side: %v, want ErrVersion", s.err)
	}
}

func TestNodeRefuses(t *testing.T) {
	client, _, done := serve(t.Context(), func(*wire.Hello) (*wire.HelloReply, *wire.Goodbye) {
		return nil, &wire.Goodbye{Code: wire.Goodbye_SHUTDOWN, Message: "restarting"}
	})
	defer client.Close()
	_, _, err := transport.ClientHandshake(t.Context(), client, nil)
	var bye *transport.GoodbyeError
	if !errors.As(err, &bye) || bye.Code != wire.Goodbye_SHUTDOWN || !strings.Contains(err.Error(), "restarting") {
		t.Errorf("got %v, want the goodbye", err)
	}
	if s := <-done; !errors.Is(s.err, transport.ErrGoodbye) {
		t.Errorf("the node's side: %v", s.err)
	}
}

func TestRefuse(t *testing.T) {
	client, server := net.Pipe()
	go transport.Refuse(server, wire.Goodbye_TOO_MANY_CONNECTIONS, "1000 connections", time.Second)
	go io.Copy(io.Discard, server)
	_, _, err := transport.ClientHandshake(t.Context(), client, &wire.Hello{})
	var bye *transport.GoodbyeError
	if !errors.As(err, &bye) || bye.Code != wire.Goodbye_TOO_MANY_CONNECTIONS {
		t.Errorf("got %v, want the goodbye", err)
	}
	_ = client.Close()
}

func TestFirstFramesThatAreNoHello(t *testing.T) {
	frame := func(b string) string { return transport.Preface + b }
	for name, c := range map[string]struct {
		send string
		want error
		code wire.Goodbye_Code
	}{
		"HTTP":        {"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", transport.ErrPreface, 0},
		"oversized":   {frame("\x7f\xff\xff\xff"), transport.ErrFrameTooLarge, wire.Goodbye_FRAME_TOO_LARGE},
		"no protobuf": {frame("\x00\x00\x00\x02\xff\xff"), transport.ErrMalformed, wire.Goodbye_PROTOCOL_ERROR},
		"empty":       {frame("\x00\x00\x00\x00"), transport.ErrGoodbye, wire.Goodbye_PROTOCOL_ERROR},
	} {
		t.Run(name, func(t *testing.T) {
			client, _, done := serve(t.Context(), welcome)
			defer client.Close()
			go io.WriteString(client, c.send)
			var f wire.ServerFrame
			err := transport.NewFrameReader(client, 1000).Read(&f)
			if c.code != 0 && (err != nil || f.GetGoodbye().GetCode() != c.code) {
				t.Errorf("the client reads %v (%v), want goodbye %v", &f, err, c.code)
			}
			if c.code == 0 && err != io.EOF {
				t.Errorf("the client reads %v, want io.EOF", err)
			}
			if s := <-done; !errors.Is(s.err, c.want) {
				t.Errorf("the node's side: %v, want %v", s.err, c.want)
			}
		})
	}
}

func TestNodeThatAnswersNonsense(t *testing.T) {
	for name, c := range map[string]struct {
		answer *wire.ServerFrame
		want   error
	}{
		"a higher version": {&wire.ServerFrame{Frame: &wire.ServerFrame_Hello{Hello: &wire.HelloReply{Version: 2}}}, transport.ErrVersion},
		"no version":       {&wire.ServerFrame{Frame: &wire.ServerFrame_Hello{Hello: &wire.HelloReply{}}}, transport.ErrVersion},
		"no hello":         {&wire.ServerFrame{}, transport.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			defer client.Close()
			go func() {
				defer server.Close()
				r := transport.NewFrameReader(server, 1000)
				_, _ = r.ReadPreface(), r.Read(&wire.ClientFrame{})
				_ = transport.NewFrameWriter(server, 1000).Write(c.answer)
			}()
			if _, _, err := transport.ClientHandshake(t.Context(), client, nil); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// TestHandshakesEndInTime checks that a caller that sends nothing, or a byte now and then, is cut exactly
// at the deadline.
func TestHandshakesEndInTime(t *testing.T) {
	for name, speak := range map[string]func(net.Conn){
		"half open": func(net.Conn) {},
		"slow": func(conn net.Conn) {
			slow := append([]byte(transport.Preface), make([]byte, 100)...)
			slow[len(transport.Preface)+3] = 90
			for _, b := range slow {
				if _, err := conn.Write([]byte{b}); err != nil {
					return
				}
				elapse(time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				start := time.Now()
				client, _, done := serve(t.Context(), welcome)
				var speaking sync.WaitGroup
				speaking.Go(func() { speak(client) })
				s := <-done
				if !errors.Is(s.err, os.ErrDeadlineExceeded) {
					t.Errorf("got %v, want a deadline exceeded", s.err)
				}
				if d := time.Since(start); d < transport.HandshakeTimeout || d > transport.HandshakeTimeout+time.Second {
					t.Errorf("it took %v", d)
				}
				_ = client.Close()
				speaking.Wait()
			})
		})
	}
}

func TestClientDoesNotWaitForASilentNode(t *testing.T) {
	short := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Second)
	}
	cancelled := func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Second, cancel)
		return ctx, cancel
	}
	for name, c := range map[string]struct {
		limit func(context.Context) (context.Context, context.CancelFunc)
		after time.Duration
		want  error
	}{
		"without a limit of its own": {context.WithCancel, transport.HandshakeTimeout, os.ErrDeadlineExceeded},
		"a shorter deadline":         {short, time.Second, context.DeadlineExceeded},
		"cancelled":                  {cancelled, time.Second, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ctx, cancel := c.limit(t.Context())
				defer cancel()
				client, server := net.Pipe()
				go io.Copy(io.Discard, server)
				start := time.Now()
				_, _, err := transport.ClientHandshake(ctx, client, nil)
				if !errors.Is(err, c.want) || time.Since(start) != c.after {
					t.Errorf("after %v: %v, want %v after %v", time.Since(start), err, c.want, c.after)
				}
				_, _ = client.Close(), server.Close()
			})
		})
	}
}

func TestNoDeadlineIsLeftBehind(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		client, server, done := serve(t.Context(), welcome)
		_, r, err := transport.ClientHandshake(t.Context(), client, nil)
		if err != nil || (<-done).err != nil {
			t.Fatal("handshake failed")
		}
		elapse(time.Hour)
		go transport.NewFrameWriter(server, 100).Write(&wire.ServerFrame{})
		if err := r.Read(&wire.ServerFrame{}); err != nil {
			t.Error(err)
		}
		_, _ = client.Close(), server.Close()
	})
}
