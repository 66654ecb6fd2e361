//go:build unix

package transport_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// inbox is a Receiver that keeps what it receives.
type inbox struct {
	got      []*wire.ClientFrame
	rests    int
	started  bool
	received func() error
	rested   func() error
	overdue  func() error
}

func (i *inbox) Decode(b []byte) error {
	i.got = append(i.got, &wire.ClientFrame{})
	return proto.Unmarshal(b, i.got[len(i.got)-1])
}

func (i *inbox) Received() error { return call(i.received) }

func (i *inbox) BeforeRead(started bool) error {
	i.rests, i.started = i.rests+1, started
	return call(i.rested)
}

func (i *inbox) Overdue() error {
	if i.overdue == nil {
		return errors.New("overdue")
	}
	return i.overdue()
}

func call(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

func (i *inbox) want(t *testing.T, sent []proto.Message) {
	t.Helper()
	if len(i.got) != len(sent) {
		t.Fatalf("%d frames, want %d", len(i.got), len(sent))
	}
	for n, want := range sent {
		if !proto.Equal(i.got[n], want) {
			t.Fatalf("frame %d differs", n)
		}
	}
}

// links are the kinds of connections: with and without a descriptor.
func links(t *testing.T) map[string]func() (ours, theirs net.Conn) {
	return map[string]func() (net.Conn, net.Conn){
		"TCP": func() (net.Conn, net.Conn) {
			ours, theirs := connected(t)
			return ours.TCPConn, theirs
		},
		"memory": func() (net.Conn, net.Conn) {
			ours, theirs := net.Pipe()
			t.Cleanup(func() { _ = ours.Close() })
			return ours, theirs
		},
	}
}

func TestReceiveHoweverTheStreamIsCut(t *testing.T) {
	sent := []proto.Message{
		request(1), &wire.ClientFrame{}, sized(100), sized(8 << 10), sized(70_000), request(2),
		sized(300_000), sized(8<<10 - 20), request(3),
	}
	cuts := map[string]struct {
		by   func(io.Reader) io.Reader
		sent []proto.Message
	}{
		"whole":        {func(r io.Reader) io.Reader { return r }, sent},
		"halves":       {iotest.HalfReader, sent},
		"byte by byte": {iotest.OneByteReader, sent[:3]},
	}
	for name, connect := range links(t) {
		for cut, c := range cuts {
			t.Run(name+" "+cut, func(t *testing.T) {
				ours, theirs := connect()
				stream := c.by(bytes.NewReader(frames(t, c.sent...)))
				go func() {
					// Hide ReadFrom and WriteTo, which would ignore the splits.
					_, _ = io.Copy(struct{ io.Writer }{theirs}, struct{ io.Reader }{stream})
					_ = theirs.Close()
				}()
				to := &inbox{}
				if err := transport.NewFrameReader(ours, transport.DefaultMaxFrame).Receive(to); err != io.EOF {
					t.Errorf("%v, want EOF", err)
				}
				to.want(t, c.sent)
			})
		}
	}
}

func TestReceiveTakesOverFromRead(t *testing.T) {
	stream := frames(t, request(1), request(2), request(3))
	r := transport.NewFrameReader(bytes.NewReader(stream[:len(stream)-1]), transport.DefaultMaxFrame)
	if err := r.Read(&wire.ClientFrame{}); err != nil {
		t.Fatal(err)
	}
	to := &inbox{}
	if err := r.Receive(to); err != io.ErrUnexpectedEOF {
		t.Errorf("%v, want ErrUnexpectedEOF", err)
	}
	to.want(t, []proto.Message{request(2)})
	if to.rests != 1 || !to.started {
		t.Errorf("%d rests, within a frame: %t", to.rests, to.started)
	}
}

// TestReceiveSeesTheEndBehindTheData checks a stream whose data and end have both arrived: no later event
// would wake the reader.
func TestReceiveSeesTheEndBehindTheData(t *testing.T) {
	for range 50 {
		ours, theirs := connected(t)
		if _, err := theirs.Write(frames(t, request(1))); err != nil {
			t.Fatal(err)
		}
		if err := theirs.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		to := &inbox{}
		if err := transport.NewFrameReader(ours.TCPConn, 1000).Receive(to); err != io.EOF {
			t.Fatalf("%v, want EOF", err)
		}
		to.want(t, []proto.Message{request(1)})
	}
}

// TestReceiveSeesAReset checks that a reset behind data is noticed immediately or at the next deadline.
func TestReceiveSeesAReset(t *testing.T) {
	ours, theirs := connected(t)
	if _, err := theirs.Write(frames(t, request(1))); err != nil {
		t.Fatal(err)
	}
	_ = theirs.(*net.TCPConn).SetLinger(0)
	_ = theirs.Close()
	soon := func() error { return ours.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) }
	err := transport.NewFrameReader(ours.TCPConn, 1000).Receive(&inbox{rested: soon, overdue: soon})
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want ECONNRESET", err)
	}
}

func TestReceiveAsksWhatADeadlineMeans(t *testing.T) {
	for name, connect := range links(t) {
		t.Run(name, func(t *testing.T) {
			ours, theirs := connect()
			passed, enough := 0, errors.New("enough")
			to := &inbox{}
			to.overdue = func() error {
				switch passed++; passed {
				case 1, 3:
					return ours.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
				case 2:
					go theirs.Write(frames(t, request(1)))
					return ours.SetReadDeadline(time.Time{})
				}
				return enough
			}
			to.received = func() error { return ours.SetReadDeadline(time.Unix(1, 0)) }
			_ = ours.SetReadDeadline(time.Unix(1, 0))
			if err := transport.NewFrameReader(ours, 1000).Receive(to); err != enough {
				t.Errorf("%v, want what Overdue says", err)
			}
			to.want(t, []proto.Message{request(1)})
		})
	}
}

func TestReceiveEndsWithTheReceiverOrTheConnection(t *testing.T) {
	stop := errors.New("stop")
	fail := func() error { return stop }
	for name, connect := range links(t) {
		t.Run(name, func(t *testing.T) {
			for _, to := range []*inbox{{received: fail}, {rested: fail}} {
				ours, theirs := connect()
				go theirs.Write(frames(t, request(1), request(2)))
				if err := transport.NewFrameReader(ours, 1000).Receive(to); err != stop {
					t.Errorf("%v, want what the receiver says", err)
				}
			}
			ours, theirs := connect()
			go theirs.Write([]byte{0xff, 0xff, 0xff, 0xff})
			if err := transport.NewFrameReader(ours, 1000).Receive(&inbox{}); !errors.Is(err, transport.ErrFrameTooLarge) {
				t.Errorf("%v, want ErrFrameTooLarge", err)
			}
			ours, theirs = connect()
			go theirs.Write([]byte{0, 0, 0, 1, 0xff})
			if err := transport.NewFrameReader(ours, 1000).Receive(&inbox{}); !errors.Is(err, transport.ErrMalformed) {
				t.Errorf("%v, want ErrMalformed", err)
			}
			ours, _ = connect()
			to := &inbox{rested: func() error { go ours.Close(); return nil }}
			if err := transport.NewFrameReader(ours, 1000).Receive(to); err == nil || errors.Is(err, stop) {
				t.Errorf("%v, want that it is closed", err)
			}
		})
	}
}

// TestReceiveMissesNothingBetweenTwoReads exchanges frames back and forth. Each must be received although
// the reader does not check whether there is more.
func TestReceiveMissesNothingBetweenTwoReads(t *testing.T) {
	const rounds = 2_000
	ours, theirs := connected(t)
	ping := frames(t, request(1))
	answer := func(conn net.Conn) func() error {
		return func() error {
			_, err := conn.Write(ping)
			return err
		}
	}
	echoed := make(chan error)
	go func() {
		echoed <- transport.NewFrameReader(theirs, 1000).Receive(&inbox{received: answer(theirs)})
	}()
	to := &inbox{}
	to.received = func() error {
		if len(to.got) == rounds {
			return io.EOF
		}
		return answer(ours.TCPConn)()
	}
	if err := answer(ours.TCPConn)(); err != nil {
		t.Fatal(err)
	}
	if err := transport.NewFrameReader(ours.TCPConn, 1000).Receive(to); err != io.EOF {
		t.Error(err)
	}
	_ = ours.Close()
	if err := <-echoed; err != io.EOF {
		t.Error(err)
	}
}
