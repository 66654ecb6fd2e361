package callers_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/httpapi/callers"
	"github.com/quorumlock/quorumlock/server/httpapi/forward"
	"github.com/quorumlock/quorumlock/server/httpapi/listener"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/test/rights"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// requestOn returns a request from loopback on a connection, which may be nil.
func requestOn(conn *listener.Conn) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://n1/", nil)
	r.RemoteAddr = "127.0.0.1:9"
	if conn == nil {
		return r
	}
	return r.WithContext(listener.Context(r.Context(), conn))
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// certified gives a request a client certificate of user, verified or only presented.
func certified(verified bool) func(*http.Request) {
	return func(r *http.Request) {
		cert := &x509.Certificate{
			SerialNumber: big.NewInt(7), NotAfter: time.Now().Add(time.Hour), URIs: []*url.URL{identity.URI("c1", "user")},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
		if verified {
			r.TLS.VerifiedChains = [][]*x509.Certificate{{cert}}
		}
	}
}

func both(one, two func(*http.Request)) func(*http.Request) {
	return func(r *http.Request) { one(r); two(r) }
}

var errRevoked = errors.New("revoked")

// TestIdentify verifies who has sent a request, by what it presents and the connection that it came on.
func TestIdentify(t *testing.T) {
	c := rights.New(t)
	node := &listener.Conn{Conn: &listener.NodeConn{}}
	from := func(r *http.Request) { r.Header.Set(forward.HeaderFrom, "n2") }
	named := func(value string) func(*http.Request) {
		return both(from, func(r *http.Request) { r.Header.Set(forward.HeaderCaller, value) })
	}
	admin := named(forward.EncodeCaller(&wire.Caller{Identity: "admin"}))
	far := func(r *http.Request) { r.RemoteAddr = "10.0.0.1:9" }
	nothing := func(*http.Request) {}
	refuse := func([]*x509.Certificate) error { return errRevoked }
	for what, test := range map[string]struct {
		cfg     callers.Config
		conn    *listener.Conn
		present func(*http.Request)
		want    string
		err     error // nil with an empty want: any
	}{
		"a token":                    {callers.Config{}, nil, bearer(c.Tokens["reader"]), "reader", nil},
		"a required token":           {callers.Config{Require: true}, nil, bearer(c.Tokens["reader"]), "reader", nil},
		"a scheme in lower case":     {callers.Config{}, nil, func(r *http.Request) { r.Header.Set("Authorization", "bearer  "+c.Tokens["reader"]) }, "reader", nil},
		"another scheme":             {callers.Config{}, nil, func(r *http.Request) { r.Header.Set("Authorization", "Basic "+c.Tokens["reader"]) }, "", access.ErrNoRole},
		"a token without a scheme":   {callers.Config{}, nil, func(r *http.Request) { r.Header.Set("Authorization", c.Tokens["reader"]) }, "", access.ErrNoRole},
		"a token in the clear":       {callers.Config{}, nil, both(bearer(c.Tokens["reader"]), far), "", access.ErrUnauthenticated},
		"a token over TLS":           {callers.Config{}, nil, both(certified(false), both(bearer(c.Tokens["reader"]), far)), "reader", nil},
		"a certificate":              {callers.Config{Cluster: "c1"}, nil, certified(true), "user", nil},
		"a required certificate":     {callers.Config{Require: true}, nil, certified(true), "user", nil},
		"another cluster's":          {callers.Config{Cluster: "c2"}, nil, certified(true), "", access.ErrUnauthenticated},
		"an unverified certificate":  {callers.Config{}, nil, certified(false), "", access.ErrNoRole},
		"a revoked certificate":      {callers.Config{Verify: refuse}, nil, certified(true), "", access.ErrUnauthenticated},
		"nothing to verify":          {callers.Config{Verify: refuse}, nil, bearer(c.Tokens["reader"]), "reader", nil},
		"nothing":                    {callers.Config{}, nil, nothing, "", access.ErrNoRole},
		"nothing where it is needed": {callers.Config{Require: true}, nil, nothing, "", nil},
		"a claim":                    {callers.Config{}, nil, admin, "", access.ErrNoRole},
		"a claim beside a token":     {callers.Config{}, &listener.Conn{}, both(admin, bearer(c.Tokens["reader"])), "reader", nil},
		"a node":                     {callers.Config{Require: true}, node, from, "node n2", nil},
		"a node's caller":            {callers.Config{Require: true}, node, admin, "admin", nil},
		"a node's malformed caller":  {callers.Config{}, node, named("%"), "", nil},
	} {
		var denied []access.Denial
		test.cfg.Source, test.cfg.Denials = c, func(d access.Denial) { denied = append(denied, d) }
		r := requestOn(test.conn)
		test.present(r)
		caller, err := callers.New(test.cfg).Identify(r)
		switch {
		case test.want != "":
			if err != nil || caller.Identity() != test.want || len(denied) > 0 {
				t.Errorf("%s: %v, %v, %v", what, caller, err, denied)
			}
		case err == nil || caller != nil || test.err != nil && !errors.Is(err, test.err):
			t.Errorf("%s: %v, %v", what, caller, err)
		}
		if test.conn != node && (r.Header.Get(forward.HeaderFrom) != "" || r.Header.Get(forward.HeaderCaller) != "") {
			t.Errorf("%s: the headers of a stranger are left: %v", what, r.Header)
		}
		if (what == "nothing where it is needed" || what == "a revoked certificate") && (len(denied) != 1 || denied[0].Caller.GetAddress() != r.RemoteAddr) {
			t.Errorf("denied %v", denied)
		}
	}
}

func caller(t *testing.T, c *rights.Cluster, role string) *access.Caller {
	t.Helper()
	found, err := access.Authenticate(c, "c1", access.Presented{Token: c.Tokens[role], Secure: true, Address: "10.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// change lets admin replace the policy by a changed one.
func change(t *testing.T, c *rights.Cluster, edit func(*wire.Policy)) {
	t.Helper()
	policy, revision := rights.Policy(), uint64(0)
	edit(policy)
	_, revision = c.Access().Policy()
	c.Must(t, &wire.Command{Caller: &wire.Caller{Identity: "admin"}, Op: &wire.Command_SetPolicy{SetPolicy: &wire.SetPolicy{
		Policy: policy, ExpectedRevision: revision, Reason: "test",
	}}})
}

// TestConnectionsAreCounted verifies that the connections of an identity are bounded by its quota until they are closed,
// that several requests of one connection count once, and those from other nodes not at all.
func TestConnectionsAreCounted(t *testing.T) {
	c := rights.New(t)
	change(t, c, func(p *wire.Policy) { p.Quotas = []*wire.Quota{{Identity: "user", Connections: 1, Watches: 1}} })
	quotas := quota.New(c, 10)
	all, user := callers.New(callers.Config{Source: c, Quotas: quotas, Connections: quotas.Pool("max_connections", 10)}), caller(t, c, "user")
	near, far := net.Pipe()
	defer far.Close()
	port := listener.New(listener.Config{Registry: prometheus.NewRegistry(), MaxHandshakes: 9, IdleTimeout: time.Hour})
	one, two, node := port.Begin(near), port.Begin(near), port.Begin(&listener.NodeConn{Conn: near})
	begin := func(conn *listener.Conn, refusal bool) (ctx context.Context, end func()) {
		t.Helper()
		r := requestOn(conn)
		refused := all.Connect(r.Context(), user)
		if refused == nil {
			ctx, end, refused = all.Begin(r, user, nil)
		}
		if (refused != nil) != refusal || refusal && refused.GetMessage() != `quota connections of "user": 1 of 1 used, this would take 1 more` {
			t.Fatalf("refused with %v", refused)
		}
		return ctx, end
	}
	ctx, end := begin(one, false)
	if access.Of(ctx) != user {
		t.Error("the request has another caller")
	}
	_, again := begin(one, false)
	begin(two, true)
	forwarded, endNode := begin(node, false)
	if quota.Of(forwarded) != nil || quota.Of(ctx) == nil {
		t.Error("a request is counted by the node that forwards it, and only there")
	}
	leave, err := callers.BeginWatch(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := callers.BeginWatch(ctx, 2); apierror.Status(err) != wire.Status_RESOURCE_EXHAUSTED || !strings.Contains(err.Error(), "quota watches") {
		t.Errorf("a second watch: %v", err)
	}
	leave()
	leave, err = callers.BeginWatch(ctx, 1) // the refused one has no place any more
	if err != nil {
		t.Fatal(err)
	}
	if _, err := callers.BeginWatch(ctx, 1); apierror.Status(err) != wire.Status_RESOURCE_EXHAUSTED || !strings.Contains(err.Error(), "max_watches_per_connection") {
		t.Errorf("a watch more than the connection may have: %v", err)
	}
	leave()
	end()
	again()
	endNode()
	begin(two, true)
	_ = one.Close()
	_, end = begin(two, false)
	end()
	_ = two.Close()
	if use := quotas.Use("user"); use != (quota.Use{}) {
		t.Errorf("left are %+v", use)
	}
}

// TestConnectionTakesOnePlace verifies that a connection that several identities use takes one place of the port, so that
// it leaves the others to other connections.
func TestConnectionTakesOnePlace(t *testing.T) {
	c := rights.New(t)
	near, far := net.Pipe()
	defer far.Close()
	quotas := quota.New(c, 10)
	places := quotas.Pool("max_connections", 3)
	all := callers.New(callers.Config{Source: c, Quotas: quotas, Connections: places})
	port := listener.New(listener.Config{Registry: prometheus.NewRegistry(), MaxHandshakes: 9, IdleTimeout: time.Hour})
	shared, own := port.Begin(near), port.Begin(near)
	connect := func(conn *listener.Conn, role string) *wire.Result {
		return all.Connect(requestOn(conn).Context(), caller(t, c, role))
	}
	for _, role := range []string{"reader", "user", "operator"} {
		if refused := connect(shared, role); refused != nil {
			t.Errorf("%s on the same connection: %v", role, refused)
		}
		if use := quotas.Use(role); use.Connections != 1 {
			t.Errorf("%s uses %+v", role, use)
		}
	}
	if refused := connect(own, "admin"); refused != nil {
		t.Errorf("on another connection: %v", refused)
	}
	_, _ = shared.Close(), own.Close()
	single := quotas.Open("user")
	for range 2 {
		if _, refused := single.Connect(places); refused != nil {
			t.Errorf("places are not free: %v", refused)
		}
	}
}

// TestCallersThatHaveToGo verifies which running requests end when a certificate is revoked or the policy changes.
func TestCallersThatHaveToGo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := rights.New(t)
		var revoked error
		all := callers.New(callers.Config{Source: c, Verify: func([]*x509.Certificate) error { return revoked }})
		begin := func(role string, change func(*http.Request)) (context.Context, func()) {
			r := requestOn(nil)
			change(r)
			ctx, end, refused := all.Begin(r, caller(t, c, role), nil)
			if refused != nil {
				t.Fatal(refused)
			}
			return ctx, end
		}
		plain, endPlain := begin("reader", func(*http.Request) {})
		secure, endSecure := begin("user", certified(true))
		ended, end := begin("reader", certified(true))
		end()
		if ended.Err() == nil || callers.Dismissal(ended) != nil {
			t.Errorf("an ended request: %v, %v", ended.Err(), callers.Dismissal(ended))
		}
		all.VerifyAll()
		if secure.Err() != nil {
			t.Fatal("a request with a valid certificate is ended")
		}
		revoked = errRevoked
		all.VerifyAll()
		if got := callers.Dismissal(secure); secure.Err() == nil || apierror.Status(got) != wire.Status_UNAUTHENTICATED || !strings.Contains(got.Error(), "revoked") {
			t.Errorf("a revoked certificate: %v", got)
		}
		endSecure()

		recheck := func() {
			life, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			all.Recheck(life)
		}
		recheck()
		if plain.Err() != nil {
			t.Fatal("a request is ended without a reason")
		}
		change(t, c, func(p *wire.Policy) { p.Bindings[1].Roles = []string{"other"} })
		recheck()
		if got := callers.Dismissal(plain); plain.Err() == nil || apierror.Status(got) != wire.Status_PERMISSION_DENIED {
			t.Errorf("a right was taken away: %v", got)
		}
		endPlain()
	})
}

// TestEndedRequestsAreForgotten verifies that nothing is kept of a request that has ended.
func TestEndedRequestsAreForgotten(t *testing.T) {
	c := rights.New(t)
	verified := 0
	all := callers.New(callers.Config{Source: c, Verify: func([]*x509.Certificate) error { verified++; return nil }})
	r := requestOn(nil)
	certified(true)(r)
	_, end, _ := all.Begin(r, caller(t, c, "user"), nil)
	verified = 0 // when it began
	if all.VerifyAll(); verified != 1 {
		t.Errorf("verified %d times", verified)
	}
	end()
	if all.VerifyAll(); verified != 1 {
		t.Errorf("verified %d times after its end", verified)
	}
}

// TestEndOfTheConnection verifies that the context of a request ends with its connection at once.
func TestEndOfTheConnection(t *testing.T) {
	c := rights.New(t)
	r := requestOn(nil)
	connection, cut := context.WithCancel(r.Context())
	ctx, end, _ := callers.New(callers.Config{Source: c}).Begin(r.WithContext(connection), caller(t, c, "user"), nil)
	defer end()
	if ctx.Err() != nil {
		t.Error(ctx.Err())
	}
	cut()
	if ctx.Err() == nil || callers.Dismissal(ctx) != nil {
		t.Errorf("%v, %v", ctx.Err(), callers.Dismissal(ctx))
	}
}

// stream is a stream whose only message is a request.
type stream struct {
	connect.StreamingHandlerConn
	err error
}

func (s stream) Receive(m any) error { return s.err }

// TestMessagesAreChecked verifies that each message is checked and that what is refused, here or by its handler, is
// reported as a denial.
func TestMessagesAreChecked(t *testing.T) {
	c := rights.New(t)
	change(t, c, func(p *wire.Policy) { p.Quotas = []*wire.Quota{{Identity: "user", RequestsPerSecond: 4}} })
	var denied []string
	found, err := access.Authenticate(c, "c1", access.Presented{Token: c.Tokens["user"], Secure: true, Denials: func(d access.Denial) { denied = append(denied, d.Request) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end, _ := callers.New(callers.Config{Source: c, Quotas: quota.New(c, 10)}).Begin(requestOn(nil), found, nil)
	defer end()
	want := func(err error, status wire.Status_Code, reported ...string) {
		t.Helper()
		if (err == nil) != (status == wire.Status_OK) || err != nil && apierror.Status(err) != status || strings.Join(denied, " ") != strings.Join(reported, " ") {
			t.Errorf("%v, denied %q, want %v, %q", err, denied, status, reported)
		}
		denied = nil
	}
	want(callers.Check(ctx, 7), wire.Status_INTERNAL)
	want(callers.Check(ctx, &wire.ListAuditRequest{}), wire.Status_PERMISSION_DENIED, "ListAuditRequest")
	want(callers.Check(ctx, &wire.WhoAmIRequest{}), wire.Status_OK)

	answer := error(nil)
	calls := 0
	unary := callers.Checker{}.WrapUnary(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { calls++; return nil, answer })
	call := func(req connect.AnyRequest) error { _, err := unary(ctx, req); return err }
	want(call(connect.NewRequest(&wire.ListAuditRequest{})), wire.Status_PERMISSION_DENIED, "ListAuditRequest")
	if calls != 0 {
		t.Error("the handler gets a request that is refused")
	}
	want(call(connect.NewRequest(&wire.HeartbeatRequest{})), wire.Status_OK)
	answer = apierror.New(wire.Status_PERMISSION_DENIED, "no")
	want(call(connect.NewRequest(&wire.HeartbeatRequest{})), wire.Status_PERMISSION_DENIED, "HeartbeatRequest")
	answer = apierror.New(wire.Status_UNAVAILABLE, "later")
	want(call(connect.NewRequest(&wire.HeartbeatRequest{})), wire.Status_UNAVAILABLE)

	receive := func(request any, err error) error {
		return callers.Checker{}.WrapStreamingHandler(func(_ context.Context, conn connect.StreamingHandlerConn) error {
			return conn.Receive(request)
		})(ctx, stream{err: err})
	}
	want(receive(&wire.SaveSnapshotRequest{}, nil), wire.Status_PERMISSION_DENIED, "SaveSnapshotRequest")
	want(receive(&wire.HeartbeatRequest{}, nil), wire.Status_OK)
	want(receive(&wire.SaveSnapshotRequest{}, apierror.New(wire.Status_UNAVAILABLE, "cut")), wire.Status_UNAVAILABLE)
	want(callers.Check(ctx, &wire.WhoAmIRequest{}), wire.Status_RESOURCE_EXHAUSTED) // what was denied has counted
}
