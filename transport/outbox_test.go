package transport_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// sendAll sends requests with these ids.
func sendAll(send func(proto.Message) error, from, to uint64) error {
	for i := from; i <= to; i++ {
		if err := send(request(i)); err != nil {
			return err
		}
	}
	return nil
}

func wantRequests(t *testing.T, stream []byte, n uint64) {
	t.Helper()
	r := transport.NewFrameReader(bytes.NewReader(stream), transport.DefaultMaxFrame)
	for i := uint64(1); i <= n; i++ {
		var f wire.ClientFrame
		if err := r.Read(&f); err != nil {
			t.Fatalf("frame %d of %d: %v", i, n, err)
		}
		if f.GetRequest().GetId() != i {
			t.Fatalf("frame %d has id %d", i, f.GetRequest().GetId())
		}
	}
	if err := r.Read(&wire.ClientFrame{}); err != io.EOF {
		t.Fatalf("after %d frames: %v, want io.EOF", n, err)
	}
}

func TestOutboxWritesWhatIsQueuedAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		conn := newGate()
		o := transport.NewOutbox(conn, transport.OutboxConfig{})
		if err := sendAll(o.Send, 1, 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the writer is blocked in its first write
		if err := sendAll(o.Send, 2, 500); err != nil {
			t.Fatal(err)
		}
		close(conn.open)
		synctest.Wait()
		if n := conn.writes.Load(); n != 2 {
			t.Errorf("%d writes for 500 frames, want 2", n)
		}
		if err := sendAll(o.Queue, 501, 600); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := conn.writes.Load(); n != 2 {
			t.Errorf("Queue alone made a write")
		}
		o.Flush()
		synctest.Wait()
		if n := conn.writes.Load(); n != 3 {
			t.Errorf("%d writes after a flush of 100 frames, want 3", n)
		}
		if err := o.Close(nil); err != nil {
			t.Fatal(err)
		}
		wantRequests(t, conn.bytes(), 600)
	})
}

func TestOutboxIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		conn := newGate()
		const bound = 4096
		o := transport.NewOutbox(conn, transport.OutboxConfig{MaxFrame: 1000, MaxBytes: bound})
		sent, err := uint64(0), error(nil)
		for err == nil {
			if err = o.Send(request(sent + 1)); err == nil {
				sent++
			}
		}
		if !errors.Is(err, transport.ErrSlowConsumer) {
			t.Fatalf("full: %v, want ErrSlowConsumer", err)
		}
		if q := o.Queued(); q > bound || q < bound/2 {
			t.Errorf("%d bytes queued, the bound is %d", q, bound)
		}
		if err := o.Send(sized(2000)); !errors.Is(err, transport.ErrFrameTooLarge) {
			t.Errorf("a frame over the limit: %v, want ErrFrameTooLarge", err)
		}
		// Back-pressure: of two waiting senders, one gives up and the other is served.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := o.SendWait(ctx, request(0)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waited: %v, want DeadlineExceeded", err)
		}
		waited := make(chan error, 1)
		go func() { waited <- o.SendWait(context.Background(), request(sent+1)) }()
		synctest.Wait()
		close(conn.open)
		if err := <-waited; err != nil {
			t.Errorf("room was made: %v", err)
		}
		if err := o.Close(nil); err != nil {
			t.Fatal(err)
		}
		wantRequests(t, conn.bytes(), sent+1)
		if err := o.Send(request(1)); !errors.Is(err, transport.ErrOutboxClosed) {
			t.Errorf("after Close: %v, want ErrOutboxClosed", err)
		}
	})
}

// TestOutboxTakesAFrameLargerThanItsBound checks that a single frame is accepted whatever the limit,
// because otherwise it could never be sent.
func TestOutboxTakesAFrameLargerThanItsBound(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		conn := newGate()
		close(conn.open)
		o := transport.NewOutbox(conn, transport.OutboxConfig{MaxBytes: 10})
		for range 3 {
			if err := o.SendWait(t.Context(), sized(500_000)); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.Close(nil); err != nil {
			t.Fatal(err)
		}
	})
}

// TestOutboxKeepsRoomBeyondAPart checks that a sender that waits for a part of the outbox leaves the rest
// to others, and is served in the end.
func TestOutboxKeepsRoomBeyondAPart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		conn := newGate()
		const part = 1000
		o := transport.NewOutbox(conn, transport.OutboxConfig{})
		var waiting sync.WaitGroup
		for i := range uint64(8) {
			waiting.Go(func() {
				for range 10 {
					if err := o.SendWithin(t.Context(), sized(400), part); err != nil {
						t.Errorf("%d: %v", i, err)
					}
				}
			})
		}
		synctest.Wait()
		if q := o.Queued(); q > part || q < part/2 {
			t.Errorf("%d bytes queued, the part is %d", q, part)
		}
		if err := o.Send(sized(100_000)); err != nil {
			t.Errorf("beyond the part: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := o.SendWithin(ctx, sized(400), part); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waited: %v, want DeadlineExceeded", err)
		}
		close(conn.open)
		waiting.Wait()
		if err := o.SendWithin(t.Context(), sized(10_000), part); err != nil {
			t.Errorf("larger than the part: %v", err)
		}
		if err := o.Close(nil); err != nil {
			t.Fatal(err)
		}
		if err := o.SendWithin(t.Context(), sized(400), part); !errors.Is(err, transport.ErrOutboxClosed) {
			t.Errorf("after Close: %v, want ErrOutboxClosed", err)
		}
	})
}

func TestPeerThatDoesNotReadIsCut(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		o := transport.NewOutbox(ours, transport.OutboxConfig{WriteTimeout: 3 * time.Second})
		start := time.Now()
		if err := o.Send(request(1)); err != nil {
			t.Fatal(err)
		}
		<-o.Done()
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("cut after %v, want 3s", d)
		}
		for what, err := range map[string]error{
			"Err": o.Err(), "Send": o.Send(request(2)), "SendWait": o.SendWait(t.Context(), request(2)), "Close": o.Close(nil),
		} {
			if !errors.Is(err, transport.ErrSlowConsumer) {
				t.Errorf("%s: %v, want ErrSlowConsumer", what, err)
			}
		}
		if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the reader of a connection that was cut: %v", err)
		}
	})
}

func TestGoodbyeIsTheLastFrame(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		o := transport.NewOutbox(ours, transport.OutboxConfig{})
		if err := o.Queue(&wire.ServerFrame{}); err != nil {
			t.Fatal(err)
		}
		var last wire.ServerFrame
		var reading sync.WaitGroup
		reading.Go(func() {
			r := transport.NewFrameReader(theirs, 1000)
			for r.Read(&last) == nil && last.GetGoodbye() == nil {
			}
			_ = theirs.Close()
		})
		if err := o.Close(transport.GoodbyeFrame(wire.Goodbye_IDLE, "silent for a minute")); err != nil {
			t.Fatal(err)
		}
		reading.Wait()
		if last.GetGoodbye().GetCode() != wire.Goodbye_IDLE {
			t.Errorf("the last frame is %v", &last)
		}
		if err := o.Close(nil); err != nil {
			t.Errorf("a second Close: %v", err)
		}
		_ = ours.Close()
	})
}

// TestCloseDoesNotWaitForAPeerThatDoesNotRead checks that Close keeps its limit even if a write with a
// later deadline is in progress.
func TestCloseDoesNotWaitForAPeerThatDoesNotRead(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		o := transport.NewOutbox(ours, transport.OutboxConfig{WriteTimeout: time.Hour, FlushTimeout: time.Second})
		if err := o.Send(request(1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		start := time.Now()
		if err := o.Close(transport.GoodbyeFrame(wire.Goodbye_SLOW_CONSUMER, "")); !errors.Is(err, transport.ErrSlowConsumer) {
			t.Errorf("got %v, want ErrSlowConsumer", err)
		}
		if d := time.Since(start); d != time.Second {
			t.Errorf("it took %v, want 1s", d)
		}
	})
}

// TestCloseDoesNotWaitForAPeerThatStopsReading checks the same if the peer reads a little, and the rest
// needs a write that starts after Close.
func TestCloseDoesNotWaitForAPeerThatStopsReading(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		o := transport.NewOutbox(ours, transport.OutboxConfig{WriteTimeout: time.Hour, FlushTimeout: time.Second})
		if err := o.Send(request(1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the first write is in progress
		if err := o.Send(request(2)); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second/2, func() {
			if err := transport.NewFrameReader(theirs, 1000).Read(&wire.ClientFrame{}); err != nil {
				t.Error(err)
			}
		})
		start := time.Now()
		if err := o.Close(nil); !errors.Is(err, transport.ErrSlowConsumer) || time.Since(start) != time.Second {
			t.Errorf("%v after %v, want ErrSlowConsumer after 1s", err, time.Since(start))
		}
	})
}

// TestFullQueueIsWritten checks that queued frames without a flush do not keep the queue full forever.
func TestFullQueueIsWritten(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		conn := newGate()
		close(conn.open)
		o := transport.NewOutbox(conn, transport.OutboxConfig{MaxFrame: 1000, MaxBytes: 2000})
		sent := uint64(0)
		for o.Queue(request(sent+1)) == nil {
			sent++
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := o.SendWait(ctx, request(sent+1)); err != nil {
			t.Error(err)
		}
		if err := o.Close(nil); err != nil {
			t.Fatal(err)
		}
		wantRequests(t, conn.bytes(), sent+1)
	})
}

func TestManySendersOneStream(t *testing.T) {
	ours, theirs := net.Pipe()
	const senders, each = 8, 500
	o := transport.NewOutbox(ours, transport.OutboxConfig{MaxFrame: 1000, MaxBytes: 2000})
	var sending sync.WaitGroup
	for s := range uint64(senders) {
		sending.Go(func() {
			for i := range uint64(each) {
				if err := o.SendWait(context.Background(), request(s*each+i+1)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	next := [senders]uint64{}
	r := transport.NewFrameReader(theirs, 1000)
	for range senders * each {
		var f wire.ClientFrame
		if err := r.Read(&f); err != nil {
			t.Fatal(err)
		}
		id := f.GetRequest().GetId() - 1
		if s := id / each; next[s] != id%each {
			t.Fatalf("sender %d: frame %d after %d", s, id%each, next[s])
		}
		next[id/each]++
	}
	sending.Wait()
	if err := o.Close(nil); err != nil {
		t.Fatal(err)
	}
	_, _ = ours.Close(), theirs.Close()
}

// BenchmarkOutbox measures a frame for its sender while the writer keeps up as well as it can: over
// loopback TCP, with frames of several senders per write.
func BenchmarkOutbox(b *testing.B) {
	l, err := transport.TCP{}.Listen(b.Context(), "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	var reading sync.WaitGroup
	reading.Go(func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	})
	tcp, err := transport.TCP{}.Dial(b.Context(), l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	conn := &counting{Conn: tcp}
	o := transport.NewOutbox(conn, transport.OutboxConfig{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		m := request(1)
		for pb.Next() {
			if err := o.SendWait(context.Background(), m); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/float64(max(conn.writes, 1)), "frames/write")
	_ = o.Close(nil)
	_ = conn.Close()
	reading.Wait()
}

// BenchmarkOutboxBurst measures many answers that are due on one connection at the same time: 64 frames
// and their single write.
func BenchmarkOutboxBurst(b *testing.B) {
	const burst = 64
	conn := &drain{counting: counting{Conn: newGate()}, wrote: make(chan int)}
	o := transport.NewOutbox(conn, transport.OutboxConfig{})
	m := request(1)
	want := burst * (transport.HeaderSize + proto.Size(m))
	b.ReportAllocs()
	for b.Loop() {
		for range burst {
			if err := o.Queue(m); err != nil {
				b.Fatal(err)
			}
		}
		o.Flush()
		for left := want; left > 0; {
			left -= <-conn.wrote
		}
	}
	b.ReportMetric(float64(b.N)*burst/float64(conn.writes), "frames/write")
	_ = o.Close(nil)
}

// drain discards what is written and reports how much it was.
type drain struct {
	counting
	wrote chan int
}

func (d *drain) Write(b []byte) (int, error) {
	d.writes++
	d.wrote <- len(b)
	return len(b), nil
}

// counting counts writes. Only one goroutine writes.
type counting struct {
	net.Conn
	writes int
}

func (c *counting) Write(b []byte) (int, error) {
	c.writes++
	return c.Conn.Write(b)
}
