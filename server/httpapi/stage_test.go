package httpapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/httpapi/forward"
	"github.com/quorumlock/quorumlock/server/httpapi/listener"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// stage is a server in virtual time and without a network, whose replica does only what the test triggers.
// The test decides when a request is applied, when its answer and its grant arrive, and when its caller hangs
// up. See scripted_test.go for the replica.
type stage struct {
	t      *testing.T
	c      *cluster
	node   *scripted
	s      *Server
	conn   *listener.Conn
	log    *logBuffer
	leader *remote
	closed chan struct{} // closed by stop
}

// play runs a scene. At its end nothing of it may be left: no request, no subscription, no place in a queue, no
// memory, and no hold that no caller was told of.
func play(t *testing.T, scene func(*stage), change ...func(*Config)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		st := &stage{t: t, c: newCluster(t), log: &logBuffer{}, leader: &remote{}}
		st.node = &scripted{fake: st.c.node("n1")}
		cfg := Config{NodeID: "n1", Replica: st.node, Logger: loggerTo(st.log)}
		for _, f := range change {
			f(&cfg)
		}
		var err error
		if st.s, err = New(cfg); err != nil {
			t.Fatal(err)
		}
		st.s.forwarder.RegisterProtocol("http", st.leader)
		st.conn = st.connect()
		defer st.end()
		scene(st)
	})
}

// end closes the server and checks that nothing is left.
func (st *stage) end() {
	st.t.Helper()
	st.finish()
	st.stop()
	st.finish()
	_ = st.conn.Close()
	select {
	case <-st.closed:
	default:
		synctest.Wait()
	}
	if n := st.s.metrics.InFlight.Load(); n != 0 || pendingRequests(st.s) != 0 {
		st.t.Errorf("%d requests are under way, and %d are pending, after the end", n, pendingRequests(st.s))
	}
	for _, a := range st.node.subscriptions() {
		if a.cancelled != 1 {
			st.t.Errorf("the subscription to request %d of session %d was cancelled %d times", a.seq, a.session, a.cancelled)
		}
	}
	if held := st.conn.Memory().Held(); held != 0 {
		st.t.Errorf("%d bytes are held by a closed connection", held)
	}
}

// connect returns a caller's connection.
func (st *stage) connect() *listener.Conn {
	near, far := net.Pipe()
	c := st.s.connections.Begin(near)
	st.t.Cleanup(func() { _ = far.Close() })
	return c
}

// from makes a request arrive from another node, for an anonymous caller.
func (st *stage) from(node string) func(*http.Request) {
	near, far := net.Pipe()
	conn := st.s.connections.Begin(&listener.NodeConn{Conn: near})
	st.t.Cleanup(func() { _, _ = conn.Close(), far.Close() })
	return func(r *http.Request) {
		*r = *r.WithContext(listener.Context(r.Context(), conn))
		r.Header.Set(forward.HeaderFrom, node)
		r.Header.Set(forward.HeaderCaller, forward.EncodeCaller(&wire.Caller{Identity: identity.Anonymous}))
	}
}

// stop starts to close the server; finish completes it.
func (st *stage) stop() {
	if st.closed != nil {
		return
	}
	st.closed = make(chan struct{})
	go func() {
		defer close(st.closed)
		if err := st.s.Close(context.Background()); err != nil {
			st.t.Error(err)
		}
	}()
}

// open opens a session in the state machine.
func (st *stage) open(name string) *visitor {
	secret := []byte((name + "-----------------")[:16])
	res := st.c.must(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hashOf(string(secret))}}})
	num := res.GetSession().GetSessionId()
	creds := fmt.Sprintf(`"session":{"sessionId":"%d","secret":%q}`, num, base64.StdEncoding.EncodeToString(secret))
	return &visitor{id: fmt.Sprint(num), num: num, creds: creds}
}

// hold makes a session acquire in the state machine.
func (st *stage) hold(v *visitor, seq uint64, acquire *wire.Acquire) *wire.Result {
	return st.c.must(&wire.Command{SessionId: v.num, Seq: seq, Op: &wire.Command_Acquire{Acquire: acquire}})
}

// asked is a request at the gate, with the response that its caller sees.
type asked struct {
	st     *stage
	hangUp context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex // guards the fields below
	header  http.Header
	status  int
	sent    http.Header // the header when the response began
	body    bytes.Buffer
	aborted bool
	flushed int
	// writeUntil is the deadline of the current piece of the response, and readUntil that of the body.
	writeUntil, readUntil time.Time
	fail                  error // returned by writes
}

// ask sends JSON to a procedure, such as LockService/Acquire.
func (st *stage) ask(procedure, body string, change ...func(*http.Request)) *asked {
	r, err := http.NewRequest(http.MethodPost, "http://n1/quorumlock.v1."+procedure, strings.NewReader(body))
	if err != nil {
		st.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return st.request(r, change...)
}

func (st *stage) request(r *http.Request, change ...func(*http.Request)) *asked {
	ctx, hangUp := context.WithCancel(listener.Context(context.Background(), st.conn))
	r = r.WithContext(ctx)
	r.RemoteAddr = "192.0.2.7:1234"
	for _, f := range change {
		f(r)
	}
	a := &asked{st: st, hangUp: hangUp, done: make(chan struct{}), header: http.Header{}, writeUntil: time.Now().Add(-time.Second)}
	st.t.Cleanup(hangUp)
	go func() {
		defer close(a.done)
		defer func() {
			if reason := recover(); reason != nil && reason != http.ErrAbortHandler {
				panic(reason)
			}
		}()
		a.aborted = true
		st.s.gate(a, r)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.aborted = false
	}()
	return a
}

func (a *asked) Header() http.Header { return a.header }

func (a *asked) WriteHeader(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status == 0 {
		a.status, a.sent = status, a.header.Clone()
	}
}

func (a *asked) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fail != nil {
		return 0, a.fail
	}
	if !a.writeUntil.IsZero() && !time.Now().Before(a.writeUntil) {
		return 0, os.ErrDeadlineExceeded
	}
	return a.body.Write(p)
}

func (a *asked) Flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flushed++
}

func (a *asked) SetWriteDeadline(until time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writeUntil = until
	return nil
}

func (a *asked) SetReadDeadline(until time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.readUntil = until
	return nil
}

// answered reports whether the request has ended once all goroutines are blocked.
func (a *asked) answered() bool {
	synctest.Wait()
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// reply returns the response, which must be complete.
func (a *asked) reply() reply {
	a.st.t.Helper()
	if !a.answered() {
		a.st.t.Fatal("the request is not answered")
	}
	return reply{a.st.t, a.status, a.sent, a.body.String()}
}

// waits requires that there is no response yet.
func (a *asked) waits() {
	a.st.t.Helper()
	if a.answered() {
		a.st.t.Fatalf("answered with %d: %s", a.status, a.body.String())
	}
}

// lines returns the lines of a watch so far.
func (a *asked) lines() []string {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(strings.Split(a.body.String(), "\n"), func(s string) bool { return s == "" })
}

// remote replaces the connections to other nodes: forwarded requests arrive in the test.
type remote struct {
	mu   sync.Mutex
	sent []*forwarded // not taken yet
}

// forwarded is a request forwarded to the leader.
type forwarded struct {
	r      *http.Request
	body   string
	answer chan func() (*http.Response, error)
}

func (r *remote) RoundTrip(req *http.Request) (*http.Response, error) {
	var body bytes.Buffer
	if req.Body != nil {
		_, _ = body.ReadFrom(req.Body)
	}
	f := &forwarded{r: req, body: body.String(), answer: make(chan func() (*http.Response, error), 1)}
	r.mu.Lock()
	r.sent = append(r.sent, f)
	r.mu.Unlock()
	select {
	case answer := <-f.answer:
		return answer()
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// sentOn returns the next forwarded request.
func (st *stage) sentOn() *forwarded {
	st.t.Helper()
	synctest.Wait()
	st.leader.mu.Lock()
	defer st.leader.mu.Unlock()
	if len(st.leader.sent) == 0 {
		st.t.Fatal("nothing was sent on")
	}
	f := st.leader.sent[0]
	st.leader.sent = st.leader.sent[1:]
	return f
}

// nothingSent requires that no request was forwarded.
func (st *stage) nothingSent() {
	st.t.Helper()
	synctest.Wait()
	st.leader.mu.Lock()
	defer st.leader.mu.Unlock()
	if len(st.leader.sent) > 0 {
		st.t.Fatalf("%s was sent on", st.leader.sent[0].r.URL)
	}
}

func (f *forwarded) with(status int, body string, header ...string) {
	f.answer <- func() (*http.Response, error) {
		rec := &http.Response{StatusCode: status, ProtoMajor: 2, Header: http.Header{"Content-Type": {"application/json"}}, Request: f.r,
			Body: http.NoBody, ContentLength: int64(len(body))}
		if body != "" {
			rec.Body = readCloser{strings.NewReader(body)}
		}
		for i := 0; i < len(header); i += 2 {
			rec.Header.Set(header[i], header[i+1])
		}
		return rec, nil
	}
}

func (f *forwarded) fails(err error) {
	f.answer <- func() (*http.Response, error) { return nil, err }
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// follow makes the stage's node a follower of another node.
func (st *stage) follow(id string) {
	st.c.lead(id)
}

// heldBy returns the session, mode and token of each hold of a lock, and the number of waiters.
func (st *stage) heldBy(name string) (holders []string, waiting int) {
	lock := st.c.lock(name)
	for _, h := range lock.GetHolders() {
		holders = append(holders, fmt.Sprintf("%d:%s:%d", h.GetSessionId(), h.GetMode(), h.GetToken()))
	}
	return holders, len(lock.GetQueue())
}

var errBroken = errors.New("the connection broke")

var _ Replica = (*scripted)(nil)

func (st *stage) outcomeOf(session, seq uint64) (res *wire.Result) {
	st.node.View(func(m *fsm.Machine) {
		if _, lives := m.Session(session); !lives {
			res = &wire.Result{Status: wire.Status_SESSION_LOST}
			return
		}
		res, _ = m.Outcome(session, seq)
	})
	return res
}
