package framed

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// unhurt checks that the port still serves others.
func unhurt(t *testing.T, p *port) {
	t.Helper()
	c := connect(t, p)
	session := c.open(fmt.Appendf(nil, "unhurt-%s-%p", t.Name(), c))
	c.expect(wire.Status_GRANTED, acquire(session, 1, "unhurt", false))
	c.expect(wire.Status_OK, &wire.Request{SessionId: session, Body: &wire.Request_CloseSession{CloseSession: &wire.CloseSession{}}})
}

func TestGarbageIsToldAndClosed(t *testing.T) {
	p := serve(t, nil)
	for _, garbage := range []string{"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00", strings.Repeat("\x00", 64<<10)} {
		conn := dial(t, p)
		if _, err := io.WriteString(conn, garbage); err != nil {
			t.Fatal(err)
		}
		if bye := goodbye(t, transport.NewFrameReader(conn, transport.DefaultMaxFrame)); bye.Code != wire.Goodbye_PROTOCOL_ERROR {
			t.Errorf("goodbye %v", bye)
		}
	}
	if n := p.log.count("connection refused"); n != 3 {
		t.Errorf("%d reasons in the log, want 3", n)
	}
	unhurt(t, p)
}

func TestBadFramesAreToldAndClosed(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes []byte
		code  wire.Goodbye_Code
	}{
		{"oversized", binary.BigEndian.AppendUint32(nil, 1<<20+1), wire.Goodbye_FRAME_TOO_LARGE},
		{"not protobuf", append(binary.BigEndian.AppendUint32(nil, 4), 0xff, 0xff, 0xff, 0xff), wire.Goodbye_PROTOCOL_ERROR},
		{"empty", binary.BigEndian.AppendUint32(nil, 0), wire.Goodbye_PROTOCOL_ERROR},
		{"second hello", mustFrame(t, &wire.ClientFrame{Frame: &wire.ClientFrame_Hello{Hello: &wire.Hello{Version: 1}}}), wire.Goodbye_PROTOCOL_ERROR},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := serve(t, nil)
			bad := connect(t, p)
			session := bad.open(secret)
			if _, err := bad.conn.Write(c.bytes); err != nil {
				t.Fatal(err)
			}
			if bye := bad.goodbye(c.code); bye.Message == "" {
				t.Error("no reason given")
			}
			if n := p.log.count("connection ended"); n != 1 {
				t.Errorf("%d reasons in the log, want 1", n)
			}
			connect(t, p).expect(wire.Status_OK, attach(session, secret))
			unhurt(t, p)
		})
	}
}

func mustFrame(t *testing.T, frame *wire.ClientFrame) []byte {
	t.Helper()
	b, err := transport.AppendFrame(nil, frame, transport.DefaultMaxFrame)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestVersionIsRefusedInWords(t *testing.T) {
	p := serve(t, nil)
	conn := dial(t, p)
	if err := transport.NewFrameWriter(conn, 4096).WriteFirst(&wire.ClientFrame{Frame: &wire.ClientFrame_Hello{Hello: &wire.Hello{}}}); err != nil {
		t.Fatal(err)
	}
	if bye := goodbye(t, transport.NewFrameReader(conn, 4096)); bye.Code != wire.Goodbye_VERSION {
		t.Errorf("goodbye %v", bye)
	}
}

// closedByNode waits until the node has closed the connection.
func closedByNode(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the node did not close the connection")
	}
}

func TestHalfOpenHandshakesAreCut(t *testing.T) {
	p := serve(t, func(c *Config) { c.Limits.HandshakeTimeout = 50 * time.Millisecond })
	silent, slow := dial(t, p), dial(t, p)
	if _, err := io.WriteString(slow, transport.Preface+"\x00\x00"); err != nil {
		t.Fatal(err)
	}
	unhurt(t, p)
	closedByNode(t, silent)
	closedByNode(t, slow)
	eventually(t, "both reasons in the log", func() bool { return p.log.count("connection refused") == 2 })
	unhurt(t, p)
}

func TestSlowFrameIsCutWhileItsSilenceBetweenFramesIsNot(t *testing.T) {
	p := serve(t, func(c *Config) {
		c.Limits.FrameTimeout, c.Limits.IdleTimeout = 50*time.Millisecond, 20*time.Millisecond
	})
	patient, loris := connect(t, p), connect(t, p)
	patientSession, _ := patient.open(secret), loris.open([]byte("a-secret-of-sixteen"))
	if _, err := loris.conn.Write([]byte{0, 0, 1, 0, 18}); err != nil {
		t.Fatal(err)
	}
	loris.goodbye(wire.Goodbye_PROTOCOL_ERROR)
	patient.expect(wire.Status_OK, beat(patientSession)) // silent for longer than IdleTimeout, with a session
}

func TestIdleConnectionIsToldAndClosed(t *testing.T) {
	p := serve(t, func(c *Config) { c.Limits.IdleTimeout = 30 * time.Millisecond })
	connect(t, p).goodbye(wire.Goodbye_IDLE)

	late := connect(t, p)
	session := late.open(secret)
	late.expect(wire.Status_OK, &wire.Request{SessionId: session, Body: &wire.Request_CloseSession{CloseSession: &wire.CloseSession{}}})
	late.goodbye(wire.Goodbye_IDLE)
	if n := p.log.count("[WARN]"); n != 0 {
		t.Errorf("%d warnings for idle connections", n)
	}
}

func TestRequestUnderWayKeepsAConnection(t *testing.T) {
	p := serve(t, func(c *Config) { c.Limits.IdleTimeout = 20 * time.Millisecond })
	p.replica.hold()
	waits, idle := connect(t, p), connect(t, p)
	hash := sha256.Sum256(secret)
	id := waits.send(&wire.Request{Body: &wire.Request_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hash[:]}}})
	idle.goodbye(wire.Goodbye_IDLE)
	p.replica.release()
	if got := waits.await(id).GetResult().GetStatus(); got != wire.Status_OK {
		t.Errorf("status %v", got)
	}
}

func TestTooManyConnectionsAreToldSo(t *testing.T) {
	p := serve(t, func(c *Config) { c.Limits.MaxConnections = 2 })
	first, _ := connect(t, p), connect(t, p)
	refused := dial(t, p)
	_ = transport.NewFrameWriter(refused, 4096).WriteFirst(&wire.ClientFrame{Frame: &wire.ClientFrame_Hello{Hello: &wire.Hello{Version: 1}}})
	if bye := goodbye(t, transport.NewFrameReader(refused, 4096)); bye.Code != wire.Goodbye_TOO_MANY_CONNECTIONS {
		t.Errorf("goodbye %v", bye)
	}
	_ = first.conn.Close()
	eventually(t, "a place to come free", func() bool { return p.Connections() < 2 })
	unhurt(t, p)
}

func TestStormOfBadConnectionsIsLoggedAsASample(t *testing.T) {
	p := serve(t, nil)
	const storm = 10 * complaintBurst
	for range storm {
		conn := dial(t, p)
		_, _ = io.WriteString(conn, "garbage")
		closedByNode(t, conn)
	}
	if n := p.log.count("connection refused"); n < complaintBurst || n > storm/2 {
		t.Errorf("%d of %d were logged", n, storm)
	}
	unhurt(t, p)
}

// shallow has the kernel keep little of what is sent.
type shallow struct{ net.Listener }

func (l shallow) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		err = conn.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	return conn, err
}

func TestClientThatDoesNotReadIsCut(t *testing.T) {
	p := serve(t, func(c *Config) {
		c.Limits.MaxFrameBytes, c.Limits.MaxOutboxBytes = 64<<10, 128<<10
		c.Limits.FrameTimeout = time.Minute // it is the bound on bytes that shall cut it
		c.Listener = shallow{c.Listener}
	})
	slow := connect(t, p)
	session := slow.open(secret)
	if err := slow.conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	for {
		// Refused requests are answered at once, and never read.
		err := slow.w.Write(&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: acquire(session, 0, "l", false)}})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the node never cut the client off")
		}
		if err != nil {
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Fatal(err)
			}
			break
		}
	}
	eventually(t, "the reason in the log", func() bool { return p.log.count("SLOW_CONSUMER") == 1 })
	unhurt(t, p)
}
