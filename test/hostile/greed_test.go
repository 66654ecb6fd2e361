package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// caller is a separate implementation of the session protocol.
type caller struct {
	t    *testing.T
	conn net.Conn
	r    *transport.FrameReader
	w    *transport.FrameWriter
}

func call(t *testing.T, c *cluster) *caller {
	t.Helper()
	conn := c.dial(t, clientPort)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, r, err := transport.ClientHandshake(ctx, conn, &wire.Hello{Agent: "hostile"})
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(2 * timeout))
	return &caller{t: t, conn: conn, r: r, w: transport.NewFrameWriter(conn, transport.DefaultMaxFrame)}
}

// response returns the next response and skips pushes.
func (c *caller) response() *wire.Response {
	c.t.Helper()
	for {
		var frame wire.ServerFrame
		if err := c.r.Read(&frame); err != nil {
			c.t.Fatal(err)
		}
		if bye := frame.GetGoodbye(); bye != nil {
			c.t.Fatalf("goodbye: %v", bye)
		}
		if resp := frame.GetResponse(); resp != nil {
			return resp
		}
	}
}

// session opens a session that is attached here.
func (c *caller) session() uint64 {
	c.t.Helper()
	open := &wire.OpenRequest{Secret: noise(32), TtlMs: 60_000}
	if err := c.w.Write(&wire.ClientFrame{Frame: &wire.ClientFrame_Request{Request: &wire.Request{Id: 1, Body: &wire.Request_OpenSession{OpenSession: open}}}}); err != nil {
		c.t.Fatal(err)
	}
	resp := c.response()
	if resp.GetResult().GetStatus() != wire.Status_OK {
		c.t.Fatal(resp)
	}
	return resp.GetResult().GetSession().GetSessionId()
}

// testUnattached sends thousands of requests for sessions of others. Each is refused, without further
// effects.
func testUnattached(t *testing.T, c *cluster) {
	const count = 3_000
	cl := call(t, c)
	var sending sync.WaitGroup
	sending.Go(func() {
		for id := range uint64(count) {
			body := request(&wire.Request{Id: id, SessionId: id + 1, Body: &wire.Request_Heartbeat{Heartbeat: &wire.Heartbeat{}}})
			if _, err := cl.conn.Write(frame(body)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer sending.Wait()
	for range count {
		if status := cl.response().GetResult().GetStatus(); status != wire.Status_NOT_ATTACHED {
			t.Fatalf("answered %v", status)
		}
	}
}

// testNeverReads sends requests and does not read the answers.
func testNeverReads(t *testing.T, c *cluster) {
	cl := call(t, c)
	if plain, ok := cl.conn.(*net.TCPConn); ok {
		_ = plain.SetReadBuffer(4 << 10)
	}
	var batch []byte
	for id := range uint64(1_000) {
		batch = append(batch, frame(request(&wire.Request{Id: id, SessionId: 7, Body: &wire.Request_Heartbeat{Heartbeat: &wire.Heartbeat{}}}))...)
	}
	started := time.Now()
	_ = cl.conn.SetDeadline(started.Add(timeout))
	var err error
	for err == nil {
		_, err = cl.conn.Write(batch)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("not cut within %v", timeout)
	}
	t.Logf("cut after %v", time.Since(started).Round(time.Millisecond))
	if !logged(t, c.leader, cl.conn.LocalAddr().String(), "SLOW_CONSUMER") {
		t.Error("the log does not say why")
	}
}

// testCallerNeverReads repeatedly requests metrics and does not read them.
func testCallerNeverReads(t *testing.T, c *cluster) {
	const writeTime = 30 * time.Second // the port's own; there is no flag for it
	conn := c.dial(t, httpPort)
	started := time.Now()
	_ = conn.SetDeadline(started.Add(writeTime + 2*slack))
	batch := []byte(strings.Repeat("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 100))
	var err error
	for err == nil {
		_, err = conn.Write(batch)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("not cut within %v", writeTime+2*slack)
	}
	t.Logf("cut after %v", time.Since(started).Round(time.Millisecond))
	if !logged(t, c.leader, conn.LocalAddr().String(), "does not read") {
		t.Error("the log does not say why")
	}
}

// testSwellingBodies posts bodies that are small on the wire and large or deeply nested when decoded.
func testSwellingBodies(t *testing.T, c *cluster) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(append([]byte(`{"prefix":"`), repeat('a', 32<<20)...))
	_ = w.Close()
	for _, body := range []struct {
		name, kind, packing string
		bytes               []byte
		status              int
	}{
		{"32 MiB packed", "application/json", "gzip", packed.Bytes(), http.StatusTooManyRequests},
		{"more than the limit", "application/json", "", repeat(' ', 65<<10), http.StatusRequestEntityTooLarge},
		{"nested JSON", "application/json", "", append([]byte(`{"prefix":`), repeat('[', 60<<10)...), http.StatusBadRequest},
		{"nested message", "application/proto", "", repeat(startGroup, 60<<10), http.StatusBadRequest},
	} {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if status, err := c.post(body.kind, body.packing, body.bytes); err != nil || status != body.status {
					t.Errorf("%s: status %d, %v, want %d", body.name, status, err, body.status)
				}
			})
		}
		all.Wait()
	}
}

func (c *cluster) post(kind, packing string, body []byte) (status int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	n := c.leader
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.scheme+"://"+n.addr[httpPort]+"/quorumlock.v1.LockService/List", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", kind)
	if packing != "" {
		req.Header.Set("Content-Encoding", packing)
	}
	resp, err := n.caller.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// testSwellingMessages sends requests of the maximum size with contents that are small on the wire and large
// in memory, on the connection of a session.
func testSwellingMessages(t *testing.T, c *cluster) {
	const count = 200
	cl := call(t, c)
	session := cl.session()
	empty := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), nil)
	locks := bytes.Repeat(empty, 120_000) // 240 kB of empty locks
	var sending sync.WaitGroup
	sending.Go(func() {
		for id := range uint64(count) {
			acquire := protowire.AppendBytes(protowire.AppendTag(nil, 32, protowire.BytesType), locks)
			body := append(encoded(&wire.Request{Id: id, SessionId: session, Seq: id + 1}), acquire...)
			if _, err := cl.conn.Write(frame(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), body))); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer sending.Wait()
	for range count {
		if res := cl.response().GetResult(); res.GetStatus() != wire.Status_INVALID_ARGUMENT {
			t.Fatalf("answered %v", res)
		}
	}
}
