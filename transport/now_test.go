//go:build unix

package transport_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// tap is a TCP connection that counts how it is written to: by Write, which may wait, or without waiting.
type tap struct {
	*net.TCPConn
	waiting, atOnce atomic.Int64
}

func (t *tap) Write(b []byte) (int, error) {
	t.waiting.Add(1)
	return t.TCPConn.Write(b)
}

func (t *tap) Descriptor() (syscall.RawConn, error) {
	raw, err := t.TCPConn.SyscallConn()
	return tapped{raw, t}, err
}

type tapped struct {
	syscall.RawConn
	t *tap
}

func (r tapped) Write(f func(fd uintptr) bool) error {
	r.t.atOnce.Add(1)
	return r.RawConn.Write(f)
}

// connected returns both ends of a TCP connection.
func connected(t testing.TB) (ours *tap, theirs net.Conn) {
	t.Helper()
	l, err := transport.TCP{}.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := transport.TCP{}.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if theirs, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	ours = &tap{TCPConn: conn.(*net.TCPConn)}
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return ours, theirs
}

func TestFlushHereWritesBeforeItReturns(t *testing.T) {
	ours, theirs := connected(t)
	o := transport.NewOutbox(ours, transport.OutboxConfig{})
	for i := uint64(1); i <= 100; i++ {
		if err := o.Queue(request(i)); err != nil {
			t.Fatal(err)
		}
		o.FlushHere()
		if q := o.Queued(); q != 0 {
			t.Fatalf("%d bytes are left to somebody else", q)
		}
	}
	o.FlushHere() // nothing is queued
	if w, n := ours.waiting.Load(), ours.atOnce.Load(); w != 0 || n != 100 {
		t.Errorf("%d writes that may wait and %d at once, want 0 and 100", w, n)
	}
	if err := o.Close(nil); err != nil {
		t.Fatal(err)
	}
	_ = ours.Close()
	stream, err := io.ReadAll(theirs)
	if err != nil {
		t.Fatal(err)
	}
	wantRequests(t, stream, 100)
}

// TestWriterSendsWhatDoesNotFit checks that the writer writes, in order, what the connection
// does not take without waiting.
func TestWriterSendsWhatDoesNotFit(t *testing.T) {
	ours, theirs := connected(t)
	o := transport.NewOutbox(ours, transport.OutboxConfig{MaxBytes: 64 << 20})
	var want bytes.Buffer
	send := func(m *wire.ClientFrame, flush func()) {
		frame, err := transport.AppendFrame(nil, m, transport.DefaultMaxFrame)
		want.Write(frame)
		if err = errors.Join(err, o.Queue(m)); err != nil {
			t.Fatal(err)
		}
		flush()
	}
	for i := range uint64(40) {
		send(sized(500_000), o.FlushHere)
		send(request(i), o.Flush)
		send(request(i), o.FlushHere)
	}
	if o.Queued() == 0 {
		t.Fatal("20 MB fitted at once: nothing is tried")
	}
	closed := make(chan error)
	go func() {
		<-o.Done()
		_ = ours.Close()
		closed <- o.Err()
	}()
	stream := make([]byte, want.Len())
	if _, err := io.ReadFull(theirs, stream); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stream, want.Bytes()) {
		t.Error("the stream is another one")
	}
	if ours.waiting.Load() == 0 {
		t.Error("nothing was left to the writer")
	}
	_ = o.Close(nil)
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestFlushHereCutsSlowReaders checks that a peer that does not read is cut, whether FlushHere or the
// writer writes first.
func TestFlushHereCutsSlowReaders(t *testing.T) {
	for _, flush := range []func(*transport.Outbox){(*transport.Outbox).FlushHere, (*transport.Outbox).Flush} {
		ours, _ := connected(t)
		o := transport.NewOutbox(ours, transport.OutboxConfig{MaxBytes: 64 << 20, WriteTimeout: 10 * time.Millisecond})
		for range 40 {
			if o.Queue(sized(1_000_000)) == nil {
				flush(o)
			}
		}
		<-o.Done()
		if err := o.Err(); !errors.Is(err, transport.ErrSlowConsumer) {
			t.Errorf("%v, want ErrSlowConsumer", err)
		}
		if err := o.Close(nil); !errors.Is(err, transport.ErrSlowConsumer) {
			t.Errorf("Close: %v", err)
		}
	}
}

// TestFramesOfManyLeaveTogether checks that the frames of many senders, each of which sends one and then
// waits, as users of a shared connection do, are sent with few writes.
func TestFramesOfManyLeaveTogether(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ours, theirs := connected(t)
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(io.Discard, theirs) })
	o := transport.NewOutbox(ours, transport.OutboxConfig{})
	const senders, rounds = 64, 50
	for range rounds {
		var sending sync.WaitGroup
		for i := range uint64(senders) {
			sending.Go(func() {
				if err := o.Send(request(i)); err != nil {
					t.Error(err)
				}
			})
		}
		sending.Wait()
	}
	if err := o.Close(nil); err != nil {
		t.Fatal(err)
	}
	_ = ours.Close()
	reading.Wait()
	if n := ours.atOnce.Load() + ours.waiting.Load(); n > senders*rounds/8 {
		t.Errorf("%d writes for %d frames", n, senders*rounds)
	}
}

// BenchmarkLoneFrame measures a single frame, written by its sender, by the writer, and by the writer of
// a connection that cannot be written without waiting.
func BenchmarkLoneFrame(b *testing.B) {
	for _, by := range []struct {
		name  string
		wrap  func(net.Conn) net.Conn
		flush func(*transport.Outbox)
	}{
		{"sender", func(c net.Conn) net.Conn { return c }, (*transport.Outbox).FlushHere},
		{"writer", func(c net.Conn) net.Conn { return c }, (*transport.Outbox).Flush},
		{"waiting", func(c net.Conn) net.Conn { return struct{ net.Conn }{c} }, (*transport.Outbox).Flush},
	} {
		b.Run(by.name, func(b *testing.B) {
			ours, theirs := connected(b)
			var reading sync.WaitGroup
			reading.Go(func() { _, _ = io.Copy(io.Discard, theirs) })
			o := transport.NewOutbox(by.wrap(ours.TCPConn), transport.OutboxConfig{})
			m := request(1)
			b.ReportAllocs()
			for b.Loop() {
				if err := o.Queue(m); err != nil {
					b.Fatal(err)
				}
				for by.flush(o); o.Queued() > 0; {
					runtime.Gosched()
				}
			}
			_, _ = o.Close(nil), ours.Close()
			reading.Wait()
		})
	}
}

// own is a connection that a user of the SDK provides to observe what is written.
type own struct {
	*net.TCPConn
	seen chan []byte
}

func (o own) Write(b []byte) (int, error) {
	o.seen <- bytes.Clone(b)
	return o.TCPConn.Write(b)
}

func TestConnectionsOfOthersAreNotWrittenPast(t *testing.T) {
	plain, _ := connected(t)
	conn := own{plain.TCPConn, make(chan []byte, 1)}
	out := transport.NewOutbox(conn, transport.OutboxConfig{})
	frame := &wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: &wire.Request{Id: 1}}}
	if err := out.Queue(frame); err != nil {
		t.Fatal(err)
	}
	out.FlushHere()
	select {
	case <-conn.seen:
	case <-time.After(10 * time.Second):
		t.Error("a frame was written past the connection that it was given to")
	}
	if err := out.Close(nil); err != nil {
		t.Error(err)
	}
}
