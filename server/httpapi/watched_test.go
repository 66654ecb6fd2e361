package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/budget"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
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

func watchWire(w *wired, buffers *budget.Budget) (*watched, *logbook) {
	book := &logbook{}
	connections := newConnections(loggerTo(book), Limits{MaxConnections: 9}, newMetrics(prometheus.NewRegistry()), true, buffers)
	connections.enter()
	c := &watched{Conn: w, connections: connections, idle: time.NewTimer(time.Hour)}
	c.place = connections.handshakes.Begin(c)
	return c, book
}

// TestWhatArrivedWithoutARequest verifies that arriving bytes are recorded between requests only, and silence
// only before the first request.
func TestWhatArrivedWithoutARequest(t *testing.T) {
	for name, c := range map[string]struct {
		conn        *watched
		wire        wired
		plain, none bool
	}{
		"bytes":                        {&watched{}, wired{arrives: "x"}, true, true},
		"bytes beneath TLS":            {&watched{}, wired{arrives: "x"}, false, true},
		"more after a request":         {&watched{reached: 1}, wired{arrives: "x"}, true, true},
		"more beneath TLS":             {&watched{reached: 1}, wired{arrives: "x"}, false, false},
		"nothing":                      {&watched{}, wired{}, true, false},
		"nothing in time":              {&watched{}, wired{fails: os.ErrDeadlineExceeded}, true, true},
		"nothing more":                 {&watched{reached: 1}, wired{fails: os.ErrDeadlineExceeded}, true, false},
		"a connection that broke":      {&watched{}, wired{fails: net.ErrClosed}, true, false},
		"the body of a request":        {&watched{serving: true, reached: 1}, wired{arrives: "x"}, true, false},
		"a request that came in time":  {&watched{serving: true, late: true}, wired{}, true, false},
		"a request that came in bytes": {&watched{serving: true, head: []byte("x")}, wired{}, true, false},
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
		c, _ := watchWire(&wired{}, nil)
		_, _ = c.Write([]byte(written))
		serving, _ := watchWire(&wired{}, nil)
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
	}{"written": {nil, 0}, "broken": {net.ErrClosed, 0}, "stuck": {os.ErrDeadlineExceeded, 1}} {
		conn, book := watchWire(&wired{fails: c.err}, nil)
		for range 3 {
			_, _ = conn.Write([]byte("answer"))
		}
		if got := strings.Count(book.String(), "does not read"); got != c.want {
			t.Errorf("%s: named %d times, want %d", name, got, c.want)
		}
	}
}

// TestConnectionWithoutMemory verifies that, without memory for its connection, a request is refused unless
// it asks for health.
func TestConnectionWithoutMemory(t *testing.T) {
	for _, health := range []bool{false, true} {
		c, _ := watchWire(&wired{}, budget.New(1))
		r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(c.connections.context(t.Context(), c))
		want := unseated
		if health {
			want = placed
		}
		if got := c.connections.request(r, health); got != want {
			t.Errorf("health %v: seat %d, want %d", health, got, want)
		}
		_ = c.Close()
	}
}

// TestRequestsOfAConnection verifies that a connection remembers its first request, and has no place once it
// is closed.
func TestRequestsOfAConnection(t *testing.T) {
	c, _ := watchWire(&wired{arrives: "x"}, nil)
	ask := func() seat {
		return c.connections.request(httptest.NewRequest(http.MethodGet, "/", nil).WithContext(c.connections.context(t.Context(), c)), false)
	}
	if got := ask(); got != placed {
		t.Errorf("seat %d", got)
	}
	c.rest(time.Hour)
	if _, _ = c.Read(make([]byte, 1)); c.noRequest(false) {
		t.Error("a farewell beneath TLS is taken for something without a request")
	}
	_ = c.Close()
	if got := ask(); got != unseated || c.connections.placed != 0 {
		t.Errorf("after its end: seat %d, %d have places", got, c.connections.placed)
	}
}

// TestStatesOfAConnection verifies that an HTTP/1 connection serves nothing between requests, while HTTP/2
// frames continue, and that nothing is logged about a connection before it is closed.
func TestStatesOfAConnection(t *testing.T) {
	c, book := watchWire(&wired{arrives: "x"}, nil)
	_, _ = c.Read(make([]byte, 1))
	for _, state := range []http.ConnState{http.StateNew, http.StateHijacked} {
		if c.connections.state(c, state); book.String() != "" {
			t.Errorf("%v: %s", state, book)
		}
	}
	if c.connections.state(c, http.StateClosed); !strings.Contains(book.String(), "closed a connection without a request") {
		t.Errorf("closed: %s", book)
	}
	for _, http2 := range []bool{false, true} {
		c, _ := watchWire(&wired{}, nil)
		c.serving, c.http2 = true, http2
		if c.connections.state(c, http.StateIdle); c.serving != http2 {
			t.Errorf("HTTP/2 %v: serving %v", http2, c.serving)
		}
	}
}

// TestAcceptedConnectionsAreSecure verifies that Accept returns connections after their handshake.
func TestAcceptedConnectionsAreSecure(t *testing.T) {
	dir := authority(t)
	p := start(t, newCluster(t), "n1", secured(dir, "n1", AuthNone))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	life, end := context.WithCancel(t.Context())
	secure := p.server.connections.listen(life, l, p.server.tls)
	defer secure.Close()
	defer end()
	dialled := make(chan error, 1)
	go func() {
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // of the test itself
		if err == nil {
			defer conn.Close()
			_, err = conn.Read(make([]byte, 1))
		}
		dialled <- err
	}()
	conn, err := secure.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if !conn.(*tls.Conn).ConnectionState().HandshakeComplete {
		t.Error("it was handed on before its handshake")
	}
	_ = conn.Close()
	<-dialled
}

// TestAnswerWithoutMemory verifies that an answer without memory is refused if nothing of it was written, and
// breaks the connection otherwise.
func TestAnswerWithoutMemory(t *testing.T) {
	b := budget.New(300 << 10)
	memory, err := b.Open(0, func() {})
	if err != nil {
		t.Fatal(err)
	}
	c := &call{}
	a := newAnswer(httptest.NewRecorder(), time.Second, c)
	a.memory = memory
	large := make([]byte, 200<<10)
	for range 2 { // the second write finds it already refused
		if n, err := a.Write(large); n != 0 || !errors.Is(err, budget.ErrExhausted) || !errors.Is(c.exhausted, budget.ErrExhausted) {
			t.Errorf("wrote %d, %v; noted %v", n, err, c.exhausted)
		}
		large = large[:1]
	}
	begun := newAnswer(httptest.NewRecorder(), time.Second, &call{})
	begun.memory = memory
	if n, err := begun.Write([]byte("begins")); n != 6 || err != nil || begun.status != http.StatusOK {
		t.Errorf("wrote %d, %v; status %d", n, err, begun.status)
	}
	defer func() {
		if r := recover(); r != http.ErrAbortHandler { //nolint:errorlint // of recover
			t.Errorf("an answer that had begun went on: %v", r)
		}
	}()
	_, _ = begun.Write(make([]byte, 200<<10))
}

// TestModestConnectionIsGivenLess verifies that only a connection that holds little gets a reservation
// smaller than its maximal answer.
func TestModestConnectionIsGivenLess(t *testing.T) {
	for held, want := range map[int]error{modest: nil, modest + 1: budget.ErrExhausted} {
		memory, err := budget.New(2*modest).Open(held, func() {})
		if err != nil {
			t.Fatal(err)
		}
		a := newAnswer(httptest.NewRecorder(), time.Second, &call{})
		a.memory = memory
		if err := a.prepare(modest); !errors.Is(err, want) {
			t.Errorf("with %d bytes: %v, want %v", held, err, want)
		}
	}
}

func TestBodyBytes(t *testing.T) {
	for said, want := range map[int64]int{0: 0, 5: 5, 99: 99, 100: 100, 101: 100, -1: 100} {
		if got := bodyBytes(&http.Request{ContentLength: said}, 100); got != want {
			t.Errorf("a body of %d bytes, 100 at most: %d", said, got)
		}
	}
}

func TestRewoundRequest(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("consumed"))
	rewind(r, []byte("body"))
	again, err := r.GetBody()
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []io.Reader{r.Body, again} {
		if text, err := io.ReadAll(body); string(text) != "body" || err != nil || r.ContentLength != 4 {
			t.Errorf("%q of %d bytes, %v", text, r.ContentLength, err)
		}
	}
}

func TestMarshalOfNoMessage(t *testing.T) {
	if _, err := (jsonCodec{}).Marshal(struct{}{}); err == nil {
		t.Error("no error")
	}
}

func TestCertificatesThatAreNotThere(t *testing.T) {
	node := newCluster(t).node("n1")
	if _, err := New(Config{NodeID: "n1", Replica: node, TLS: transport.TLSFiles{Cert: "no.pem", Key: "no.key", CA: "no.ca"}}); err == nil || !strings.HasPrefix(err.Error(), "http port: ") {
		t.Errorf("got %v", err)
	}
}

func TestPieceThatIsNotSent(t *testing.T) {
	broken := errors.New("broken")
	p := &pieces{send: func([]byte) error { return broken }}
	if n, err := p.Write([]byte("x")); n != 0 || !errors.Is(err, broken) || p.any {
		t.Errorf("wrote %d, %v; something was sent: %v", n, err, p.any)
	}
}

// TestVisitEndsOnce verifies that a visit whose caller comes back just as its time is up continues, and that
// a visit being cancelled is cancelled only once, even if the node stops.
func TestVisitEndsOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cancelled, goOn := 0, make(chan struct{})
		v := newVisits(time.Second, func(visitKey) { cancelled++; <-goOn })
		key := visitKey{session: 1, seq: 1}
		never := func() bool { return false }
		here, _, err := v.enter(t.Context(), key, never)
		if err != nil {
			t.Fatal(err)
		}
		v.leave(key, here, true)
		if again, _, err := v.enter(t.Context(), key, never); err != nil || again != here {
			t.Errorf("the visit is another one: %v", err)
		}
		if v.end(key, here); cancelled != 0 {
			t.Error("cancelled under its caller")
		}
		v.leave(key, here, true)
		time.Sleep(time.Second)
		synctest.Wait()
		closed := make(chan struct{})
		go func() { v.close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed before the cancelling was done")
		default:
		}
		close(goOn)
		if <-closed; cancelled != 1 {
			t.Errorf("cancelled %d times", cancelled)
		}
		if v.end(key, here); cancelled != 1 {
			t.Error("a visit of before was cancelled again")
		}
	})
}
