package attacker

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	// maxFrame is what a frame may have, maxBody what a request over HTTP may have.
	maxFrame, maxBody = 1 << 20, 64 << 10
	// missing is how much of each is never sent.
	missing = 16
	// sendTimeout bounds the sending of what comes before.
	sendTimeout = 10 * time.Second
)

// unfinishedFrames sends frames of the largest size but for their end, on many
// connections.
func (a *attack) unfinishedFrames(ctx context.Context) error {
	part := make([]byte, maxFrame-missing)
	a.ready.Store(true)
	a.each(ctx, a.plan.Connections, func(ctx context.Context, _ int) error {
		a.pace.wait(ctx)
		f, err := a.framed(ctx, 0)
		if err != nil {
			return err
		}
		defer f.close()
		return a.stop(ctx, f.tcp, f.Conn, append(binary.BigEndian.AppendUint32(nil, maxFrame), part...))
	})
	return nil
}

// unfinishedBodies sends requests over HTTP of the largest size but for their end: on
// most connections one, on some as many as HTTP/2 allows.
func (a *attack) unfinishedBodies(ctx context.Context) error {
	part := make([]byte, maxBody-missing)
	head := fmt.Sprintf("POST /quorumlock.v1.LockService/List HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", maxBody)
	a.ready.Store(true)
	a.each(ctx, a.plan.Connections, func(ctx context.Context, i int) error {
		a.pace.wait(ctx)
		if i%20 == 0 {
			return a.streams(ctx, 1<<20, maxStreams, func(h *http2) error {
				return h.post("/quorumlock.v1.LockService/List", "application/json", part, maxBody)
			}, nil)
		}
		conn, err := a.dial(ctx, "http", a.leader().HTTP, 0)
		if err != nil {
			return err
		}
		defer a.drop(conn)
		return a.stop(ctx, conn, conn, append([]byte(head), part...))
	})
	return nil
}

// stop sends the bytes and then nothing, until the node closes the connection.
func (a *attack) stop(ctx context.Context, tcp *net.TCPConn, conn net.Conn, bytes []byte) error {
	end := context.AfterFunc(ctx, func() { _ = tcp.Close() })
	defer end()
	_ = conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	n, err := conn.Write(bytes)
	a.bytesSent.Add(int64(n))
	if err != nil {
		return err
	}
	a.sent.Add(1)
	got, _ := io.Copy(io.Discard, conn)
	a.bytesRead.Add(got)
	a.closed.Add(1)
	return nil
}
