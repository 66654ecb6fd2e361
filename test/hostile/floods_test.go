package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/resp"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// floodSize is the number of connections in a flood, halfOpen that of connections that are only opened.
	floodSize, halfOpen = 80, 200
	// drip is the interval between two bytes of a slow-loris attack.
	drip = 250 * time.Millisecond
	// turnTime is how long a port's log needs until it accepts as many lines again.
	turnTime = 5 * time.Second
)

// flood is a set of connections that do the same at the same time.
type flood struct {
	name string
	port port
	raw  bool
	size int
	// greeted is set if a hello was sent before.
	greeted bool
	// slowly is sent one byte at a time. After its end, its last byte is repeated.
	slowly []byte
	within time.Duration
	// log is what at least one log line about one of them must contain.
	log []string
}

func floods(c *cluster) []flood {
	post := []byte("POST /quorumlock.v1.LockService/List HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	all := []flood{
		{name: "half-open to the client port", port: clientPort, raw: true, size: halfOpen, within: handshakeTime, log: []string{"connection refused", "deadline exceeded"}},
		{name: "half-open to the peer port", port: peerPort, raw: true, size: halfOpen, within: handshakeTime, log: []string{"the peer port", `reason="overload"`}},
		{name: "half-open to the HTTP port", port: httpPort, raw: true, size: halfOpen, within: headerTime, log: []string{"arrived in time"}},
		{name: "half-open to the Redis port", port: redisPort, raw: true, size: halfOpen, within: handshakeTime, log: []string{"connection refused", "came in time"}},
		{name: "slow commands to the Redis port", port: redisPort, slowly: []byte("*2\r\n$4\r\nECHO\r\n$1000\r\nxxxxxxxxxx"), within: handshakeTime, log: []string{"connection refused", "came in time"}},
		{name: "slow hellos to the client port", port: clientPort, slowly: first(make([]byte, 200)), within: handshakeTime, log: []string{"connection refused", "deadline exceeded"}},
		{name: "slow hellos to the peer port", port: peerPort, size: 40, slowly: first(make([]byte, 200)), within: handshakeTime, log: []string{"the peer port", `reason="timeout"`}},
		{name: "slow headers to the HTTP port", port: httpPort, slowly: post, within: headerTime, log: []string{"without a request"}},
		{name: "slow frames to the client port", port: clientPort, greeted: true, slowly: torn(1<<20, 500), within: frameTime, log: []string{"PROTOCOL_ERROR", "did not arrive in time"}},
	}
	if c.certs != "" {
		all[2].log = []string{"TLS handshake error", "timeout"}
		all = slices.DeleteFunc(all, func(k flood) bool { return k.name == "half-open to the Redis port" })
		all = append(all,
			flood{name: "slow TLS to the Redis port", port: redisPort, raw: true, slowly: clientHello, within: handshakeTime, log: []string{"connection refused", "deadline exceeded"}},
			flood{name: "slow TLS to the client port", port: clientPort, raw: true, slowly: clientHello, within: handshakeTime, log: []string{"connection refused", "deadline exceeded"}},
			flood{name: "slow TLS to the HTTP port", port: httpPort, raw: true, slowly: clientHello, within: headerTime, log: []string{"TLS handshake error", "timeout"}})
	}
	return all
}

// testFloods lets floods connect to every port, one after the other, since a port's log is sampled and each
// flood must appear in it. Only on the HTTP port, where they take long, the next one begins before the
// previous one has ended.
func testFloods(t *testing.T, c *cluster) {
	for _, p := range ports {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			turn := 0
			for _, k := range floods(c) {
				if k.port != p {
					continue
				}
				late := time.Duration(turn) * turnTime
				turn++
				t.Run(k.name, func(t *testing.T) {
					if p == httpPort {
						t.Parallel()
						<-time.After(late)
					}
					k.run(t, c)
				})
			}
		})
	}
	t.Run("requests for sessions of others", func(t *testing.T) { t.Parallel(); testUnattached(t, c) })
	t.Run("a client that never reads", func(t *testing.T) { t.Parallel(); testNeverReads(t, c) })
	t.Run("bodies that swell", func(t *testing.T) { t.Parallel(); testSwellingBodies(t, c) })
	t.Run("messages that swell", func(t *testing.T) { t.Parallel(); testSwellingMessages(t, c) })
}

// run opens the connections and waits until the node has closed all of it.
func (k flood) run(t *testing.T, c *cluster) {
	t.Helper()
	if k.size == 0 {
		k.size = floodSize
	}
	var conns []net.Conn
	var locals []string
	started := time.Now()
	for range k.size {
		var conn net.Conn
		if k.raw {
			conn = c.raw(t, k.port)
		} else {
			conn = c.dial(t, k.port)
		}
		if k.greeted {
			greet(t, c, conn, k.port)
		}
		conns, locals = append(conns, conn), append(locals, conn.LocalAddr().String())
	}
	opened := time.Now()
	stop := make(chan struct{})
	var dripping sync.WaitGroup
	dripping.Go(func() { k.drip(conns, stop) })
	late := awaitClosed(conns, opened.Add(k.within+slack))
	close(stop)
	dripping.Wait()
	if late > 0 {
		t.Errorf("%d of %d connections are open after %v", late, k.size, k.within+slack)
	}
	t.Logf("%d connections opened within %v, all closed after %v more", k.size, opened.Sub(started).Round(time.Millisecond), time.Since(opened).Round(time.Millisecond))
	await(t, fmt.Sprintf("a line of the log that says %q of one of them", k.log), logTime, func(context.Context) error {
		for _, line := range c.leader.log.find(k.log...) {
			if slices.ContainsFunc(locals, func(local string) bool { return strings.Contains(line, local) }) {
				return nil
			}
		}
		return errors.New("none")
	})
}

// drip sends the bytes to all connections, one at a time.
func (k flood) drip(conns []net.Conn, stop <-chan struct{}) {
	if len(k.slowly) == 0 {
		return
	}
	tick := time.NewTicker(drip)
	defer tick.Stop()
	for i := 0; ; i++ {
		at := min(i, len(k.slowly)-1)
		for _, conn := range conns {
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = conn.Write(k.slowly[at : at+1]) // that connection may be closed
		}
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
}

// awaitClosed waits until the other side has closed the connections, and returns the number of those that are
// still open.
func awaitClosed(conns []net.Conn, deadline time.Time) (late int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, conn := range conns {
		all.Go(func() {
			_ = conn.SetReadDeadline(deadline)
			_, err := io.Copy(io.Discard, conn)
			transport.Cut(conn)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				mu.Lock()
				late++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return late
}

// TestTooManyConnections uses up a node's connection limit. New connections get an error and are closed,
// existing ones stay, and freed slots can be used again.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	const places, more = 60, 200
	c := startCluster(t, 1, plaintext, "--max-connections", "60", "--http-max-connections", "60")
	l := startLoad(t, c)
	before := c.sizes()
	t.Run("places", func(t *testing.T) { testPlaces(t, c, places, more) })
	t.Run("a caller that never reads", func(t *testing.T) { testCallerNeverReads(t, c) })
	l.finish()
	c.waitForSize(before)
	c.honest()
}

func testPlaces(t *testing.T, c *cluster, places, more int) {
	for p, texts := range map[port][]string{
		clientPort: {"connection refused", "connections"}, httpPort: {"too many connections"}, redisPort: {"qlockd.redis", "connection refused", "too many connections"},
	} {
		t.Run(string(p), func(t *testing.T) {
			var conns []net.Conn
			for range places + more {
				conns = append(conns, c.raw(t, p))
			}
			for _, conn := range conns {
				_, _ = conn.Write(opening(p))
			}
			if open := awaitClosed(conns, time.Now().Add(handshakeTime)); open > places {
				t.Errorf("%d of %d connections are open, there are %d places", open, len(conns), places)
			}
			if !logged(t, c.leader, texts...) {
				t.Errorf("the log does not say %q", texts)
			}
			await(t, "a place again", timeout, func(ctx context.Context) error {
				switch p {
				case httpPort:
					_, err := c.leader.get(ctx, "/healthz")
					return err
				case redisPort:
					return pinged(c.raw(t, p))
				}
				conn, err := transport.Dial(ctx, nil, c.leader.addr[p], nil)
				if err != nil {
					return err
				}
				defer transport.Cut(conn)
				_, _, err = transport.ClientHandshake(ctx, conn, &wire.Hello{})
				return err
			})
		})
	}
	for _, name := range []string{"quorumlock_client_connections_refused_total", "quorumlock_http_connections_refused_total", "quorumlock_redis_connections_refused_total"} {
		if refused := c.leader.metrics()[name]; int(refused) < more {
			t.Errorf("%s is %v, at least %d were", name, refused, more)
		}
	}
}

// opening returns what establishes a connection: a hello, a request or a command.
func opening(p port) []byte {
	switch p {
	case clientPort:
		return first(encoded(&wire.ClientFrame{Frame: &wire.ClientFrame_Hello{Hello: &wire.Hello{Version: 1}}}))
	case redisPort:
		return resp.Encode("PING")
	}
	return []byte("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
}

// pinged returns an error unless the Redis port answers on the connection.
func pinged(conn net.Conn) error {
	defer transport.Cut(conn)
	reply, err := resp.New(conn).Do("PING")
	if err == nil && reply != "+PONG\r\n" {
		err = errors.New(reply)
	}
	return err
}
