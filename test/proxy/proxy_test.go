package proxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/test/proxy"
)

const (
	waitTimeout = 10 * time.Second
	// brief is how long to wait for what must not happen.
	brief = 200 * time.Millisecond
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// before returns a proxy in front of an echo server, and a connection through both.
func before(t *testing.T) (*proxy.Proxy, net.Conn) {
	t.Helper()
	echo := listen(t)
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn) // ends with the connection
			}()
		}
	}()
	front := listen(t)
	p := proxy.New(front, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", echo.Addr().String())
	})
	t.Cleanup(p.Close)
	conn, err := net.Dial("tcp", front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return p, conn
}

// echoed sends bytes and waits for their echo.
func echoed(conn net.Conn, count int, within time.Duration) (time.Duration, error) {
	started := time.Now()
	_ = conn.SetDeadline(started.Add(within))
	if _, err := conn.Write(make([]byte, count)); err != nil {
		return 0, err
	}
	_, err := io.ReadFull(conn, make([]byte, count))
	return time.Since(started), err
}

func mustEcho(t *testing.T, conn net.Conn, count int, atLeast, atMost time.Duration) {
	t.Helper()
	if took, err := echoed(conn, count, waitTimeout); err != nil || took < atLeast || took > atMost {
		t.Errorf("%d bytes took %v, %v; want %v to %v", count, took, err, atLeast, atMost)
	}
}

func TestDelayAndJitter(t *testing.T) {
	p, conn := before(t)
	mustEcho(t, conn, 1, 0, time.Second)
	p.Behave(proxy.Manners{Delay: brief, Jitter: brief})
	mustEcho(t, conn, 1<<20, 2*brief, waitTimeout)
	if c := p.Counts(); c.Late != 2<<20 || c.Bytes != 2<<20+2 || c.Connections != 1 {
		t.Errorf("counted %+v", c)
	}
	p.Behave(proxy.Manners{})
	mustEcho(t, conn, 1, 0, time.Second)
}

func TestSlowBytes(t *testing.T) {
	p, conn := before(t)
	p.Behave(proxy.Manners{Rate: 1_000})
	mustEcho(t, conn, 500, 500*time.Millisecond, waitTimeout)
	if c := p.Counts(); c.Late != 1_000 {
		t.Errorf("counted %+v", c)
	}
}

func TestStall(t *testing.T) {
	p, conn := before(t)
	mustEcho(t, conn, 1, 0, waitTimeout)
	p.Behave(proxy.Manners{Stall: true})
	if _, err := echoed(conn, 1, brief); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("while it stalls: %v", err)
	}
	p.Behave(proxy.Manners{})
	_ = conn.SetDeadline(time.Now().Add(waitTimeout))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if c := p.Counts(); c.Stalled == 0 {
		t.Errorf("counted %+v", c)
	}
}

func TestBreak(t *testing.T) {
	p, conn := before(t)
	mustEcho(t, conn, 1, 0, waitTimeout)
	p.Break()
	if _, err := echoed(conn, 1, waitTimeout); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a broken connection: %v", err)
	}
	if c := p.Counts(); c.Broken != 1 {
		t.Errorf("counted %+v", c)
	}
}
