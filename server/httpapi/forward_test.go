package httpapi

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/httpapi/forward"
	"github.com/quorumlock/quorumlock/server/internal/pending"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// h2c returns a client that speaks HTTP/2 in plaintext.
func h2c(t *testing.T) *http.Client {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestFollowerSendsOn(t *testing.T) {
	c := newCluster(t)
	leader, follower := start(t, c, "n1"), start(t, c, "n2")
	ann := follower.open("ann")
	got := ann.send("LockService/Acquire", `"seq":1,"name":"a"`).ok()
	if got["status"] != "GRANTED" {
		t.Fatalf("got %v", got)
	}
	sessions := follower.post("SessionService/List", `{}`)
	address := sessions.ok()["sessions"].([]any)[0].(map[string]any)["client"].(map[string]any)["address"].(string)
	if _, port, err := net.SplitHostPort(address); err != nil || !strings.HasPrefix(address, "127.0.0.1:") || port == "" {
		t.Errorf("address %q", address)
	}
	follower.post("LockService/Get", `{"name":"b"}`).refused(http.StatusNotFound, wire.Status_NOT_FOUND)
	waiting := follower.open("bob").later(t.Context(), forever)
	c.queued("a", 1)
	c.expire(ann.num)
	if got := soon(t, waiting).ok(); got["status"] != "GRANTED" {
		t.Errorf("got %v", got)
	}
	if got := leader.get("/metrics").body; !strings.Contains(got, `path="/quorumlock.v1.LockService/Acquire",status="GRANTED"} 2`) {
		t.Errorf("the leader counted %s", got)
	}
	if got := follower.get("/metrics").body; !strings.Contains(got, `quorumlock_http_forwarded_total{result="answered"} 6`) {
		t.Errorf("the follower counted %s", got)
	}
}

// protocols returns the protocols of the port. Each is tested through a follower and directly.
func protocols(t *testing.T) map[string][]connect.ClientOption {
	return map[string][]connect.ClientOption{
		"grpc":     {connect.WithGRPC()},
		"grpc-web": {connect.WithGRPCWeb()},
		"connect":  {},
		"json":     {connect.WithProtoJSON()},
		"gzip":     {connect.WithGRPC(), connect.WithSendGzip()},
	}
}

func TestEveryProtocolHereAndElsewhere(t *testing.T) {
	c := newCluster(t)
	for _, node := range []*port{start(t, c, "n1"), start(t, c, "n2")} {
		for name, options := range protocols(t) {
			t.Run(node.server.cfg.NodeID+"/"+name, func(t *testing.T) {
				client := h2c(t)
				sessions := wireconnect.NewSessionServiceClient(client, "http://"+node.addr, options...)
				locks := wireconnect.NewLockServiceClient(client, "http://"+node.addr, options...)
				secret := []byte("a secret for " + name + node.addr)
				opened, err := sessions.Open(t.Context(), connect.NewRequest(&wire.OpenRequest{Secret: secret}))
				if err != nil {
					t.Fatal(err)
				}
				creds := &wire.Credentials{SessionId: opened.Msg.GetSessionId(), Secret: secret}
				got, err := locks.Acquire(t.Context(), connect.NewRequest(&wire.AcquireRequest{Session: creds, Seq: 1, Name: "over/" + name}))
				if err != nil || got.Msg.GetStatus() != wire.Status_GRANTED {
					t.Fatalf("%v, %v", got, err)
				}
				again, err := locks.Acquire(t.Context(), connect.NewRequest(&wire.AcquireRequest{Session: creds, Seq: 2, Name: "over/" + name}))
				if err != nil || again.Msg.GetStatus() != wire.Status_ALREADY_HELD {
					t.Errorf("a second acquire: %v, %v", again, err)
				}
				_, err = locks.Acquire(t.Context(), connect.NewRequest(&wire.AcquireRequest{Session: creds, Seq: 3, Name: "over//" + name}))
				if connect.CodeOf(err) != connect.CodeInvalidArgument || apierror.Status(err) != wire.Status_INVALID_ARGUMENT {
					t.Errorf("a bad name: %v", err)
				}
				if _, err := sessions.Close(t.Context(), connect.NewRequest(&wire.CloseRequest{Session: creds})); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestWaiterFollowsTheLeader(t *testing.T) {
	c := newCluster(t)
	start(t, c, "n1")
	p2, p3 := start(t, c, "n2"), start(t, c, "n3")
	ann, bob := p3.open("ann"), p3.open("bob")
	ann.send("LockService/Acquire", `"seq":1,"name":"a"`).ok()
	waiting := bob.later(t.Context(), forever)
	c.queued("a", 1)
	// To another node, to the node that was asked, and away again.
	for _, next := range []string{"n2", "n3", "n1"} {
		c.lead(next)
		server := map[string]*port{"n2": p2, "n3": p3}[next]
		if server != nil {
			eventually(t, "bob waits at "+next, func() bool { return pendingRequests(server.server) == 1 })
		}
	}
	c.expire(ann.num)
	if got := soon(t, waiting).ok(); got["status"] != "GRANTED" || got["token"] != "2" {
		t.Errorf("got %v", got)
	}
}

// silent is a leader that accepts requests and breaks the connection.
func silent(t *testing.T) (addr string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		panic(http.ErrAbortHandler)
	}))
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server.Config.Protocols = &protocols
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), asked
}

// relayTo returns a function that connects a node's connections to an address.
func relayTo(t *testing.T, addr string) func(net.Conn) {
	return func(conn net.Conn) {
		to, err := net.Dial("tcp", addr)
		if err != nil {
			t.Error(err)
			return
		}
		for from, to := range map[net.Conn]net.Conn{conn: to, to: conn} {
			go func() {
				_, _ = io.Copy(to, from)
				_ = to.Close()
			}()
		}
	}
}

func TestLeaderLostOnTheWay(t *testing.T) {
	c := newCluster(t)
	follower := start(t, c, "n2")
	addr, asked := silent(t)
	c.node("n1").OnForward(relayTo(t, addr))

	follower.post("SessionService/Close", `{"session":{"sessionId":1,"secret":"MDEyMzQ1Njc4OWFiY2RlZg=="}}`).
		refused(http.StatusGatewayTimeout, wire.Status_UNCERTAIN)
	if n := asked.Load(); n != 1 {
		t.Errorf("a request that must not be repeated was sent %d times", n)
	}
	follower.post("SessionService/Open", `{"secret":"MDEyMzQ1Njc4OWFiY2RlZg=="}`).
		refused(http.StatusGatewayTimeout, wire.Status_UNCERTAIN)
	asked.Store(1)
	follower.post("LockService/Get", `{"name":"a"}`).refused(http.StatusServiceUnavailable, wire.Status_UNAVAILABLE)
	if n := asked.Load(); n < 3 {
		t.Errorf("a read was sent %d times", n-1)
	}
}

func TestLeaderThatCannotBeReachedIsWaitedFor(t *testing.T) {
	c := newCluster(t)
	follower := start(t, c, "n2", limits(func(l *Limits) { l.LeaderWait = 10 * time.Second }))
	c.node("n1") // it accepts no connections
	answered := make(chan reply, 1)
	go func() {
		r, _ := follower.do(t.Context(), http.MethodPost, "/quorumlock.v1.LockService/List", "application/json", `{}`)
		answered <- r
	}()
	eventually(t, "the leader is tried", func() bool {
		return strings.Contains(follower.get("/metrics").body, `forwarded_total{result="unreached"}`)
	})
	start(t, c, "n3")
	c.lead("n3")
	soon(t, answered).ok()
}

func TestNoLeader(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1")
	c.lead("")
	message := p.post("SessionService/Open", `{"secret":"MDEyMzQ1Njc4OWFiY2RlZg=="}`).refused(http.StatusServiceUnavailable, wire.Status_UNAVAILABLE)
	if !strings.Contains(message, "no leader is known") {
		t.Errorf("message %q", message)
	}
	_, err := wireconnect.NewLockServiceClient(h2c(t), "http://"+p.addr, connect.WithGRPC()).
		List(t.Context(), connect.NewRequest(&wire.ListLocksRequest{}))
	if connect.CodeOf(err) != connect.CodeUnavailable || apierror.Status(err) != wire.Status_UNAVAILABLE {
		t.Errorf("over gRPC: %v", err)
	}
}

// TestOffersForOneConnectionAreNotSentOn sends the upgrade offer that curl --http2 sends with each request.
func TestOffersForOneConnectionAreNotSentOn(t *testing.T) {
	c := newCluster(t)
	start(t, c, "n1")
	follower := start(t, c, "n2")
	conn := follower.raw("POST /quorumlock.v1.LockService/List HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 2\r\n\r\n{}")
	got, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK {
		t.Errorf("answered %s", got.Status)
	}
}

func TestOneHopAtMost(t *testing.T) {
	c := newCluster(t)
	p2, p3 := start(t, c, "n2"), start(t, c, "n3")
	// Each of two followers believes that the other one leads.
	c.mu.Lock()
	c.nodes["n1"] = &fake{cluster: c, id: "n1", forwards: c.nodes["n3"].forwards}
	c.mu.Unlock()
	p2.post("LockService/List", `{}`).refused(http.StatusServiceUnavailable, wire.Status_UNAVAILABLE)

	for from, client := range map[string]*http.Client{"a node": asNode(t, c.node("n3")), "a caller": p3.client} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p3.addr+"/quorumlock.v1.LockService/List", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(forward.HeaderFrom, "n9")
		req.Header.Set(forward.HeaderCaller, forward.EncodeCaller(&wire.Caller{Identity: identity.Anonymous}))
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if hop := resp.Header.Get(forward.HeaderMoved) != ""; resp.StatusCode != http.StatusServiceUnavailable || hop != (from == "a node") {
			t.Errorf("a request from %s that claims to be forwarded: %v", from, resp)
		}
	}
}

// asNode returns a client whose connections arrive at the node as those of other nodes do.
func asNode(t *testing.T, to *fake) *http.Client {
	rt := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return to.OpenForward(ctx, &wire.LeaderHint{Id: to.id})
	}}
	t.Cleanup(rt.CloseIdleConnections)
	return &http.Client{Transport: rt}
}

// TestWaiterWithoutANextLeader verifies that a waiting caller whose leader is lost without a successor learns
// that its request may still be granted.
func TestWaiterWithoutANextLeader(t *testing.T) {
	c := newCluster(t)
	leader, follower := start(t, c, "n1"), start(t, c, "n2")
	ann, bob := leader.open("ann"), leader.open("bob")
	ann.send("LockService/Acquire", `"seq":1,"name":"a"`).ok()
	here, there := bob.later(t.Context(), forever), bob.at(follower).later(t.Context(), forever)
	c.queued("a", 1)
	eventually(t, "both wait", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.waiting[pending.Key{Session: bob.num, Seq: 1}]) == 2
	})
	c.lead("")
	soon(t, here).refused(http.StatusGatewayTimeout, wire.Status_UNCERTAIN)
	soon(t, there).refused(http.StatusGatewayTimeout, wire.Status_UNCERTAIN)
	c.queued("a", 1)
}

func TestElectedNodeWaitsUntilItServes(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1", limits(func(l *Limits) { l.LeaderWait = 10 * time.Second }))
	c.mu.Lock()
	c.serving = false
	c.mu.Unlock()
	if got := p.get("/readyz"); got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "elected") {
		t.Errorf("readyz: %s", got.body)
	}
	answered := make(chan reply, 1)
	go func() {
		r, _ := p.do(t.Context(), http.MethodPost, "/quorumlock.v1.LockService/List", "application/json", `{}`)
		answered <- r
	}()
	eventually(t, "the request is there", func() bool { return p.server.metrics.InFlight.Load() == 1 })
	c.mu.Lock()
	c.serving = true
	c.mu.Unlock()
	soon(t, answered).ok()
}

func TestCallerOfAFollowerHangsUp(t *testing.T) {
	c := newCluster(t)
	start(t, c, "n1")
	follower := start(t, c, "n2")
	follower.open("ann").send("LockService/Acquire", `"seq":1,"name":"a"`).ok()
	ctx, hangUp := context.WithCancel(t.Context())
	answered := follower.open("bob").later(ctx, forever)
	c.queued("a", 1)
	hangUp()
	<-answered
	c.queued("a", 0)
}
