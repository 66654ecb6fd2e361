package httpapi

import (
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// Types and flags of HTTP/2 frames, from RFC 9113.
const (
	frameData, frameHeaders, frameReset, frameSettings, framePing = 0, 1, 3, 4, 6
	flagEnd, flagAck, flagEndHeaders                              = 1, 1, 4
)

// h2conn is a connection of an HTTP/2 client that sends the frames that a test chooses.
type h2conn struct {
	net.Conn
	t *testing.T
}

// dialH2 connects and sends the preface.
func dialH2(t *testing.T, p *port) *h2conn {
	t.Helper()
	c := &h2conn{p.raw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), t}
	c.frame(frameSettings, 0, 0, nil)
	return c
}

func (c *h2conn) frame(kind, flags byte, stream uint32, payload []byte) {
	c.t.Helper()
	head := append(binary.BigEndian.AppendUint32(nil, uint32(len(payload)))[1:], kind, flags)
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(head, stream), payload...)); err != nil {
		c.t.Error(err)
	}
}

// next returns the next frame.
func (c *h2conn) next() (kind, flags byte, stream uint32, payload []byte, err error) {
	head := make([]byte, 9)
	if _, err = io.ReadFull(c, head); err != nil {
		return 0, 0, 0, nil, err
	}
	payload = make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	_, err = io.ReadFull(c, payload)
	return head[3], head[4], binary.BigEndian.Uint32(head[5:]), payload, err
}

// headers encodes header fields without compression.
func headers(fields ...string) (block []byte) {
	for i := 0; i < len(fields); i += 2 {
		block = append(block, 0)
		for _, text := range fields[i : i+2] {
			block = append(append(block, byte(len(text))), text...)
		}
	}
	return block
}

// TestRefusalsArriveOverHTTP2 verifies that the stream of a refused request is not reset: the gate reads the body, which
// arrives after the headers, before it answers. Callers such as curl drop the answer of a stream that was reset.
func TestRefusalsArriveOverHTTP2(t *testing.T) {
	p, _, _, _ := governed(t)
	for range 100 {
		c := dialH2(t, p)
		c.frame(frameHeaders, flagEndHeaders, 1, headers(":method", "POST", ":scheme", "http", ":path", "/quorumlock.v1.AccessService/WhoAmI",
			":authority", "n1", "content-type", "application/json", "authorization", "Bearer "+identity.NewToken()[:40]))
		c.frame(framePing, 0, 0, make([]byte, 8))
		if body := c.answer(); !strings.Contains(body, "unauthenticated") {
			t.Fatalf("answered %q", body)
		}
		_ = c.Close()
	}
}

// answer sends the body of stream 1 as soon as its headers have been read, and returns the body of the answer.
func (c *h2conn) answer() (body string) {
	c.t.Helper()
	for ended, sent := false, false; !ended || !sent; {
		kind, flags, stream, payload, err := c.next()
		switch {
		case err != nil:
			c.t.Fatal(err)
		case kind == framePing && flags&flagAck != 0:
			c.frame(frameData, flagEnd, 1, []byte("{}"))
			sent = true
		case kind == frameReset:
			c.t.Fatalf("the stream was reset after %q", body)
		case kind == frameData && stream == 1:
			body += string(payload)
			ended = flags&flagEnd != 0
		}
	}
	return body
}

// TestRefusalsDoNotWaitForTheBody verifies that a refused caller that withholds its body is answered soon.
func TestRefusalsDoNotWaitForTheBody(t *testing.T) {
	p, _, _, _ := governed(t)
	started := time.Now()
	conn := p.raw("POST /quorumlock.v1.AccessService/WhoAmI HTTP/1.1\r\nHost: n1\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{")
	answer, _ := io.ReadAll(conn)
	if took := time.Since(started); !strings.Contains(string(answer), "403") || took > p.server.cfg.Limits.BodyTimeout/2 {
		t.Errorf("after %v: %q", took, answer)
	}
}

// TestRefusalsOfGeneratedClients verifies that clients of Connect get the refusals of the gate over both versions of HTTP.
func TestRefusalsOfGeneratedClients(t *testing.T) {
	p, _, _, _ := governed(t)
	for version, client := range map[string]*http.Client{"HTTP/1.1": p.client, "HTTP/2": h2c(t)} {
		access := wireconnect.NewAccessServiceClient(client, "http://"+p.addr)
		for range 50 {
			req := connect.NewRequest(&wire.WhoAmIRequest{})
			req.Header().Set("Authorization", "Bearer "+identity.NewToken())
			if _, err := access.WhoAmI(t.Context(), req); connect.CodeOf(err) != connect.CodeUnauthenticated || !strings.Contains(err.Error(), "token") {
				t.Fatalf("%s: %v", version, err)
			}
		}
	}
}
