package transport

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// Receiver handles what [FrameReader.Receive] reads. An error of any method ends the reading.
type Receiver interface {
	Decoder
	// Received is called after each frame that was decoded.
	Received() error
	// BeforeRead is called when all frames from a read have been received, before the next read, which may
	// wait. begun reports whether a part of another frame has arrived. A deadline should be set here.
	BeforeRead(started bool) error
	// Overdue is called when a read deadline has passed. If it returns nil, reading continues with the
	// deadline that it has set.
	Overdue() error
}

// Receive reads until an error, which it returns, and passes every frame to the Receiver. It returns the
// same read errors as Read.
//
// Most requests arrive alone on a connection. Go needs two reads for each of them, and the second one
// finds nothing. If the system reports that together with the first read, Receive skips the second one.
// This has consequences:
//
//   - The Receiver is called while the connection is held for reading, and Close of the connection waits
//     until the Receiver returns. So the Receiver must not close the connection, and a goroutine that
//     closes it must not hold anything that the Receiver waits for. To end the reading without waiting,
//     set a deadline in the past.
//   - A reset that arrives together with data is only noticed by the next read or write, or when the
//     deadline passes.
func (r *FrameReader) Receive(to Receiver) error {
	err := r.received(to) // frames that arrived with the last one read
	read := r.receiveWaiting
	if in := newSocketReader(r, to); in != nil {
		read = in.receive
	}
	for err == nil {
		err = read(to)
	}
	return r.unexpected(err)
}

// received passes on the frames that have arrived.
func (r *FrameReader) received(to Receiver) error {
	for {
		frame, err := r.arrived()
		if err != nil {
			return err
		}
		if frame == nil {
			return to.BeforeRead(r.Buffered() > 0)
		}
		if err := malformed(to.Decode(frame)); err != nil {
			return err
		}
		if err := to.Received(); err != nil {
			return err
		}
	}
}

// receiveWaiting reads once from a connection for which reading and waiting cannot be separated.
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

// socketReader reads a connection whose system reports with each read whether there is more.
type socketReader struct {
	*FrameReader
	to   Receiver
	raw  syscall.RawConn
	try  func(fd uintptr) bool // method value of drain, bound only once
	hint hint
	err  error
}

// newSocketReader returns nil if r does not read such a connection.
func newSocketReader(r *FrameReader, to Receiver) *socketReader {
	raw := descriptor(r.from)
	if raw == nil || !giveHints(raw) {
		return nil
	}
	in := &socketReader{FrameReader: r, to: to, raw: raw}
	in.try = in.drain
	return in
}

// receive reads until an error or a deadline.
func (in *socketReader) receive(to Receiver) error {
	err := in.raw.Read(in.try)
	switch {
	case err == nil:
		return in.err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return to.Overdue()
	}
	return err
}

// drain reads everything that has arrived. It returns false to wait for more. The poller only reports
// data that arrives after the last read or that the last read has left behind. It forgets what arrived
// before the first call, so drain always reads first.
func (in *socketReader) drain(fd uintptr) bool {
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
