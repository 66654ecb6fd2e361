package listener

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/test/bubble"
)

// wired is a connection whose reads and writes end as the test determines.
type wired struct {
	net.Conn
	arrives string
	fails   error
}

func (w *wired) Read(p []byte) (int, error)  { return copy(p, w.arrives), w.fails }
func (w *wired) Write(p []byte) (int, error) { return len(p), w.fails }
func (*wired) Close() error                  { return nil }
func (*wired) RemoteAddr() net.Addr          { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

// wiredConn returns a connection over w, and what is logged about it.
func wiredConn(w *wired, buffers *budget.Budget) (*Conn, *strings.Builder) {
	log := &strings.Builder{}
	connections := New(Config{
		Warnings: ratelog.New(hclog.New(&hclog.LoggerOptions{Output: log})), Registry: prometheus.NewRegistry(),
		Buffers: buffers, Plain: true, MaxConnections: 9, MaxHandshakes: 9, IdleTimeout: time.Hour,
	})
	return connections.Begin(w), log
}

// TestWhatArrivedWithoutARequest verifies that arriving bytes are recorded between requests only, and silence
// only before the first request.
func TestWhatArrivedWithoutARequest(t *testing.T) {
	for name, c := range map[string]struct {
		conn        *Conn
		wire        wired
		plain, none bool
	}{
		"bytes":                        {&Conn{}, wired{arrives: "x"}, true, true},
		"bytes below TLS":              {&Conn{}, wired{arrives: "x"}, false, true},
		"more after a request":         {&Conn{received: 1}, wired{arrives: "x"}, true, true},
		"more below TLS":               {&Conn{received: 1}, wired{arrives: "x"}, false, false},
		"nothing":                      {&Conn{}, wired{}, true, false},
		"nothing in time":              {&Conn{}, wired{fails: os.ErrDeadlineExceeded}, true, true},
		"nothing more":                 {&Conn{received: 1}, wired{fails: os.ErrDeadlineExceeded}, true, false},
		"a connection that broke":      {&Conn{}, wired{fails: net.ErrClosed}, true, false},
		"the body of a request":        {&Conn{serving: true, received: 1}, wired{arrives: "x"}, true, false},
		"a request that came in time":  {&Conn{serving: true, late: true}, wired{}, true, false},
		"a request that came in bytes": {&Conn{serving: true, head: []byte("x")}, wired{}, true, false},
	} {
		c.conn.Conn = &c.wire
		_, _ = c.conn.Read(make([]byte, 10))
		if got := c.conn.noRequest(c.plain); got != c.none {
			t.Errorf("%s: no request: %v", name, got)
		}
		if c.conn.serving && c.wire.arrives != "" && len(c.conn.head) > 0 {
			t.Errorf("%s: it was noted", name)
		}
	}
}

// TestRefusalsAreNoted verifies that only net/http's own refusals are recorded, which come between requests.
func TestRefusalsAreNoted(t *testing.T) {
	for written, want := range map[string]string{
		"HTTP/1.1 400 Bad Request\r\n\r\nwhy not": "why not",
		"HTTP/1.1 505 Version\r\n\r\nno such":     "no such",
		"HTTP/1.1 200 OK\r\n\r\nall is well":      "",
	} {
		c, _ := wiredConn(&wired{}, nil)
		_, _ = c.Write([]byte(written))
		serving, _ := wiredConn(&wired{}, nil)
		serving.serving = true
		_, _ = serving.Write([]byte(written))
		if c.refusal != want || serving.refusal != "" {
			t.Errorf("%q: noted %q, and %q of a handler", written, c.refusal, serving.refusal)
		}
	}
}

func TestCallerThatDoesNotReadIsNamedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want int
	}{"written": {nil, 0}, "broken": {net.ErrClosed, 0}, "stalled": {os.ErrDeadlineExceeded, 1}} {
		conn, output := wiredConn(&wired{fails: c.err}, nil)
		for range 3 {
			_, _ = conn.Write([]byte("answer"))
		}
		if got := strings.Count(output.String(), "does not read"); got != c.want {
			t.Errorf("%s: named %d times, want %d", name, got, c.want)
		}
	}
}

// TestConnectionWithoutMemory verifies that a connection that the budget has no room for is not established.
func TestConnectionWithoutMemory(t *testing.T) {
	c, _ := wiredConn(&wired{}, budget.New(1))
	r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(Context(t.Context(), c))
	for range 2 {
		if c.connections.Request(r); c.connections.Establish(r) {
			t.Error("established")
		}
	}
	_ = c.Close()
}

// TestRequestsOfAConnection verifies that a connection remembers its first request, takes a place only when it is
// established, and has none once it is closed.
func TestRequestsOfAConnection(t *testing.T) {
	c, _ := wiredConn(&wired{arrives: "x"}, nil)
	r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(Context(t.Context(), c))
	c.connections.Request(r)
	c.rest(time.Hour)
	if _, _ = c.Read(make([]byte, 1)); c.noRequest(false) {
		t.Error("a goodbye below TLS is taken for something without a request")
	}
	places := func() [2]int {
		_, established := c.connections.Len()
		return [2]int{established, c.connections.Handshakes()}
	}
	if got := places(); got != [2]int{0, 1} {
		t.Errorf("before a verified caller: established and not: %v", got)
	}
	first := c.connections.Establish(r)
	if again := c.connections.Establish(r); !first || !again || places() != [2]int{1, 0} {
		t.Errorf("after one: %v, then %v, established and not: %v", first, again, places())
	}
	_ = c.Close()
	if c.connections.Establish(r) || places() != [2]int{0, 0} {
		t.Errorf("after its end: established and not: %v", places())
	}
}

// TestNodesAlwaysGetAPlace verifies that the connections of clients cannot keep out those of other nodes.
func TestNodesAlwaysGetAPlace(t *testing.T) {
	l := New(Config{Registry: prometheus.NewRegistry(), MaxConnections: 1, MaxHandshakes: 9, IdleTimeout: time.Hour})
	establish := func(raw net.Conn) (*Conn, bool) {
		c := l.Begin(raw)
		t.Cleanup(func() { _ = c.Close() })
		return c, l.Establish(httptest.NewRequest(http.MethodGet, "/", nil).WithContext(Context(t.Context(), c)))
	}
	client, first := establish(&wired{})
	_, second := establish(&wired{})
	node, third := establish(&NodeConn{&wired{}})
	if !first || second || !third {
		t.Errorf("established: a client %v, another one %v, a node %v", first, second, third)
	}
	_, _ = client.Close(), node.Close()
	if _, again := establish(&wired{}); !again {
		t.Error("places are not free")
	}
}

// TestConnectionIsCountedOncePerIdentity verifies that a connection is counted for each identity that uses it until it
// is closed, and that a refusal is not remembered.
func TestConnectionIsCountedOncePerIdentity(t *testing.T) {
	c, _ := wiredConn(&wired{}, nil)
	counted, refused, firsts := map[string]int{}, 0, 0
	count := func(identity string, refuses bool) {
		c.Count(identity, func(first bool) func() {
			if first {
				firsts++
			}
			if refuses {
				refused++
				return nil
			}
			counted[identity]++
			return func() { counted[identity]-- }
		})
	}
	count("ann", true)
	count("ann", false)
	count("ann", true)
	if count("ben", false); refused != 1 {
		t.Errorf("refused %d times", refused)
	}
	if counted["ann"] != 1 || counted["ben"] != 1 || firsts != 2 {
		t.Errorf("counted %v, %d times as the first", counted, firsts) // ann is, also when it is refused
	}
	_ = c.Close()
	if count("cid", false); counted["ann"] != 0 || counted["ben"] != 0 || counted["cid"] != 0 {
		t.Errorf("after its end: %v", counted)
	}
}

// TestClosedConnectionIsNotKept verifies that a closed connection does not stay in memory until its idle timer
// would have fired. The runtime keeps a stopped timer that stands between running ones.
func TestClosedConnectionIsNotKept(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	collected := make(chan struct{})
	run := func(d time.Duration) {
		running := time.AfterFunc(d, func() {})
		t.Cleanup(func() { running.Stop() })
	}
	run(time.Minute)
	func() {
		c, _ := wiredConn(&wired{}, nil)
		runtime.AddCleanup(c, func(collected chan struct{}) { close(collected) }, collected)
		c.rest(time.Hour)
		for range 1_000 {
			run(2 * time.Hour)
		}
		_ = c.Close()
	}()
	for range 100 {
		runtime.GC()
		select {
		case <-collected:
			return
		default:
			runtime.Gosched()
		}
	}
	t.Error("the connection is still in memory")
}

// TestStatesOfAConnection verifies that an HTTP/1 connection serves nothing between requests, while HTTP/2
// frames continue, and that nothing is logged about a connection before it is closed.
func TestStatesOfAConnection(t *testing.T) {
	c, output := wiredConn(&wired{arrives: "x"}, nil)
	_, _ = c.Read(make([]byte, 1))
	for _, state := range []http.ConnState{http.StateNew, http.StateHijacked} {
		if c.connections.State(c, state); output.String() != "" {
			t.Errorf("%v: %s", state, output)
		}
	}
	if c.connections.State(c, http.StateClosed); !strings.Contains(output.String(), "closed a connection without a request") {
		t.Errorf("closed: %s", output)
	}
	for _, http2 := range []bool{false, true} {
		c, _ := wiredConn(&wired{}, nil)
		c.serving, c.http2 = true, http2
		if c.connections.State(c, http.StateIdle); c.serving != http2 {
			t.Errorf("HTTP/2 %v: serving %v", http2, c.serving)
		}
	}
}

// TestCloseWhenIdle verifies that a connection is closed soon if it is between requests, and otherwise after the
// request.
func TestCloseWhenIdle(t *testing.T) {
	for name, c := range map[string]struct {
		states []http.ConnState
		closed bool // before the end of the request
	}{
		"before the first request": {nil, false},
		"during the first one":     {[]http.ConnState{http.StateActive}, false},
		"between requests":         {[]http.ConnState{http.StateActive, http.StateIdle}, true},
		"during the second one":    {[]http.ConnState{http.StateActive, http.StateIdle, http.StateActive}, false},
	} {
		bubble.Test(t, func(t *testing.T) {
			conn, _ := wiredConn(&wired{}, nil)
			for _, state := range c.states {
				conn.connections.State(conn, state)
			}
			conn.CloseWhenIdle()
			if conn.Closed() {
				t.Errorf("%s: closed before the response was sent", name)
			}
			if <-time.After(2 * flushTime); conn.Closed() != c.closed {
				t.Errorf("%s: closed %v", name, conn.Closed())
			}
			conn.connections.State(conn, http.StateIdle)
			if <-time.After(2 * flushTime); !conn.Closed() {
				t.Errorf("%s: open after the request", name)
			}
		})
	}
}
