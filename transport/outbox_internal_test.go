package transport

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func text(n int) *wire.Hello { return &wire.Hello{Agent: string(make([]byte, n))} }

// frameSize returns the size of a frame with a text of so many bytes.
func frameSize(n int) int { return HeaderSize + proto.Size(text(n)) }

// piped returns an Outbox and its peer, which does not read.
func piped(t *testing.T, cfg OutboxConfig) (*Outbox, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return NewOutbox(ours, cfg), theirs
}

func TestOutboxDefaults(t *testing.T) {
	want := OutboxConfig{MaxFrame: DefaultMaxFrame, MaxBytes: 4 << 20, WriteTimeout: 10 * time.Second, FlushTimeout: time.Second}
	if got := (OutboxConfig{}).withDefaults(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	want = OutboxConfig{MaxFrame: 1, MaxBytes: 100, WriteTimeout: 3, FlushTimeout: 4}
	if got := want.withDefaults(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := (OutboxConfig{MaxFrame: 1000, MaxBytes: 10}).withDefaults().MaxBytes; got != 1000+HeaderSize {
		t.Errorf("%d bytes are too few for the largest frame", got)
	}
}

// TestOutboxBoundsToTheByte checks that a message and a queue of exactly the maximum size are accepted,
// and one more byte is not.
func TestOutboxBoundsToTheByte(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		size := frameSize(100)
		o, _ := piped(t, OutboxConfig{MaxFrame: size - HeaderSize, MaxBytes: 3 * size})
		if err := o.Queue(text(101)); !errors.Is(err, ErrFrameTooLarge) {
			t.Errorf("a frame a byte too large: %v", err)
		}
		for i := range 2 {
			if err := o.Queue(text(100)); err != nil {
				t.Fatalf("frame %d: %v", i, err)
			}
		}
		if err := o.put(text(100), false, 3*size-1); err != errFull {
			t.Errorf("a byte over the part: %v", err)
		}
		if err := o.put(text(100), false, 1<<20); err != nil {
			t.Errorf("a queue that is just full: %v", err)
		}
		if err := o.put(&wire.Hello{}, false, 1<<20); err != errFull {
			t.Errorf("beyond the whole: %v", err)
		}
		if err := o.Close(nil); !errors.Is(err, ErrSlowConsumer) {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestOutboxGoesOnWithoutWhatCannotBeEncoded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o, theirs := piped(t, OutboxConfig{})
		if err := o.Send(&wire.Hello{Agent: "\xff"}); !errors.Is(err, ErrUnencodable) || o.Queued() != 0 {
			t.Errorf("%v, %d bytes are queued", err, o.Queued())
		}
		if err := o.Send(&wire.Hello{Agent: "ok"}); err != nil {
			t.Error(err)
		}
		var got wire.Hello
		if err := NewFrameReader(theirs, 100).Read(&got); err != nil || got.GetAgent() != "ok" {
			t.Errorf("%q, %v", got.GetAgent(), err)
		}
		if err := o.Close(nil); err != nil {
			t.Error(err)
		}
	})
}

// held returns the capacity of the Outbox's buffers.
func (o *Outbox) held() int { return cap(o.queue) + o.other }

// TestOutboxIsMetered checks that the meter counts every byte beyond the uncounted part, at most one step
// more while the buffers grow, and nothing when everything has been written.
func TestOutboxIsMetered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		meter := &allowance{most: 10 << 20}
		o, theirs := piped(t, OutboxConfig{Meter: meter})
		check := func(when string) {
			t.Helper()
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.counted != meter.held+OutboxUncounted || o.held() > o.counted || o.counted > max(o.held(), OutboxUncounted)+meterStep {
				t.Errorf("%s: the buffers take %d, %d are counted, the meter has %d", when, o.held(), o.counted, meter.held)
			}
		}
		check("at first")
		for range 200 {
			if err := o.Queue(text(1000)); err != nil {
				t.Fatal(err)
			}
			check("while the queue grows")
		}
		if meter.held < 200_000-OutboxUncounted {
			t.Errorf("%d bytes are counted for 200 kB", meter.held)
		}
		o.Flush()
		synctest.Wait()
		if err := o.Queue(text(300_000)); err != nil {
			t.Fatal(err)
		}
		check("while one buffer is written and the other grows")
		r := NewFrameReader(theirs, DefaultMaxFrame)
		var got wire.Hello
		for range 200 {
			if err := r.Read(&got); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		check("after the first write")
		o.Flush()
		if err := r.Read(&got); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		check("at last")
		if meter.held != 0 {
			t.Errorf("%d bytes are counted of empty buffers", meter.held)
		}
		_ = o.Close(nil)
	})
}

// TestOutboxThatMayNotGrow checks that a frame that the meter forbids is not queued, and that the queued
// ones are written.
func TestOutboxThatMayNotGrow(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		meter := &allowance{}
		o, theirs := piped(t, OutboxConfig{Meter: meter})
		if err := o.Queue(text(100)); err != nil {
			t.Fatal(err)
		}
		err := o.Queue(text(OutboxUncounted))
		if !errors.Is(err, ErrSlowConsumer) || !errors.Is(err, errAllowance) || errors.Is(err, errFull) {
			t.Errorf("%v, want ErrSlowConsumer and the meter's error", err)
		}
		if q := o.Queued(); q != frameSize(100) {
			t.Errorf("%d bytes are queued", q)
		}
		var got wire.Hello
		if err := NewFrameReader(theirs, 1000).Read(&got); err != nil || len(got.GetAgent()) != 100 {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		if meter.most = 1 << 20; o.Queue(text(OutboxUncounted)) != nil {
			t.Error("it does not grow though it may")
		}
		go func() { _ = NewFrameReader(theirs, 1<<20).Read(&got) }()
		if err := o.Close(nil); err != nil {
			t.Error(err)
		}
	})
}

// TestOutboxIsClosedOnce checks that a second Close sends nothing more and takes no longer, also
// after a failure.
func TestOutboxIsClosedOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o, _ := piped(t, OutboxConfig{WriteTimeout: time.Hour})
		if err := o.Send(text(10)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		start := time.Now()
		bye := GoodbyeFrame(wire.Goodbye_SHUTDOWN, "bye")
		go func() { _ = o.Close(bye) }()
		<-time.After(time.Second / 2)
		queued := o.Queued()
		time.AfterFunc(time.Second/4, func() {
			if q := o.Queued(); q != queued {
				t.Errorf("%d bytes are queued after the second Close, %d before it", q, queued)
			}
		})
		if err := o.Close(bye); !errors.Is(err, ErrSlowConsumer) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := o.Close(bye); !errors.Is(err, ErrSlowConsumer) || o.Queued() != 0 {
			t.Errorf("%v, %d bytes are queued after a failure", err, o.Queued())
		}
		if err := o.Send(text(10)); !errors.Is(err, ErrSlowConsumer) {
			t.Errorf("Send after a failure: %v", err)
		}
	})
}

// TestOutboxOfABrokenConnection checks that a broken connection is not reported as a slow consumer.
func TestOutboxOfABrokenConnection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o, theirs := piped(t, OutboxConfig{})
		_ = theirs.Close()
		if err := o.Send(text(10)); err != nil {
			t.Fatal(err)
		}
		<-o.Done()
		if err := o.Err(); err == nil || errors.Is(err, ErrSlowConsumer) || o.Queued() != 0 {
			t.Errorf("%v, %d bytes are queued", err, o.Queued())
		}
		if err := o.SendWait(context.Background(), text(10)); err == nil || err != o.Err() {
			t.Errorf("%v, want what broke it", err)
		}
		if err := o.Close(GoodbyeFrame(wire.Goodbye_IDLE, "")); err != o.Err() || o.Queued() != 0 {
			t.Errorf("Close: %v, %d bytes are queued", err, o.Queued())
		}
	})
}
