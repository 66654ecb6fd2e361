package transport

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// Receiver is whom [FrameReader.Receive] tells what it reads. Any error of a Receiver ends
// the reading.
type Receiver interface {
	Decoder
	// Received is called after each frame that was decoded.
	Received() error
	// Rested is called when all was received that a read has brought, before the next read,
	// which may wait. begun says whether part of another frame is there. It is the place
	// to set a deadline.
	Rested(begun bool) error
	// Overdue is called when a deadline for reading has passed. Nil is to read on, by the
	// deadline that it has set.
	Overdue() error
}

// Receive reads until an error, which it returns, and tells to of every frame. The errors of
// reading are those of Read.
//
// Most requests come alone on a connection, and for Go each costs two reads of which the
// second learns that there is nothing more. Where the system tells that with the first,
// Receive does without the second. It then calls to while the connection is being read:
// Close of the connection waits until to returns: to must not close it, nor may who closes it
// hold what to waits for. A deadline in the past ends the reading without waiting. And a reset
// that arrived together with data is seen by the next read or write, or when the deadline
// passes.
func (r *FrameReader) Receive(to Receiver) error {
	err := r.received(to) // what came with the last frame that was read
	read := r.receiveWaiting
	if in := newInflow(r, to); in != nil {
		read = in.receive
	}
	for err == nil {
		err = read(to)
	}
	return r.unexpected(err)
}

// received passes on what has arrived.
func (r *FrameReader) received(to Receiver) error {
	for {
		frame, err := r.arrived()
		if err != nil {
			return err
		}
		if frame == nil {
			return to.Rested(r.Buffered() > 0)
		}
		if err := malformed(to.Decode(frame)); err != nil {
			return err
		}
		if err := to.Received(); err != nil {
			return err
		}
	}
}

// receiveWaiting reads once from what can only be read and waited for in one.
func (r *FrameReader) receiveWaiting(to Receiver) error {
	err := r.fill()
	switch {
	case err == nil:
		return r.received(to)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return to.Overdue()
	}
	return err
}

// inflow reads a connection whose system tells with each read whether there is more.
type inflow struct {
	*FrameReader
	to   Receiver
	raw  syscall.RawConn
	try  func(fd uintptr) bool // the method drain, bound once and for all
	hint hint
	err  error
}

// newInflow returns nil if r does not read such a connection.
func newInflow(r *FrameReader, to Receiver) *inflow {
	raw := descriptor(r.from)
	if raw == nil || !giveHints(raw) {
		return nil
	}
	in := &inflow{FrameReader: r, to: to, raw: raw}
	in.try = in.drain
	return in
}

// receive reads until an error or a deadline.
func (in *inflow) receive(to Receiver) error {
	err := in.raw.Read(in.try)
	switch {
	case err == nil:
		return in.err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return to.Overdue()
	}
	return err
}

// drain reads what is there. It returns false to wait for more, which the poller only tells
// if it came after the last read, or if that has not seen the end of what was there. The
// poller forgets what came before the first call, which is why that always reads.
func (in *inflow) drain(fd uintptr) bool {
	for more := true; more; {
		var n int
		var room []byte
		if room, in.err = in.room(); in.err != nil {
			return true
		}
		n, more, in.err = in.hint.read(int(fd), room)
		switch {
		case in.err == syscall.EAGAIN:
			return false
		case in.err != nil:
			in.err = os.NewSyscallError("recvmsg", in.err)
		case n == 0:
			in.err = io.EOF
		default:
			in.end += n
			in.err = in.received(in.to)
		}
		if in.err != nil {
			return true
		}
	}
	return false
}
