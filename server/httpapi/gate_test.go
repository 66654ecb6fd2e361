package httpapi

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"

	"github.com/quorumlock/quorumlock/server/httpapi/listener"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

func TestAnswersNameTheRemedy(t *testing.T) {
	p := start(t, newCluster(t), "n1", limits(func(l *Limits) { l.MaxBodyBytes = 1 << 10 }))
	const list = "/quorumlock.v1.LockService/List"
	for _, test := range []struct {
		name, method, path, kind, body string
		status                         int
		says                           string
	}{
		{"unknown path", "GET", "/nothing", "", "", 404, "LockService/Acquire"},
		{"unknown procedure", "POST", "/quorumlock.v1.LockService/Lock", "application/json", "{}", 404, "LockService/Acquire"},
		{"wrong method", "GET", list, "", "", 405, "POST"},
		{"wrong method for health", "DELETE", "/healthz", "", "", 405, "GET"},
		{"curl's own type", "POST", list, "application/x-www-form-urlencoded", "{}", 415, "application/json"},
		{"no type", "POST", list, "", "{}", 415, "application/json"},
		{"empty body", "POST", list, "application/json", "", 400, "{}"},
		{"no JSON", "POST", list, "application/json", "hello", 400, "invalid_argument"},
		{"misspelt field", "POST", list, "application/json", `{"prefixx":"a"}`, 400, "prefixx"},
		{"large body", "POST", list, "application/json", strings.Repeat(" ", 1<<10) + "{}", 413, "1024 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := p.do(t.Context(), test.method, test.path, test.kind, test.body)
			if err != nil {
				t.Fatal(err)
			}
			got.t = t
			fields := got.fields()
			if got.status != test.status || !strings.Contains(got.body, test.says) || fields["code"] == "" || fields["message"] == "" {
				t.Errorf("status %d, %s", got.status, got.body)
			}
		})
	}
	if got, err := p.do(t.Context(), "POST", list, "application/json; charset=utf-8", "{}"); err != nil || got.status != 200 {
		t.Errorf("with a charset: %v, %v", got, err)
	}
	if got, err := p.do(t.Context(), "HEAD", "/healthz", "", ""); err != nil || got.status != 200 {
		t.Errorf("HEAD: %v, %v", got, err)
	}
}

func TestBodyThatGrowsWhenUnpacked(t *testing.T) {
	p := start(t, newCluster(t), "n1")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(`{"prefix":"` + strings.Repeat("a", 1<<20) + `"}`))
	_ = w.Close()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+p.addr+"/quorumlock.v1.LockService/List", &packed)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", "gzip")
	resp, err := p.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestUnknownProcedureOverGRPC(t *testing.T) {
	p := start(t, newCluster(t), "n1")
	client := connect.NewClient[wire.ListLocksRequest, wire.ListLocksResponse](h2c(t), "http://"+p.addr+"/quorumlock.v1.LockService/Nothing", connect.WithGRPC())
	if _, err := client.CallUnary(t.Context(), connect.NewRequest(&wire.ListLocksRequest{})); connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("got %v", err)
	}
}

func TestPanicOfAHandlerIsAnsweredAndLogged(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1")
	c.override(func(*wire.Command) *wire.Result { panic("out of cheese") })
	got := p.post("SessionService/Open", `{"secret":"MDEyMzQ1Njc4OWFiY2RlZg=="}`)
	if got.fields()["code"] != "internal" || got.status != http.StatusInternalServerError || strings.Contains(got.body, "cheese") {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if !strings.Contains(p.log.String(), "out of cheese") {
		t.Errorf("log: %s", p.log)
	}
	c.override(nil)
	p.open("ann")
}

func TestTooManyRequests(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1", limits(func(l *Limits) { l.MaxRequests = 1 }))
	ann, bob := p.open("ann"), p.open("bob")
	ann.send("LockService/Acquire", `"seq":1,"name":"a"`).ok()
	waiting := bob.later(t.Context(), forever)
	c.queued("a", 1)
	if got := p.post("LockService/List", `{}`); got.status != http.StatusTooManyRequests {
		t.Errorf("got %d %s", got.status, got.body)
	}
	if got := p.get("/healthz"); got.status != http.StatusOK {
		t.Errorf("healthz: %d", got.status)
	}
	c.expire(ann.num)
	soon(t, waiting).ok()
}

// TestRequestsAreSharedAmongConnections verifies that, when one connection has as many requests as it may,
// another connection still gets one, and an operator one more.
func TestRequestsAreSharedAmongConnections(t *testing.T) {
	const most = 64
	c := newCluster(t)
	p := start(t, c, "n1", limits(func(l *Limits) { l.MaxRequests = most }))
	conns := []*listener.Conn{{}, {}, {}}
	enter := func(conn int, route route) bool {
		_, ok := p.server.enterRequest(conns[conn], route)
		return ok
	}
	for range most {
		enter(0, route{})
	}
	if had := conns[0].AddRequests(0); had != (most-most/operatorsShare)/2 {
		t.Errorf("one connection has %d of %d", had, most)
	}
	if !enter(1, route{}) || !enter(2, route{operators: true}) || !enter(0, route{open: true}) {
		t.Error("a flood of one connection's requests refuses those of others")
	}
	for i := range 4 * most { // each on its own connection
		conns = append(conns, &listener.Conn{})
		enter(3+i, route{})
	}
	if enter(3, route{}) || !enter(3, route{operators: true}) {
		t.Error("all places are taken, but for the operators'")
	}
	if n := p.server.metrics.InFlight.Load(); n > most {
		t.Errorf("%d requests are under way, at most %d are allowed", n, most)
	}
}

// TestRequestsOfANodeHaveNoShareOfAConnection verifies that the requests that another node forwards, which are those of
// many callers, may take all places that are not reserved.
func TestRequestsOfANodeHaveNoShareOfAConnection(t *testing.T) {
	const most = 64
	p := start(t, newCluster(t), "n1", limits(func(l *Limits) { l.MaxRequests = most }))
	node := &listener.Conn{Conn: &listener.NodeConn{}}
	for range most {
		p.server.enterRequest(node, route{})
	}
	if had := node.AddRequests(0); had != most-most/operatorsShare {
		t.Errorf("a connection between nodes has %d of %d", had, most)
	}
}

// raw opens a connection and writes to it.
func (p *port) raw(bytes string) net.Conn {
	p.t.Helper()
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		p.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, bytes); err != nil {
		p.t.Fatal(err)
	}
	return conn
}

func TestHostileConnectionsAreClosedWithAReason(t *testing.T) {
	short := limits(func(l *Limits) {
		l.HeaderTimeout, l.BodyTimeout, l.MaxHeaderBytes = 100*time.Millisecond, 100*time.Millisecond, 4<<10
	})
	const post = "POST /quorumlock.v1.LockService/List HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	for _, test := range []struct{ name, sends, logs string }{
		{"garbage", "\x00\x01\x02garbage\r\n\r\n", "400 Bad Request"},
		{"another protocol", "QLOCK\x00\x00\x01\r\n\r\n", "begins_with"},
		{"TLS without TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "closed a connection without a request"},
		{"slow headers", "POST / HTTP/1.1\r\nHost: x\r\nX-A: ", "no complete request arrived in time"},
		{"large headers", "GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", 16<<10) + "\r\n\r\n", "431"},
		{"silence", "", "nothing arrived in time"},
		{"slow body", post + "Content-Length: 10\r\n\r\n{", "did not arrive"},
		{"body that nobody reads", "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{", ""},
		{"HTTP/2 that is none", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\ngarbage garbage garbage garbage", "without a request"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := start(t, newCluster(t), "n1", short)
			conn := p.raw(test.sends)
			_, _ = io.Copy(io.Discard, conn)
			eventually(t, "the log says why", func() bool { return strings.Contains(p.log.String(), test.logs) })
			if got := p.get("/healthz"); got.status != http.StatusOK {
				t.Errorf("healthz: %d", got.status)
			}
		})
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	p := start(t, newCluster(t), "n1", limits(func(l *Limits) { l.MaxConnections = 1 }))
	const list = "POST /quorumlock.v1.LockService/List HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
	first := p.raw(list)
	if _, err := first.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	second := p.raw(list)
	answer, _ := io.ReadAll(second)
	if !strings.Contains(string(answer), "503") || !strings.Contains(string(answer), "max_connections") {
		t.Errorf("the second got %q", answer)
	}
	if !strings.Contains(p.log.String(), "too many connections") {
		t.Errorf("log: %s", p.log)
	}
	health := p.raw("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if answer, _ := io.ReadAll(health); !strings.Contains(string(answer), "200 OK") {
		t.Errorf("health got %q", answer)
	}
	_ = first.Close()
	eventually(t, "there is room again", func() bool {
		got, err := p.do(t.Context(), http.MethodPost, "/quorumlock.v1.LockService/List", "application/json", "{}")
		return err == nil && got.status == http.StatusOK
	})
}

// TestUnfinishedHandshakesTakeNoPlaces verifies that connections without a request take no places and that the
// oldest of them are cut, so that health and other requests are answered whatever their number.
func TestUnfinishedHandshakesTakeNoPlaces(t *testing.T) {
	dir := authority(t)
	for _, secure := range []bool{false, true} {
		var change []func(*Config)
		if secure {
			change = append(change, secured(dir, "n1", AuthRequire))
		}
		p := start(t, newCluster(t), "n1", append(change, limits(func(l *Limits) { l.MaxConnections, l.MaxHandshakes = 2, 40 }))...)
		var flood []net.Conn
		for range 100 {
			conn := mustDial(t, p.addr)
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			flood = append(flood, conn)
		}
		started := time.Now()
		if secure {
			if status, text := fetch(t, caller(t, dir, ""), p, "/readyz"); status != http.StatusOK {
				t.Errorf("/readyz: %d %s", status, text)
			}
		} else if got := p.get("/readyz"); got.status != http.StatusOK {
			t.Errorf("/readyz: %d %s", got.status, got.body)
		}
		if took := time.Since(started); took > time.Second {
			t.Errorf("an honest caller waited %v", took)
		}
		if _, err := flood[0].Read(make([]byte, 1)); err == nil {
			t.Error("the oldest of the crowd was answered")
		}
		if n := p.server.connections.Handshakes(); n > 20 {
			t.Errorf("%d connections of one address have sent no request, its share is 20", n)
		}
	}
}

func TestHealth(t *testing.T) {
	c := newCluster(t)
	p, follower := start(t, c, "n1"), start(t, c, "n2")
	check := func(p *port, ready int, grpc string) {
		t.Helper()
		if got := p.get("/healthz"); got.status != http.StatusOK || got.fields()["status"] != "ok" {
			t.Errorf("healthz: %s", got.body)
		}
		if got := p.get("/readyz"); got.status != ready || got.fields()["nodeId"] != p.server.cfg.NodeID {
			t.Errorf("readyz: %d %s", got.status, got.body)
		}
		got, err := p.do(t.Context(), "POST", "/grpc.health.v1.Health/Check", "application/json", `{"service":"quorumlock.v1.LockService"}`)
		if err != nil || !strings.Contains(got.body, `"`+grpc+`"`) {
			t.Errorf("grpc health: %v %v", got, err)
		}
	}
	check(p, 200, "SERVING_STATUS_SERVING")
	check(follower, 200, "SERVING_STATUS_SERVING")
	c.lead("")
	check(p, 503, "SERVING_STATUS_NOT_SERVING")
	check(follower, 503, "SERVING_STATUS_NOT_SERVING")
}

// TestNoLogger verifies that a port without a logger does not panic.
func TestNoLogger(t *testing.T) {
	t.Parallel()
	p := start(t, newCluster(t), "n1", func(c *Config) { c.Logger = nil })
	_, _ = io.Copy(io.Discard, p.raw("garbage\r\n\r\n"))
	p.post("LockService/List", `{}`).ok()
}

func TestReflection(t *testing.T) {
	p := start(t, newCluster(t), "n1")
	stream := grpcreflect.NewClient(h2c(t), "http://"+p.addr, connect.WithGRPC()).NewStream(t.Context())
	names, err := stream.ListServices()
	if err != nil || !strings.Contains(fmt.Sprint(names), wireconnect.LockServiceName) {
		t.Errorf("services %v, %v", names, err)
	}
	if _, err := stream.FileContainingSymbol(wireconnect.LockServiceName); err != nil {
		t.Error(err)
	}
	_, _ = stream.Close()
}

// TestStreamsTakePlaces verifies that a stream that its caller leaves open has a place among the requests in flight.
func TestStreamsTakePlaces(t *testing.T) {
	p := start(t, newCluster(t), "n1", limits(func(l *Limits) { l.MaxRequests = 2 }))
	reflection := grpcreflect.NewClient(h2c(t), "http://"+p.addr, connect.WithGRPC())
	open := func() (*grpcreflect.ClientStream, error) {
		stream := reflection.NewStream(t.Context())
		_, err := stream.ListServices()
		return stream, err
	}
	first, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("the second stream of the connection: %v", err)
	}
	_, _ = first.Close()
	eventually(t, "the place is free", func() bool { return p.server.metrics.InFlight.Load() == 0 })
	again, err := open()
	if err != nil {
		t.Error(err)
	}
	_, _ = again.Close()
}

func TestConfigIsChecked(t *testing.T) {
	good := Config{NodeID: "n1", Replica: newCluster(t).node("n1")}
	for name, spoil := range map[string]func(*Config){
		"no replica":       func(c *Config) { c.Replica = nil },
		"no id":            func(c *Config) { c.NodeID = "" },
		"unknown auth":     func(c *Config) { c.ClientAuth = "maybe" },
		"auth without TLS": func(c *Config) { c.ClientAuth = AuthRequire },
		"negative limit":   func(c *Config) { c.Limits.MaxBodyBytes = -1 },
	} {
		cfg := good
		spoil(&cfg)
		if _, err := New(cfg); err == nil || !strings.HasPrefix(err.Error(), ErrConfig.Error()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
