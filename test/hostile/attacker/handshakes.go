package attacker

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
)

// handshakes keeps Connections half-made handshakes open on each port of the leader. A third of the
// connections send nothing, a third stop in the middle of a TLS hello, a third send a complete one and stop.
// Each connection that the node closes is replaced.
func (a *attack) handshakes(ctx context.Context) error {
	hello, err := clientHello()
	if err != nil {
		return err
	}
	openings := [][]byte{nil, hello[:len(hello)/2], hello}
	ports := map[string]string{"client": a.leader().Client, "peer": a.leader().Peer, "http": a.leader().HTTP, "redis": a.leader().Redis}
	a.ready.Store(true)
	var all sync.WaitGroup
	for port, addr := range ports {
		all.Go(func() {
			a.each(ctx, a.plan.Connections, func(ctx context.Context, i int) error {
				a.pace.wait(ctx)
				return a.halfMade(ctx, port, addr, openings[i%len(openings)])
			})
		})
	}
	all.Wait()
	return nil
}

// halfMade opens one connection, sends the opening and waits for the node to close it.
func (a *attack) halfMade(ctx context.Context, port, addr string, opening []byte) error {
	conn, err := a.dial(ctx, port, addr, 0)
	if err != nil {
		return err
	}
	defer a.drop(conn)
	_ = conn.SetLinger(0) // leave no port in TIME_WAIT
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := conn.Write(opening); err != nil {
		return err
	}
	a.sent.Add(1)
	a.bytesSent.Add(int64(len(opening)))
	n, _ := io.Copy(io.Discard, conn)
	a.bytesRead.Add(n)
	a.closed.Add(1)
	return nil
}

// clientHello returns the first message of a TLS client.
func clientHello() ([]byte, error) {
	near, far := net.Pipe()
	defer far.Close()
	go func() {
		_ = tls.Client(near, &tls.Config{ServerName: "127.0.0.1"}).Handshake() // it gets no reply
		_ = near.Close()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(far, head); err != nil {
		return nil, err
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(far, body); err != nil {
		return nil, err
	}
	return append(head, body...), nil
}
