package resp

import (
	"bytes"
	"fmt"
	"io"

	"github.com/tidwall/redcon"
)

// Limits bounds a command.
type Limits struct {
	// MaxBytes bounds a command with its headers, and so each of its arguments.
	MaxBytes int
	// MaxArguments bounds the arguments of a command, its name included.
	MaxArguments int
	// MaxInlineBytes bounds a command that is a line of text. redcon allocates the rest of the line for each argument, so
	// the memory is quadratic in this bound.
	MaxInlineBytes int
}

// DefaultLimits returns the usual limits.
func DefaultLimits() Limits {
	return Limits{MaxBytes: 1 << 20, MaxArguments: 1024, MaxInlineBytes: 2 << 10}
}

// ProtocolError is returned for input that is not a command. Its text is that of the reply.
type ProtocolError string

// Error returns the text in the words of Redis.
func (e ProtocolError) Error() string { return "Protocol error: " + string(e) }

// Meter is charged for the memory of a Reader beyond its initial buffer.
type Meter interface {
	Reserve(bytes int) error
	Release(bytes int)
}

// initialBytes is the size of a buffer as long as commands are small.
const initialBytes = 4 << 10

// Reader reads commands. It is for one goroutine at a time.
type Reader struct {
	from   io.Reader
	limits Limits
	meter  Meter
	// buf[start:end] is what has arrived and was not returned yet.
	buf        []byte
	start, end int
	// measured is the progress within the command at start.
	measured measure
	// returned is what the meter was charged for the latest command that was returned.
	returned int
	// err is the error that ended reading.
	err error
}

// NewReader returns a Reader. The limits must not be zero.
func NewReader(from io.Reader, limits Limits, meter Meter) *Reader {
	return &Reader{from: from, limits: limits, meter: meter, buf: make([]byte, initialBytes)}
}

// Buffered returns the number of bytes that have arrived and were not returned yet.
func (r *Reader) Buffered() int { return r.end - r.start }

// Next returns the next command that has arrived completely, with its name first, or nil if there is none: then call
// Fill. The caller owns the arguments, which the meter is charged for until the next call. Empty commands are skipped.
// Next returns a ProtocolError as soon as the input violates the protocol or the limits, or the error of the meter; no
// call may follow.
func (r *Reader) Next() ([][]byte, error) {
	for {
		r.meter.Release(r.returned)
		r.returned = 0
		complete, err := r.measured.advance(r.buf[r.start:r.end], r.limits)
		if err != nil || !complete {
			return nil, err
		}
		args, err := r.take(r.measured.at)
		if err != nil || len(args) > 0 {
			return args, err
		}
	}
}

// take removes and parses a complete command of n bytes.
func (r *Reader) take(n int) ([][]byte, error) {
	if n > initialBytes {
		if err := r.meter.Reserve(n); err != nil {
			return nil, err
		}
		r.returned = n
	}
	command := bytes.Clone(r.buf[r.start : r.start+n])
	r.start, r.measured = r.start+n, measure{}
	if r.start == r.end {
		r.Free() // the command may have filled a large buffer, and may take long
	}
	complete, args, _, rest, err := redcon.ReadNextCommand(command, nil)
	switch {
	case err != nil:
		return nil, ProtocolError(trimmed(err))
	case !complete || len(rest) > 0:
		return nil, ProtocolError("incomplete command")
	case len(args) > r.limits.MaxArguments:
		return nil, errTooMany
	}
	return args, nil
}

func trimmed(err error) []byte {
	return bytes.TrimPrefix([]byte(err.Error()), []byte("Protocol error: "))
}

// Fill waits for more input. It returns the error of the meter or of the underlying reader. After a timeout it may be
// called again.
func (r *Reader) Fill() error {
	if r.err != nil {
		return r.err
	}
	if err := r.makeRoom(); err != nil {
		return err
	}
	n, err := r.from.Read(r.buf[r.end:])
	r.end += n
	if n > 0 {
		return nil
	}
	if timeout, ok := err.(interface{ Timeout() bool }); err != nil && (!ok || !timeout.Timeout()) {
		r.err = err
	}
	return err
}

// makeRoom makes room behind end. It moves what has arrived to the front and doubles the buffer only if that fills it.
func (r *Reader) makeRoom() error {
	switch {
	case r.end < len(r.buf):
	case r.start > 0:
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
	default:
		return r.grow()
	}
	return nil
}

func (r *Reader) grow() error {
	more := len(r.buf)
	if err := r.meter.Reserve(more); err != nil {
		return err
	}
	r.buf = append(r.buf, make([]byte, more)...)
	return nil
}

// Free discards what has arrived, and releases what the buffer has grown.
func (r *Reader) Free() {
	if more := len(r.buf) - initialBytes; more > 0 {
		r.buf = make([]byte, initialBytes)
		r.meter.Release(more)
	}
	r.start, r.end, r.measured = 0, 0, measure{}
}

// measure is how much of a command is known. It keeps no data.
type measure struct {
	// at is the number of bytes known to belong to the command; the whole length once it is complete.
	at int
	// left is the number of arguments that have not arrived completely, after the header.
	left int
	// counted is set after the header.
	counted bool
}

const (
	errTooMany   = ProtocolError("invalid multibulk length")
	errCount     = ProtocolError("invalid multibulk length")
	errLength    = ProtocolError("invalid bulk length")
	errTooLong   = ProtocolError("too big command")
	errInline    = ProtocolError("too big inline request")
	maxLineBytes = 16 // of a header: a sign, digits and a line end
)

// advance reports whether the command at the start of b is complete.
func (m *measure) advance(b []byte, limits Limits) (bool, error) {
	if len(b) == 0 {
		return false, nil
	}
	if !m.counted {
		if b[0] != '*' {
			return m.line(b, limits)
		}
		n, next, err := number(b, 0, limits.MaxArguments, errCount)
		if err != nil || next == 0 {
			return false, err
		}
		m.at, m.left, m.counted = next, n, true
	}
	for m.left > 0 {
		arrived, err := m.argument(b, limits)
		if err != nil || !arrived {
			return false, err
		}
	}
	return true, nil
}

// argument advances over one argument. It reports whether all of it has arrived.
func (m *measure) argument(b []byte, limits Limits) (bool, error) {
	if m.at == len(b) {
		return false, nil
	}
	if b[m.at] != '$' {
		return false, ProtocolError(fmt.Sprintf("expected '$', got '%c'", printable(b[m.at])))
	}
	n, next, err := number(b, m.at, limits.MaxBytes, errLength)
	if err != nil || next == 0 {
		return false, err
	}
	end := next + n + len("\r\n")
	switch {
	case end > limits.MaxBytes:
		return false, errTooLong
	case len(b) < end:
		return false, nil
	case b[end-2] != '\r' || b[end-1] != '\n':
		return false, errLength
	}
	m.at = end
	m.left--
	return true, nil
}

func printable(c byte) byte {
	if c < ' ' || c > '~' {
		return '?'
	}
	return c
}

// line advances over a command that is a line of text. A line that begins with '$' would be one of another protocol
// that redcon knows.
func (m *measure) line(b []byte, limits Limits) (bool, error) {
	if b[0] == '$' {
		return false, ProtocolError("expected '*', got '$'")
	}
	seen := min(m.at, len(b))
	i := bytes.IndexByte(b[seen:], '\n')
	switch {
	case i >= 0 && seen+i < limits.MaxInlineBytes:
		m.at = seen + i + 1
		return true, nil
	case i >= 0 || len(b) >= limits.MaxInlineBytes:
		return false, errInline
	}
	m.at = len(b)
	return false, nil
}

// number returns the number behind the byte at b[at], up to most, and where the line behind it ends, 0 if that has not
// arrived. bad is the error for anything else.
func number(b []byte, at, most int, bad ProtocolError) (n, next int, err error) {
	for i := at + 1; i < len(b); i++ {
		switch c := b[i]; {
		case c == '\r' && i > at+1:
			if i+1 == len(b) {
				return 0, 0, nil
			}
			if b[i+1] != '\n' {
				return 0, 0, bad
			}
			return n, i + 2, nil
		case c < '0' || c > '9' || i-at > maxLineBytes:
			return 0, 0, bad
		default:
			if n = 10*n + int(c-'0'); n > most {
				return 0, 0, bad
			}
		}
	}
	return 0, 0, nil
}
