package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"
)

const (
	// DefaultMaxFrame bounds the message in a frame, in bytes, unless another limit is agreed on.
	DefaultMaxFrame = 1 << 20
	// FrameCeiling is the largest limit, in bytes, that a client accepts from a node.
	FrameCeiling = 16 << 20
	// HeaderSize is the size of the length before each message, in bytes.
	HeaderSize = 4

	// readBuffer has room for some hundred requests. There is one per connection.
	readBuffer = 8 << 10
	// retained is the capacity of the largest buffer that is kept after use, so that one large answer
	// does not cost its size for as long as the connection lives.
	retained = 64 << 10
)

var (
	// ErrFrameTooLarge is returned when a frame exceeds the limit of its reader or writer. A reader
	// returns it before it allocates memory for the frame.
	ErrFrameTooLarge = errors.New("frame too large")
	// ErrMalformed is returned when the bytes of a frame are not the expected message.
	ErrMalformed = errors.New("malformed frame")
	// ErrUnencodable is returned when a message cannot be encoded because a text in it is not UTF-8. The
	// connection is not affected.
	ErrUnencodable = errors.New("message cannot be encoded")
)

// AppendFrame appends m as a frame to b. It returns ErrFrameTooLarge if m takes more than max bytes. With
// an error, it returns b unchanged.
func AppendFrame(b []byte, m proto.Message, max int) ([]byte, error) {
	grown, size, done := appendFrequent(b, m)
	if size > max {
		return b, tooLarge(size, max)
	}
	if done {
		return grown, nil
	}
	return appendSized(b, m, size)
}

// appendFrequent appends m as a frame if m can encode itself; otherwise it returns b unchanged. In both
// cases it returns the size of the message.
func appendFrequent(b []byte, m proto.Message) (grown []byte, size int, done bool) {
	if f, ok := m.(interface {
		AppendFrequent(b []byte) ([]byte, bool)
	}); ok {
		if grown, done = f.AppendFrequent(append(b, make([]byte, HeaderSize)...)); done {
			size = len(grown) - len(b) - HeaderSize
			binary.BigEndian.PutUint32(grown[len(b):], uint32(size))
			return grown, size, true
		}
	}
	return b, proto.Size(m), false
}

func tooLarge(size, max int) error {
	return fmt.Errorf("%w: %d bytes, the limit is %d", ErrFrameTooLarge, size, max)
}

// appendSized uses the sizes that proto.Size has cached, so it must be called right after appendFrequent.
func appendSized(b []byte, m proto.Message, size int) ([]byte, error) {
	grown := binary.BigEndian.AppendUint32(b, uint32(size))
	grown, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(grown, m)
	if err != nil {
		return b, fmt.Errorf("%w: %w", ErrUnencodable, err)
	}
	return grown, nil
}

// FrameReader reads frames. It is not safe for concurrent use.
type FrameReader struct {
	from io.Reader
	max  int
	// buf[begin:end] has arrived and was not read yet. buf grows for a frame that does not fit.
	buf        []byte
	begin, end int
	need       int   // size of the frame at begin, if its header has arrived
	late       error // error that came with the last bytes
	meter      Meter // counts the bytes of buf beyond readBuffer; nil counts nothing
}

// Meter counts the memory of a connection's buffers beyond what every connection uses.
type Meter interface {
	// Reserve is called before a buffer grows by so many bytes. An error prevents that.
	Reserve(bytes int) error
	// Release is called after a buffer has shrunk by so many bytes.
	Release(bytes int)
}

// SetMeter sets the meter for the frames that follow.
func (r *FrameReader) SetMeter(m Meter) { r.meter = m }

// Decoder decodes the message of a frame. It must not keep references to b.
type Decoder interface{ Decode(b []byte) error }

// NewFrameReader returns a reader of frames whose messages take at most max bytes.
func NewFrameReader(r io.Reader, max int) *FrameReader {
	return &FrameReader{from: r, max: max, buf: make([]byte, readBuffer)}
}

// SetMax changes the limit for the frames that follow, in bytes.
func (r *FrameReader) SetMax(max int) { r.max = max }

// Buffered returns the number of bytes that have arrived and were not read yet. If it is not 0, the next
// Read may not have to wait.
func (r *FrameReader) Buffered() int { return r.end - r.begin }

// Read reads the next frame into m, which keeps no references to the reader's memory. It returns io.EOF if
// the stream ends between two frames, io.ErrUnexpectedEOF if it ends inside one, ErrFrameTooLarge,
// ErrMalformed, or the error of the underlying reader. After an error the reader must not be used any more.
func (r *FrameReader) Read(m proto.Message) error {
	frame, err := r.next()
	if err != nil {
		return err
	}
	return malformed(proto.Unmarshal(frame, m))
}

// ReadBy is Read with a decoder of the caller's.
func (r *FrameReader) ReadBy(d Decoder) error {
	frame, err := r.next()
	if err != nil {
		return err
	}
	return malformed(d.Decode(frame))
}

func malformed(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %v", ErrMalformed, err)
	}
	return nil
}

// next returns the message of the next frame. It is valid until the next call.
func (r *FrameReader) next() ([]byte, error) {
	for {
		if frame, err := r.arrived(); frame != nil || err != nil {
			return frame, err
		}
		if err := r.fill(); err != nil {
			return nil, r.unexpected(err)
		}
	}
}

// arrived returns the message of the next frame if it has arrived completely, nil otherwise. The message
// is valid until more is read.
func (r *FrameReader) arrived() ([]byte, error) {
	rest := r.buf[r.begin:r.end]
	if len(rest) < HeaderSize {
		return nil, nil
	}
	claimed := binary.BigEndian.Uint32(rest)
	if uint64(claimed) > uint64(r.max) {
		return nil, fmt.Errorf("%w: it claims %d bytes, the limit is %d", ErrFrameTooLarge, claimed, r.max)
	}
	r.need = HeaderSize + int(claimed)
	if len(rest) < r.need {
		return nil, nil
	}
	r.begin += r.need
	return rest[HeaderSize:r.need], nil
}

// fill reads once, and blocks until something arrives.
func (r *FrameReader) fill() error {
	n, err := 0, r.late
	if err == nil {
		var room []byte
		if room, err = r.room(); err == nil {
			n, err = r.from.Read(room)
		}
	}
	r.end += n
	if n > 0 {
		r.late, err = err, nil
	}
	return err
}

// room returns buffer space for the next read. For a frame longer than the buffer, the buffer grows with
// the bytes that have arrived, at most doubling. So a sender that only claims a large frame cannot make
// this side allocate more than twice what it has sent.
func (r *FrameReader) room() ([]byte, error) {
	rest, buf := r.buf[r.begin:r.end], r.buf
	switch {
	case len(rest) == len(buf):
		size := min(r.need, 2*len(buf))
		if r.meter != nil {
			if err := r.meter.Reserve(size - len(buf)); err != nil {
				return nil, err
			}
		}
		buf = make([]byte, size)
	case len(buf) > retained && len(rest) < readBuffer:
		buf = make([]byte, readBuffer)
		if r.meter != nil {
			r.meter.Release(len(r.buf) - len(buf))
		}
	}
	r.begin, r.end, r.buf = 0, copy(buf, rest), buf
	return buf[r.end:], nil
}

// Free releases the buffer, including bytes that were not read. The reader must not be used any more.
func (r *FrameReader) Free() {
	if r.meter != nil {
		r.meter.Release(len(r.buf) - readBuffer)
	}
	r.begin, r.end, r.buf = 0, 0, nil
}

// unexpected returns the error for a stream that ended at the reader's position.
func (r *FrameReader) unexpected(err error) error {
	if r.end > r.begin && errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// FrameWriter writes frames one at a time, for exchanges that wait for each answer. With many frames in
// flight, use an Outbox. It is not safe for concurrent use.
type FrameWriter struct {
	w   io.Writer
	max int
	buf []byte
}

// NewFrameWriter returns a writer of frames whose messages take at most max bytes.
func NewFrameWriter(w io.Writer, max int) *FrameWriter {
	return &FrameWriter{w: w, max: max}
}

// Write writes m as one frame, in one write.
func (w *FrameWriter) Write(m proto.Message) error {
	return w.flush(AppendFrame(w.buf[:0], m, w.max))
}

// WriteFirst writes the preface and m as the first frame, in one write.
func (w *FrameWriter) WriteFirst(m proto.Message) error {
	return w.flush(AppendFrame(append(w.buf[:0], Preface...), m, w.max))
}

func (w *FrameWriter) flush(frame []byte, err error) error {
	if err != nil {
		return err
	}
	if _, err := w.w.Write(frame); err != nil {
		return err
	}
	w.buf = frame
	if cap(frame) > retained {
		w.buf = nil
	}
	return nil
}
