package transport_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func frames(t testing.TB, ms ...proto.Message) []byte {
	t.Helper()
	var b []byte
	for _, m := range ms {
		var err error
		if b, err = transport.AppendFrame(b, m, transport.DefaultMaxFrame); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestFramesArriveHoweverTheStreamIsCut(t *testing.T) {
	sent := []proto.Message{
		request(1), &wire.ClientFrame{}, sized(100), sized(8 << 10), sized(70_000), request(2),
		sized(300_000), sized(8<<10 - 20), request(3),
	}
	stream := frames(t, sent...)
	readers := map[string]io.Reader{
		"whole":        bytes.NewReader(stream),
		"byte by byte": iotest.OneByteReader(bytes.NewReader(stream)),
		"halves":       iotest.HalfReader(bytes.NewReader(stream)),
		"data and EOF": iotest.DataErrReader(bytes.NewReader(stream)),
	}
	for name, r := range readers {
		t.Run(name, func(t *testing.T) {
			fr := transport.NewFrameReader(r, transport.DefaultMaxFrame)
			var got wire.ClientFrame
			for i, want := range sent {
				if err := fr.Read(&got); err != nil {
					t.Fatalf("frame %d: %v", i, err)
				}
				if !proto.Equal(&got, want) {
					t.Fatalf("frame %d differs", i)
				}
			}
			if err := fr.Read(&got); err != io.EOF {
				t.Fatalf("after the last frame: %v, want io.EOF", err)
			}
		})
	}
}

func TestFrameReaderKeepsNothingOfAMessage(t *testing.T) {
	first, second := sized(64), sized(64)
	first.GetRequest().GetAttach().Secret = bytes.Repeat([]byte{1}, 64)
	second.GetRequest().GetAttach().Secret = bytes.Repeat([]byte{2}, 64)
	fr := transport.NewFrameReader(bytes.NewReader(frames(t, first, second)), transport.DefaultMaxFrame)
	var a, b wire.ClientFrame
	if err := errors.Join(fr.Read(&a), fr.Read(&b)); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(&a, first) || !proto.Equal(&b, second) {
		t.Fatal("reading the second frame changed the first")
	}
}

func TestStreamThatEndsInsideAFrame(t *testing.T) {
	for _, m := range []proto.Message{request(1), sized(100_000)} {
		whole := frames(t, m)
		for _, n := range []int{1, 3, 4, 5, len(whole) - 1} {
			fr := transport.NewFrameReader(bytes.NewReader(whole[:n]), transport.DefaultMaxFrame)
			if err := fr.Read(&wire.ClientFrame{}); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%d of %d bytes: %v, want ErrUnexpectedEOF", n, len(whole), err)
			}
		}
	}
}

func TestFrameBounds(t *testing.T) {
	m := sized(1000)
	size := proto.Size(m)
	if _, err := transport.AppendFrame(nil, m, size-1); !errors.Is(err, transport.ErrFrameTooLarge) {
		t.Errorf("writing: %v, want ErrFrameTooLarge", err)
	}
	stream := frames(t, m)
	if err := transport.NewFrameReader(bytes.NewReader(stream), size).Read(&wire.ClientFrame{}); err != nil {
		t.Errorf("a frame as large as allowed: %v", err)
	}
	err := transport.NewFrameReader(bytes.NewReader(stream), size-1).Read(&wire.ClientFrame{})
	if !errors.Is(err, transport.ErrFrameTooLarge) {
		t.Errorf("a byte more: %v, want ErrFrameTooLarge", err)
	}
	err = transport.NewFrameReader(bytes.NewReader([]byte{0, 0, 0, 2, 0xff, 0xff}), 10).Read(&wire.ClientFrame{})
	if !errors.Is(err, transport.ErrMalformed) {
		t.Errorf("not protobuf: %v, want ErrMalformed", err)
	}
}

// TestClaimsCostNothing checks that a length alone costs no memory, whether it is refused or allowed but
// never followed by the bytes.
func TestClaimsCostNothing(t *testing.T) {
	const allowed = 16 << 20
	for name, claim := range map[string]uint32{"too large": 1<<32 - 1, "allowed": allowed} {
		stream := append(binary.BigEndian.AppendUint32(nil, claim), make([]byte, 10)...)
		fr := transport.NewFrameReader(bytes.NewReader(stream), allowed)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := fr.Read(&wire.ClientFrame{})
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 256<<10 {
			t.Errorf("%s: a claim of %d bytes allocated %d", name, claim, spent)
		}
	}
}

func TestFrameWriter(t *testing.T) {
	var out bytes.Buffer
	w := transport.NewFrameWriter(&out, 4096)
	if err := errors.Join(w.WriteFirst(request(1)), w.Write(request(2))); err != nil {
		t.Fatal(err)
	}
	if want := append([]byte(transport.Preface), frames(t, request(1), request(2))...); !bytes.Equal(out.Bytes(), want) {
		t.Fatalf("wrote %x, want %x", out.Bytes(), want)
	}
	if err := w.Write(sized(5000)); !errors.Is(err, transport.ErrFrameTooLarge) {
		t.Fatalf("got %v, want ErrFrameTooLarge", err)
	}
}

func TestPreface(t *testing.T) {
	read := func(s string) error {
		return transport.NewFrameReader(strings.NewReader(s), 100).ReadPreface()
	}
	slowly := iotest.OneByteReader(strings.NewReader(transport.Preface + "more"))
	if err := transport.NewFrameReader(slowly, 100).ReadPreface(); err != nil {
		t.Fatal(err)
	}
	// The first wrong byte is sufficient; the reader does not wait for the second.
	stuck := io.MultiReader(strings.NewReader("QLX"), iotest.ErrReader(errors.New("read on")))
	if err := transport.NewFrameReader(stuck, 100).ReadPreface(); !errors.Is(err, transport.ErrPreface) {
		t.Errorf("a wrong byte: %v, want ErrPreface", err)
	}
	if err := read(""); err != io.EOF {
		t.Errorf("nothing: %v, want io.EOF", err)
	}
	for in, hint := range map[string]string{
		"GET / HTTP/1.1\r\n":               "HTTP",
		"PRI * HTTP/2.0\r\n":               "the connection began with",
		"\x16\x03\x01\x02\x00\x01\x00":     "TLS",
		"QLOCK\x00\x00\x02":                "another version",
		"QLO":                              `"QLO"`,
		"\x00\x00\x00\x00\x00\x00\x00\x00": `"\x00\x00`,
	} {
		err := read(in)
		if !errors.Is(err, transport.ErrPreface) {
			t.Errorf("%q: %v, want ErrPreface", in, err)
			continue
		}
		if !strings.Contains(err.Error(), hint) {
			t.Errorf("%q: %v, does not mention %s", in, err, hint)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(frames(f, request(1), sized(100)), uint16(1000))
	f.Add(frames(f, sized(20_000)), uint16(30_000))
	f.Add([]byte(transport.Preface), uint16(8))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, uint16(65535))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 1, 7}, uint16(0))
	f.Fuzz(func(t *testing.T, stream []byte, max uint16) {
		// The messages must be the same however the stream is split, none may exceed the limit, and the
		// end must be an error.
		whole := transport.NewFrameReader(bytes.NewReader(stream), int(max))
		split := transport.NewFrameReader(iotest.HalfReader(bytes.NewReader(stream)), int(max))
		_, _ = whole.ReadPreface(), split.ReadPreface()
		for left := len(stream); ; left -= transport.HeaderSize {
			var a, b wire.ClientFrame
			errA, errB := whole.Read(&a), split.Read(&b)
			if (errA == nil) != (errB == nil) {
				t.Fatalf("whole: %v, split: %v", errA, errB)
			}
			if errA != nil {
				return
			}
			if left < 0 {
				t.Fatal("more frames than the stream can hold")
			}
			// Equal would be false for NaNs, but the schema has no floating-point fields.
			if !proto.Equal(&a, &b) {
				t.Fatal("the message depends on how the stream is cut")
			}
		}
	})
}

func BenchmarkFrameWrite(b *testing.B) {
	m := request(1)
	w := transport.NewFrameWriter(io.Discard, transport.DefaultMaxFrame)
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Write(m); err != nil {
			b.Fatal(err)
		}
	}
}

// endless repeats a stream of frames.
type endless struct {
	stream []byte
	at     int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.stream[e.at:])
	e.at = (e.at + n) % len(e.stream)
	return n, nil
}

func benchmarkRead(b *testing.B, m *wire.ClientFrame) {
	stream := frames(b, m)
	r := transport.NewFrameReader(&endless{stream: stream}, transport.DefaultMaxFrame)
	var got wire.ClientFrame
	b.ReportAllocs()
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		if err := r.Read(&got); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFrameRead(b *testing.B)      { benchmarkRead(b, request(1)) }
func BenchmarkFrameReadLarge(b *testing.B) { benchmarkRead(b, sized(50_000)) }

// BenchmarkFrameReadEmpty measures the cost of a frame without decoding a message.
func BenchmarkFrameReadEmpty(b *testing.B) { benchmarkRead(b, &wire.ClientFrame{}) }

// counted is a Meter.
type counted int

func (c *counted) Reserve(bytes int) error { *c += counted(bytes); return nil }
func (c *counted) Release(bytes int)       { *c -= counted(bytes) }

// TestFreedReader checks that a freed reader holds no memory of a partial frame.
func TestFreedReader(t *testing.T) {
	var held counted
	part := frames(t, sized(200_000))[:150_000]
	r := transport.NewFrameReader(bytes.NewReader(part), transport.DefaultMaxFrame)
	r.SetMeter(&held)
	if err := r.Read(&wire.ClientFrame{}); !errors.Is(err, io.ErrUnexpectedEOF) || held < 100_000 {
		t.Errorf("read: %v, %d bytes are held", err, held)
	}
	if r.Free(); held != 0 {
		t.Errorf("%d bytes are held afterwards", held)
	}
}
