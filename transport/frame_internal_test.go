package transport

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// allowance is a Meter that allows so many bytes.
type allowance struct{ held, most int }

var errAllowance = errors.New("no more memory")

func (a *allowance) Reserve(bytes int) error {
	if a.held+bytes > a.most {
		return errAllowance
	}
	a.held += bytes
	return nil
}

func (a *allowance) Release(bytes int) { a.held -= bytes }

// TestRoomOfAReader checks that the buffer grows for a frame that fills it, at most to the frame's end
// and at most to twice its size, and shrinks when a large one is nearly empty. Its meter counts
// everything beyond the initial size.
func TestRoomOfAReader(t *testing.T) {
	const large = 2 * retained
	for name, c := range map[string]struct {
		size, begin, end, need int
		want                   int // resulting size
		full                   bool
	}{
		"empty":                           {readBuffer, 0, 0, 0, readBuffer, false},
		"read to its end":                 {readBuffer, readBuffer, readBuffer, 0, readBuffer, false},
		"a part at its end":               {readBuffer, readBuffer - 10, readBuffer, 100, readBuffer, false},
		"full, of a frame a byte longer":  {readBuffer, 0, readBuffer, readBuffer + 1, readBuffer + 1, false},
		"full, of a frame twice as long":  {readBuffer, 0, readBuffer, 2 * readBuffer, 2 * readBuffer, false},
		"full, of a much longer frame":    {readBuffer, 0, readBuffer, 1 << 20, 2 * readBuffer, false},
		"full, and no memory left":        {readBuffer, 0, readBuffer, 1 << 20, readBuffer, true},
		"as large as what is kept":        {retained, 0, 0, 0, retained, false},
		"a byte larger than what is kept": {retained + 1, 0, 0, 0, readBuffer, false},
		"large and empty":                 {large, large, large, 0, readBuffer, false},
		"large, what is left just fits":   {large, 0, readBuffer - 1, 0, readBuffer, false},
		"large, what is left fits not":    {large, 0, readBuffer, 0, large, false},
	} {
		t.Run(name, func(t *testing.T) {
			meter := &allowance{held: c.size - readBuffer, most: 1 << 20}
			if c.full {
				meter.most = meter.held
			}
			r := &FrameReader{buf: make([]byte, c.size), begin: c.begin, end: c.end, need: c.need, meter: meter}
			for i := range r.buf {
				r.buf[i] = byte(i % 251)
			}
			rest := bytes.Clone(r.buf[c.begin:c.end])
			room, err := r.room()
			if c.full {
				if !errors.Is(err, errAllowance) || meter.held != 0 {
					t.Errorf("%v, %d bytes are held", err, meter.held)
				}
				return
			}
			if err != nil || len(r.buf) != c.want || len(room) != c.want-len(rest) {
				t.Errorf("%v, a buffer of %d with room for %d, want %d", err, len(r.buf), len(room), c.want)
			}
			if !bytes.Equal(r.buf[r.begin:r.end], rest) {
				t.Error("what had arrived is another")
			}
			if meter.held != c.want-readBuffer {
				t.Errorf("%d bytes are held for a buffer of %d", meter.held, c.want)
			}
		})
	}
}

// TestReaderWithoutAMeter checks that a meter is optional.
func TestReaderWithoutAMeter(t *testing.T) {
	large := &wire.Hello{Agent: string(bytes.Repeat([]byte("a"), 2*retained))}
	stream, err := AppendFrame(nil, large, DefaultMaxFrame)
	if err == nil {
		stream, err = AppendFrame(stream, &wire.Hello{Agent: "small"}, DefaultMaxFrame)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := NewFrameReader(bytes.NewReader(stream), DefaultMaxFrame)
	var got wire.Hello
	for _, want := range []string{large.Agent, "small"} {
		if err := r.Read(&got); err != nil || got.GetAgent() != want {
			t.Fatalf("%v, a text of %d bytes, want %d", err, len(got.GetAgent()), len(want))
		}
	}
	if err := r.Read(&got); err != io.EOF || len(r.buf) != readBuffer {
		t.Errorf("%v, a buffer of %d bytes, want %d", err, len(r.buf), readBuffer)
	}
	if r.Free(); r.buf != nil || r.Buffered() != 0 {
		t.Errorf("a reader that is given up keeps a buffer of %d bytes", len(r.buf))
	}
}

// frequent and seldom are a message that encodes itself and one that does not.
var frequent, seldom proto.Message = &wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: &wire.Request{
	Id: 7, SessionId: 8, Seq: 9, Body: &wire.Request_Release{Release: &wire.Release{HoldId: 10, Token: 11}},
}}}, &wire.Hello{Agent: "a client"}

func TestFramesAreBounded(t *testing.T) {
	if _, ok := frequent.(interface {
		AppendFrequent(b []byte) ([]byte, bool)
	}); !ok {
		t.Fatal("a request does not encode itself")
	}
	started := []byte("begun")
	for name, m := range map[string]proto.Message{"frequent": frequent, "seldom": seldom} {
		size := proto.Size(m)
		for max, want := range map[int]error{size - 1: ErrFrameTooLarge, size: nil, size + 1: nil} {
			b, err := AppendFrame(started, m, max)
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("%s of %d bytes with %d allowed: %v, want %v", name, size, max, err, want)
			}
			if err != nil && string(b) != "begun" || err == nil && len(b) != len(started)+HeaderSize+size {
				t.Errorf("%s: %q was appended", name, b)
			}
		}
	}
	b, err := AppendFrame(started, &wire.Hello{Agent: "\xff"}, 100)
	if !errors.Is(err, ErrUnencodable) || string(b) != "begun" {
		t.Errorf("a text that is not UTF-8: %q, %v", b, err)
	}
}

// taker is a writer that can fail.
type taker struct {
	bytes.Buffer
	err error
}

func (w *taker) Write(b []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	return w.Buffer.Write(b)
}

func TestFrameWriterReportsWhatFails(t *testing.T) {
	broken := errors.New("broken")
	for name, write := range map[string]func(*FrameWriter, proto.Message) error{
		"Write": (*FrameWriter).Write, "WriteFirst": (*FrameWriter).WriteFirst,
	} {
		to := &taker{}
		w := NewFrameWriter(to, proto.Size(seldom))
		if err := write(w, &wire.Hello{Agent: "a longer agent than is allowed"}); !errors.Is(err, ErrFrameTooLarge) || to.Len() > 0 {
			t.Errorf("%s of a message too large: %v, wrote %q", name, err, to.Bytes())
		}
		if err := write(w, seldom); err != nil || to.Len() == 0 {
			t.Errorf("%s: %v", name, err)
		}
		to.err = broken
		if err := write(w, seldom); !errors.Is(err, broken) {
			t.Errorf("%s to a broken stream: %v", name, err)
		}
	}
}

// TestWritersKeepSmallBuffersOnly checks that large buffers are dropped after the frames they were needed for.
func TestWritersKeepSmallBuffersOnly(t *testing.T) {
	for size, kept := range map[int]bool{100: true, retained: true, retained + 1: false} {
		if b := reusable(make([]byte, 10, size)); (b != nil) != kept || len(b) != 0 {
			t.Errorf("of %d bytes %d are kept", size, cap(b))
		}
		w := NewFrameWriter(io.Discard, DefaultMaxFrame)
		if err := w.flush(make([]byte, 10, size), nil); err != nil || (w.buf != nil) != kept {
			t.Errorf("%v, of %d bytes the writer keeps %d", err, size, cap(w.buf))
		}
	}
}

// decoder records its input and returns err.
type decoder struct {
	got string
	err error
}

func (d *decoder) Decode(b []byte) error {
	d.got = string(b)
	return d.err
}

func TestReadBy(t *testing.T) {
	wrong := errors.New("wrong")
	stream := "\x00\x00\x00\x02ab\x00\x00\x00\x01c\x00"
	r := NewFrameReader(bytes.NewReader([]byte(stream)), 10)
	d := &decoder{}
	if err := r.ReadBy(d); err != nil || d.got != "ab" {
		t.Errorf("%q, %v", d.got, err)
	}
	d.err = wrong
	if err := r.ReadBy(d); !errors.Is(err, ErrMalformed) || d.got != "c" {
		t.Errorf("%q, %v, want ErrMalformed", d.got, err)
	}
	d = &decoder{}
	if err := r.ReadBy(d); !errors.Is(err, io.ErrUnexpectedEOF) || d.got != "" {
		t.Errorf("%q, %v, want ErrUnexpectedEOF", d.got, err)
	}
}

func TestGuesses(t *testing.T) {
	for seen, want := range map[string]string{
		"":                     "",
		"\x16":                 " (this looks like TLS: the other side uses TLS, this port does not)",
		"\x15\x16":             "",
		"GE":                   "",
		"GET":                  " (this looks like HTTP: the HTTP port is another one)",
		"POST /x":              " (this looks like HTTP: the HTTP port is another one)",
		"DELETE /":             " (this looks like HTTP: the HTTP port is another one)",
		"GUT ":                 "",
		Preface[:7]:            "",
		Preface[:7] + "\x02":   " (another version of the framing)",
		Preface[:7] + "\x02..": " (another version of the framing)",
		"XLOCK\x00\x00\x02":    "",
	} {
		if got := guess([]byte(seen)); got != want {
			t.Errorf("%q: %q, want %q", seen, got, want)
		}
	}
}

func TestGoodbyesThatAreRefusedVersions(t *testing.T) {
	for _, code := range []wire.Goodbye_Code{wire.Goodbye_VERSION, wire.Goodbye_SHUTDOWN} {
		err := &GoodbyeError{Code: code}
		for target, want := range map[error]bool{ErrGoodbye: true, ErrVersion: code == wire.Goodbye_VERSION, ErrPreface: false} {
			if errors.Is(err, target) != want {
				t.Errorf("%v is %v: %t", err, target, !want)
			}
		}
	}
}
