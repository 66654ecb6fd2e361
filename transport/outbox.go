package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
)

var (
	// ErrSlowConsumer is returned when the peer does not read what it is sent: the Outbox is full, or a
	// write took too long.
	ErrSlowConsumer = errors.New("the other side reads too slowly")
	// ErrOutboxClosed is returned when something is sent after Close.
	ErrOutboxClosed = errors.New("outbox closed")
)

// OutboxConfig bounds an Outbox. A zero field means its default.
type OutboxConfig struct {
	// MaxFrame bounds one message, in bytes. Default: DefaultMaxFrame.
	MaxFrame int
	// MaxBytes bounds the bytes queued and being written. Default: 4 MiB. A single frame always fits.
	MaxBytes int
	// WriteTimeout bounds one write. Default: 10 s.
	WriteTimeout time.Duration
	// FlushTimeout bounds Close. Default: 1 s.
	FlushTimeout time.Duration
	// Meter counts the memory of the buffers beyond OutboxUncounted; nil counts nothing. It is called
	// with the Outbox's lock held.
	Meter Meter
}

const (
	// OutboxUncounted is the part of an Outbox's buffers that is not reported to the Meter, in bytes.
	OutboxUncounted = 16 << 10
	// meterStep is the smallest change of the counted part, in bytes.
	meterStep = 16 << 10
)

func (c OutboxConfig) withDefaults() OutboxConfig {
	if c.MaxFrame == 0 {
		c.MaxFrame = DefaultMaxFrame
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 4 << 20
	}
	c.MaxBytes = max(c.MaxBytes, c.MaxFrame+HeaderSize)
	if c.WriteTimeout == 0 {
		c.WriteTimeout = 10 * time.Second
	}
	if c.FlushTimeout == 0 {
		c.FlushTimeout = time.Second
	}
	return c
}

// Outbox is the sending half of a connection: a bounded queue of frames and one goroutine that writes
// them, except for FlushHere. Everything queued when the goroutine gets to write is sent with one write,
// so the busier a connection is, the fewer system calls it needs per frame.
//
// Messages are encoded when they are sent and may be changed afterwards. All methods are safe for
// concurrent use. NewOutbox starts the goroutine, Close stops it.
type Outbox struct {
	conn net.Conn
	now  *writeNow // nil if conn cannot be written without waiting
	cfg  OutboxConfig
	done chan struct{} // closed when the writer has ended

	mu      sync.Mutex
	wake    sync.Cond // wakes the writer: due or closing
	queue   []byte    // encoded frames in order
	writing int       // bytes of the write in progress
	other   int       // capacity of the buffer that is not queue
	counted int       // capacity reported to the Meter, plus OutboxUncounted
	due     bool      // the queue has to be written
	room    chan struct{}
	closing bool
	flushBy time.Time // deadline of all writes once closing is set
	err     error     // why the writer ended early
}

// NewOutbox returns an Outbox for conn. Nothing else may write to conn until Close has returned.
func NewOutbox(conn net.Conn, cfg OutboxConfig) *Outbox {
	o := &Outbox{conn: conn, now: newWriteNow(conn), cfg: cfg.withDefaults(), done: make(chan struct{}), counted: OutboxUncounted}
	o.wake.L = &o.mu
	go o.run()
	return o
}

// Send queues m and wakes the writer. It never waits. It returns ErrSlowConsumer if the queue is full,
// ErrOutboxClosed, or the error that ended the writer. If the queue is full, m is not queued, and a
// connection that must not miss anything has to be closed. ErrFrameTooLarge and ErrUnencodable concern
// only m: the Outbox continues without it.
func (o *Outbox) Send(m proto.Message) error { return o.put(m, true, o.cfg.MaxBytes) }

// Queue is Send, but m may stay queued until the next Flush or Send. Use it to send several frames
// with one write.
func (o *Outbox) Queue(m proto.Message) error { return o.put(m, false, o.cfg.MaxBytes) }

// Flush makes the writer write everything queued. It does not wait for that.
func (o *Outbox) Flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.startWriting()
}

// FlushHere is Flush, but if no write is in progress, the caller itself writes what the connection takes
// without waiting, which saves waking the writer. Use it when no further frame is expected soon:
// concurrent senders wait for the system call.
func (o *Outbox) FlushHere() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now != nil && o.writing == 0 && !o.due && !o.closing && len(o.queue) > 0 {
		rest := o.queue[o.now.write(o.queue):]
		o.queue = append(reusable(o.queue), rest...)
		o.uncount()
		o.signalSpace()
	}
	o.startWriting()
}

func (o *Outbox) startWriting() {
	if len(o.queue) > 0 && !o.due {
		o.due = true
		o.wake.Signal()
	}
}

// SendWait is Send, but waits for room. It returns ctx's error if ctx ends first.
func (o *Outbox) SendWait(ctx context.Context, m proto.Message) error {
	return o.SendWithin(ctx, m, o.cfg.MaxBytes)
}

// SendWithin is SendWait, but waits until at most so many bytes are queued including m, or only m. Large
// frames that are not urgent thus leave room for others.
func (o *Outbox) SendWithin(ctx context.Context, m proto.Message, bytes int) error {
	for {
		err := o.put(m, true, bytes)
		if !errors.Is(err, errFull) {
			return err
		}
		select {
		case <-o.spaceFreed():
		case <-o.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errFull distinguishes a full queue, which is temporary, from a writer that has given up.
var errFull = fmt.Errorf("%w: its queue is full", ErrSlowConsumer)

func (o *Outbox) put(m proto.Message, flush bool, most int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	if o.closing {
		return ErrOutboxClosed
	}
	queue, size, done := appendFrequent(o.queue, m)
	waiting := len(o.queue) + o.writing
	if size > o.cfg.MaxFrame {
		return tooLarge(size, o.cfg.MaxFrame)
	}
	if waiting+HeaderSize+size > min(most, o.cfg.MaxBytes) && waiting > 0 {
		o.startWriting() // without this, frames that were only queued would never make room
		return errFull
	}
	if !done {
		var err error
		if queue, err = appendSized(o.queue, m, size); err != nil {
			return err
		}
	}
	if cap(queue)+o.other > o.counted {
		if err := o.count(cap(queue) + o.other); err != nil {
			o.startWriting()
			return err
		}
	}
	o.queue = queue
	if flush {
		o.startWriting()
	}
	return nil
}

// count reports to the Meter that the buffers take more memory.
func (o *Outbox) count(held int) error {
	if o.cfg.Meter == nil {
		return nil
	}
	more := max(held-o.counted, meterStep)
	if err := o.cfg.Meter.Reserve(more); err != nil {
		return fmt.Errorf("%w: %w", ErrSlowConsumer, err)
	}
	o.counted += more
	return nil
}

// uncount reports to the Meter that the buffers take less memory.
func (o *Outbox) uncount() {
	if less := o.counted - max(cap(o.queue)+o.other, OutboxUncounted); o.cfg.Meter != nil && less >= meterStep {
		o.cfg.Meter.Release(less)
		o.counted -= less
	}
}

// spaceFreed returns a channel that is closed after the write in progress or, if there is none,
// after the next one.
func (o *Outbox) spaceFreed() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue)+o.writing == 0 {
		return closed
	}
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return o.room
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (o *Outbox) signalSpace() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// Queued returns the number of bytes that are not written yet.
func (o *Outbox) Queued() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue) + o.writing
}

// Done returns a channel that is closed when nothing will be written any more: after Close, or when a
// write failed. In the second case the Outbox has closed the connection, so its reader ends as well.
func (o *Outbox) Done() <-chan struct{} { return o.done }

// Err returns the error that ended the writer early: ErrSlowConsumer if a write took too long. It is nil
// while the writer runs, and after a Close that wrote everything.
func (o *Outbox) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Close writes what is queued and then goodbye, unless that is nil, waits for the writer to end, for at
// most FlushTimeout, and returns Err. It does not close the connection: to make sure that the goodbye
// arrives, call Hangup. Further calls only wait.
func (o *Outbox) Close(goodbye proto.Message) error {
	o.mu.Lock()
	if !o.closing && o.err == nil {
		o.closing = true
		if goodbye != nil {
			// The limit does not apply: a full queue is a reason to say goodbye.
			o.queue, _ = AppendFrame(o.queue, goodbye, o.cfg.MaxFrame)
		}
		o.flushBy = time.Now().Add(o.cfg.FlushTimeout)
		_ = o.conn.SetWriteDeadline(o.flushBy) // also ends a write in progress
		o.wake.Signal()
	}
	o.mu.Unlock()
	<-o.done
	return o.Err()
}

// run writes until Close or an error. It alternates between two buffers: one is filled while the
// other is written.
func (o *Outbox) run() {
	defer close(o.done)
	var free []byte
	for {
		batch, ok := o.take(free)
		if !ok {
			return
		}
		err := o.write(batch)
		free = reusable(batch)
		if !o.wrote(err, cap(free)) {
			Cut(o.conn)
			return
		}
	}
}

// reusable empties a buffer for reuse. It drops one that is larger than retained.
func reusable(b []byte) []byte {
	if cap(b) > retained {
		return nil
	}
	return b[:0]
}

// write first writes what the connection takes without waiting, and the rest with a deadline. Setting a
// deadline is expensive, and usually there is no rest.
func (o *Outbox) write(batch []byte) error {
	if o.now != nil {
		batch = batch[o.now.write(batch):]
	}
	if len(batch) == 0 {
		return nil
	}
	o.setDeadline()
	_, err := o.conn.Write(batch)
	return err
}

// setDeadline sets the deadline of a write. It holds mu, so that it cannot overwrite the shorter one of Close.
func (o *Outbox) setDeadline() {
	o.mu.Lock()
	defer o.mu.Unlock()
	deadline := o.flushBy
	if !o.closing {
		deadline = time.Now().Add(o.cfg.WriteTimeout)
	}
	_ = o.conn.SetWriteDeadline(deadline)
}

// take waits until the queue is due and replaces it with free.
func (o *Outbox) take(free []byte) (batch []byte, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.due && !o.closing {
		o.wake.Wait()
	}
	o.gather()
	if len(o.queue) == 0 {
		o.signalSpace()
		return nil, false
	}
	batch, o.queue, o.other = o.queue, free, cap(o.queue)
	o.writing, o.due = len(batch), false
	return batch, true
}

// gather yields once, so that goroutines that are about to send can do so. A connection is often shared,
// and many of its users are answered at the same time. Without the yield, the first of them would wake
// the writer, which would run before the second one, and each frame would be a write of its own.
func (o *Outbox) gather() {
	o.mu.Unlock()
	runtime.Gosched()
	o.mu.Lock()
}

// wrote records the end of a write, with the capacity of the free buffer, and reports whether to continue.
func (o *Outbox) wrote(err error, free int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing, o.other = 0, free
	o.uncount()
	o.signalSpace()
	if err == nil {
		return true
	}
	o.queue = nil
	o.err = fmt.Errorf("write to %s: %w", o.conn.RemoteAddr(), err)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		o.err = fmt.Errorf("%w: %w", ErrSlowConsumer, o.err)
	}
	return false
}
