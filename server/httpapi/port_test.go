package httpapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// port is a server on loopback, with a test's client.
type port struct {
	t      *testing.T
	addr   string
	server *Server
	log    *logBuffer
	client *http.Client
}

// logBuffer collects log messages.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start runs the port of one node of the cluster until the test ends.
func start(t *testing.T, c *cluster, id string, change ...func(*Config)) *port {
	t.Helper()
	p := &port{t: t, log: &logBuffer{}, client: &http.Client{Transport: &http.Transport{}}}
	node := c.node(id)
	cfg := Config{
		NodeID: id, Replica: node,
		Logger: loggerTo(p.log),
		Limits: Limits{LeaderWait: 500 * time.Millisecond, RetryGrace: -1},
	}
	for _, f := range change {
		f(&cfg)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if p.server, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	p.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- p.server.Serve(l) }()
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		if err := p.server.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return p
}

func limits(f func(*Limits)) func(*Config) { return func(c *Config) { f(&c.Limits) } }

// in returns the same port for a subtest.
func (p *port) in(t *testing.T) *port {
	here := *p
	here.t = t
	return &here
}

// reply is a response that was read completely.
type reply struct {
	t      *testing.T
	status int
	header http.Header
	body   string
}

func (p *port) do(ctx context.Context, method, path, contentType, body string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.addr+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return reply{p.t, resp.StatusCode, resp.Header, string(data)}, err
}

// post sends JSON to a procedure, such as LockService/Acquire.
func (p *port) post(procedure, body string) reply {
	p.t.Helper()
	r, err := p.do(p.t.Context(), http.MethodPost, "/quorumlock.v1."+procedure, "application/json", body)
	if err != nil {
		p.t.Fatalf("%s: %v", procedure, err)
	}
	return r
}

func (p *port) get(path string) reply {
	p.t.Helper()
	r, err := p.do(p.t.Context(), http.MethodGet, path, "", "")
	if err != nil {
		p.t.Fatalf("%s: %v", path, err)
	}
	return r
}

// ok requires a successful response and returns its fields.
func (r reply) ok() map[string]any {
	r.t.Helper()
	if r.status != http.StatusOK {
		r.t.Fatalf("status %d: %s", r.status, r.body)
	}
	return r.fields()
}

func (r reply) fields() map[string]any {
	r.t.Helper()
	if got := r.header.Get("Content-Type"); got != "application/json" {
		r.t.Fatalf("content type %q: %s", got, r.body)
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(r.body), &fields); err != nil {
		r.t.Fatalf("%v: %s", err, r.body)
	}
	return fields
}

// refused requires an error with that status in its detail, and returns its message.
func (r reply) refused(httpStatus int, status wire.Status_Code) string {
	r.t.Helper()
	fields := r.fields()
	if r.status != httpStatus {
		r.t.Fatalf("HTTP status %d, want %d: %s", r.status, httpStatus, r.body)
	}
	details, _ := fields["details"].([]any)
	if len(details) != 1 {
		r.t.Fatalf("details: %s", r.body)
	}
	debug, _ := details[0].(map[string]any)["debug"].(map[string]any)
	if debug["status"] != status.String() {
		r.t.Fatalf("status %v, want %v: %s", debug["status"], status, r.body)
	}
	message, _ := fields["message"].(string)
	if message == "" {
		r.t.Fatalf("no message: %s", r.body)
	}
	return message
}

// visitor is an open session.
type visitor struct {
	*port
	id    string
	creds string
	num   uint64
}

// open opens a session with a secret derived from name.
func (p *port) open(name string) *visitor {
	p.t.Helper()
	secret := base64.StdEncoding.EncodeToString([]byte((name + "-----------------")[:16]))
	got := p.post("SessionService/Open", `{"secret":"`+secret+`","client":{"name":"`+name+`"}}`).ok()
	id := got["sessionId"].(string)
	var num uint64
	if err := json.Unmarshal([]byte(id), &num); err != nil {
		p.t.Fatal(err)
	}
	return &visitor{p, id, `"session":{"sessionId":"` + id + `","secret":"` + secret + `"}`, num}
}

// at returns the same session, used at another node.
func (v *visitor) at(p *port) *visitor { return &visitor{p, v.id, v.creds, v.num} }

func (v *visitor) send(procedure, rest string) reply {
	v.t.Helper()
	return v.post(procedure, `{`+v.creds+`,`+rest+`}`)
}

// later sends an acquire that may take long.
func (v *visitor) later(ctx context.Context, rest string) <-chan reply {
	return v.laterAt(ctx, "LockService/Acquire", rest)
}

// abandon sends a request and hangs up once under returns, when the request is in progress.
func (v *visitor) abandon(t *testing.T, procedure, rest string, under func()) {
	t.Helper()
	ctx, hangUp := context.WithCancel(t.Context())
	answered := v.laterAt(ctx, procedure, rest)
	under()
	hangUp()
	if r, ok := <-answered; ok {
		t.Fatalf("answered %s", r.body)
	}
}

func (v *visitor) laterAt(ctx context.Context, procedure, rest string) <-chan reply {
	answered := make(chan reply, 1)
	go func() {
		defer close(answered)
		r, err := v.do(ctx, http.MethodPost, "/quorumlock.v1."+procedure, "application/json", `{`+v.creds+`,`+rest+`}`)
		if err == nil {
			answered <- r
		}
	}()
	return answered
}

// soon waits for a response, with a timeout.
func soon(t *testing.T, answered <-chan reply) reply {
	t.Helper()
	select {
	case r, ok := <-answered:
		if !ok {
			t.Fatal("no answer")
		}
		return r
	case <-time.After(10 * time.Second):
		t.Fatal("no answer in time")
	}
	return reply{}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// queued waits until n requests wait for the lock.
func (c *cluster) queued(name string, n int) {
	c.t.Helper()
	eventually(c.t, "waiters of "+name, func() bool { return len(c.lock(name).GetQueue()) == n })
}

func loggerTo(output *logBuffer) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Output: output, Level: hclog.Debug})
}

// TestCloseReportsUnansweredRequests verifies that Close cuts a request whose body does not arrive, and
// returns an error.
func TestCloseReportsUnansweredRequests(t *testing.T) {
	p := start(t, newCluster(t), "n1")
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	head := "POST /quorumlock.v1.LockService/Get HTTP/1.1\r\nHost: n1\r\nContent-Type: application/json\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 100 Continue"))); err != nil {
		t.Fatal(err) // from here on the node reads the body
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.server.Close(ended); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "requests were cut") {
		t.Errorf("close: %v", err)
	}
}
