package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// unhurt checks that the port still serves other clients.
func unhurt(t *testing.T, p *port) {
	t.Helper()
	c := connect(t, p)
	session := c.open(fmt.Appendf(nil, "unhurt-%p-secret", c))
	c.expect(wire.Status_GRANTED, acquire(session, 1, "unhurt", false))
	c.expect(wire.Status_OK, &wire.Request{SessionId: session, Body: &wire.Request_CloseSession{CloseSession: &wire.CloseSession{}}})
}

func TestGarbageIsReportedAndClosed(t *testing.T) {
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

func TestBadFramesAreReportedAndClosed(t *testing.T) {
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

func TestVersionIsRefusedWithAMessage(t *testing.T) {
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

func TestTooManyConnectionsAreReported(t *testing.T) {
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
	const storm = 10 * ratelog.Burst
	for range storm {
		conn := dial(t, p)
		_, _ = io.WriteString(conn, "garbage")
		closedByNode(t, conn)
	}
	if n := p.log.count("connection refused"); n < ratelog.Burst || n > storm/2 {
		t.Errorf("%d of %d were logged", n, storm)
	}
	unhurt(t, p)
}

func TestRequestsThatSwellNeverReachTheReplica(t *testing.T) {
	p := serve(t, nil)
	c := connect(t, p)
	session := c.open(secret)
	p.replica.hold() // later commands get no answer
	many := acquire(session, 1, "l", true)
	many.GetAcquire().Locks = make([]*wire.LockRequest, maxNames+1)
	for i := range many.GetAcquire().GetLocks() {
		many.GetAcquire().Locks[i] = &wire.LockRequest{}
	}
	c.expect(wire.Status_INVALID_ARGUMENT, many)
	large := acquire(session, 1, "l", true)
	large.GetAcquire().Value = make([]byte, 128<<10)
	c.expect(wire.Status_RESOURCE_EXHAUSTED, large)
	open := &wire.OpenRequest{Secret: secret, Client: &wire.ClientInfo{Name: strings.Repeat("x", 128<<10)}}
	c.expect(wire.Status_RESOURCE_EXHAUSTED, &wire.Request{Body: &wire.Request_OpenSession{OpenSession: open}})
	if n := p.replica.heldBack(); n != 0 {
		t.Errorf("%d commands were proposed", n)
	}
	p.replica.release()
	c.expect(wire.Status_GRANTED, acquire(session, 1, "l", true))
}
