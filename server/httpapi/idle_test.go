package httpapi

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/httpapi/listener"
)

// dialled returns an HTTP/2 client and a function that returns its latest connection.
func dialled(t *testing.T) (client *http.Client, last func() *dialledConn) {
	client = h2c(t)
	return client, lastOf(client)
}

// lastOf returns a function that returns the latest connection of a client.
func lastOf(client *http.Client) (last func() *dialledConn) {
	var mu sync.Mutex
	var latest *dialledConn
	client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		latest = &dialledConn{Conn: conn}
		return latest, nil
	}
	return func() *dialledConn {
		mu.Lock()
		defer mu.Unlock()
		return latest
	}
}

// dialledConn is a connection of a client, which closes it when it has read its end.
type dialledConn struct {
	net.Conn
	closed atomic.Bool
}

// Close implements net.Conn.
func (c *dialledConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// TestEndedConnectionsAreNotKept verifies that a connection that ends during a request does not stay in
// memory until the idle timeout.
func TestEndedConnectionsAreNotKept(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1")
	p.open("ann").send("LockService/Acquire", `"seq":1,"name":"a"`).ok()
	port := *p
	client, last := dialled(t)
	port.client = client
	bob := port.open("bob")
	collected := make(chan struct{})
	var once sync.Once
	c.onCommand(func(conn *listener.Conn) {
		once.Do(func() { runtime.AddCleanup(conn, func(collected chan struct{}) { close(collected) }, collected) })
	})
	waiting := bob.later(t.Context(), forever)
	c.queued("a", 1)
	if err := last().Close(); err != nil {
		t.Fatal(err)
	}
	if _, answered := <-waiting; answered {
		t.Error("the request was answered")
	}
	client.CloseIdleConnections()
	// net/http's own timers take at most half a minute, and the runtime may keep them after they were stopped.
	for deadline := time.After(time.Minute); ; {
		runtime.GC()
		select {
		case <-collected:
			return
		case <-deadline:
			t.Fatal("the connection is still in memory")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestIdleConnectionsAreClosed verifies for both HTTP versions that connections are closed when they had no
// request for the idle timeout, but not during a request.
func TestIdleConnectionsAreClosed(t *testing.T) {
	const idle = 200 * time.Millisecond
	c := newCluster(t)
	p := start(t, c, "n1", limits(func(l *Limits) { l.IdleTimeout = idle }))
	ann := p.open("ann")
	ann.send("LockService/Acquire", `"seq":1,"name":"a"`).ok()
	h2, last := dialled(t)
	port := *p
	port.client = h2
	bob := port.open("bob")
	waiting := bob.later(t.Context(), forever)
	c.queued("a", 1)
	raw := p.raw("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	started := time.Now()
	if _, err := io.Copy(io.Discard, raw); err != nil {
		t.Errorf("a connection of HTTP/1.1 without a request: %v", err)
	}
	if took := time.Since(started); took < idle/2 {
		t.Errorf("closed after %v", took)
	}
	conn := last()
	c.expire(ann.num)
	soon(t, waiting).ok()
	eventually(t, "the connection of HTTP/2 without a request to be closed", conn.closed.Load)
	if last() != conn {
		t.Error("the connection was closed during a request")
	}
}
