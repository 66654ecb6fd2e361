package process_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/process"
	"github.com/quorumlock/quorumlock/test/resp"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// line is a connection of a tenant. It ends when the tenant reads its end, or closes it after a goodbye.
type line struct {
	net.Conn
	what string
	once sync.Once
	gone chan struct{}
	end  time.Time // valid once gone is closed
}

// Read implements net.Conn.
func (l *line) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		l.ended()
	}
	return n, err
}

// Close implements net.Conn.
func (l *line) Close() error {
	l.ended()
	return l.Conn.Close()
}

func (l *line) ended() {
	l.once.Do(func() {
		l.end = time.Now()
		close(l.gone)
	})
}

// isOpen reports whether the tenant has not read the end of its connection.
func (l *line) isOpen() bool {
	select {
	case <-l.gone:
		return false
	default:
		return true
	}
}

// credential is what a tenant presents: the certificate of a name, or a token.
type credential struct{ certificate, token string }

// connections are those of a tenant.
const connections = 7

// tenant is an identity that uses one node and reaches no other: a session with a lock and a framed watch; over HTTP a
// watch, an acquire that waits, and one idle connection of each version; and on the Redis port an idle connection, and
// a wait.
type tenant struct {
	t    *testing.T
	c    *process.Cluster
	name string
	node string
	with credential
	// redis is the address of the node's Redis port.
	redis string

	mu    sync.Mutex
	lines []*line         // all connections so far; guarded by mu
	seen  map[string]bool // what the watches have shown, as in "framed: a"; guarded by mu

	session  *client.Session
	hold     *client.Hold
	watched  chan error // the end of the watch over HTTP
	answered chan error // the answer to the acquire over HTTP
}

// tenantTTL is that of a tenant's session, and bounds how long its lock outlives its credential.
const tenantTTL = 10 * time.Second

// enter connects a tenant to a node in every way. Its acquire over HTTP waits for a lock of the owner.
func enter(t *testing.T, c *process.Cluster, owner *client.Session, name, node, redis string, with credential) *tenant {
	t.Helper()
	v := &tenant{t: t, c: c, name: name, node: node, redis: redis, with: with, seen: map[string]bool{}, watched: make(chan error, 1), answered: make(chan error, 1)}
	v.lock()
	v.watch()
	v.wait(owner)
	for _, http2 := range []bool{false, true} {
		access := wireconnect.NewAccessServiceClient(v.caller(fmt.Sprintf("idle HTTP connection (HTTP/2: %v)", http2), http2), c.HTTP(node))
		if _, err := access.WhoAmI(t.Context(), connect.NewRequest(&wire.WhoAmIRequest{})); err != nil {
			t.Fatalf("%v: %v", v, err)
		}
	}
	v.keys(owner)
	return v
}

// String names the tenant in messages.
func (v *tenant) String() string { return v.name + " at " + v.node }

// held is the name of the tenant's lock.
func (v *tenant) held() string { return "held/" + v.name + "/" + v.node }

// lock opens a session, acquires the tenant's lock and starts the framed watch.
func (v *tenant) lock() {
	cl, err := client.New(client.Config{
		Endpoints: []string{v.c.Endpoint(v.node)}, TLS: v.c.TLS(v.with.certificate), AuthToken: v.with.token,
		Agent: v.name, RequestTimeout: process.WaitTimeout, Dial: v.dialer("session's connection", v.c.Endpoint(v.node)),
	})
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = cl.Close() })
	v.session = open(v.t, cl, tenantTTL)
	if v.hold, err = v.session.Lock(v.t.Context(), v.held()); err != nil {
		v.t.Fatalf("%v: %v", v, err)
	}
	w := cl.Watch(v.t.Context(), client.WatchOptions{Prefix: "seen/"})
	v.t.Cleanup(w.Close)
	if _, err := w.Next(v.t.Context()); err != nil { // the position at which it starts
		v.t.Fatalf("%v: %v", v, err)
	}
	go func() {
		for {
			batch, err := w.Next(v.t.Context())
			if err != nil {
				return
			}
			for _, e := range batch.Events {
				v.saw("framed: " + e.Lock)
			}
		}
	}()
}

// watch starts the watch over HTTP.
func (v *tenant) watch() {
	locks := wireconnect.NewLockServiceClient(v.caller("HTTP watch", true), v.c.HTTP(v.node))
	events, err := locks.Watch(v.t.Context(), connect.NewRequest(&wire.WatchRequest{Prefix: "seen/"}))
	if err != nil || !events.Receive() { // the position at which it starts
		v.t.Fatalf("%v: %v, %v", v, err, events.Err())
	}
	go func() {
		for events.Receive() {
			for _, e := range events.Msg().GetEvents() {
				v.saw("HTTP: " + e.GetLock())
			}
		}
		v.watched <- events.Err()
	}()
}

// wait starts an acquire over HTTP, which waits for a lock of the owner.
func (v *tenant) wait(owner *client.Session) {
	name := "contended/" + v.name + "/" + v.node
	if _, err := owner.Lock(v.t.Context(), name); err != nil {
		v.t.Fatal(err)
	}
	secret := make([]byte, 16)
	_, _ = rand.Read(secret)
	leases := wireconnect.NewLeaseServiceClient(v.caller("connection of a waiting acquire", true), v.c.HTTP(v.node))
	go func() {
		_, err := leases.Acquire(v.t.Context(), connect.NewRequest(&wire.AcquireLeaseRequest{
			Secret: secret, Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}, WaitForever: true},
		}))
		v.answered <- err
	}()
	v.c.Await(v.String()+" waits", process.WaitTimeout, func(context.Context) error {
		if n := v.c.Lock(name).GetQueueLength(); n != 1 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
}

// contendedKey is the name of the lock that the tenant waits for on the Redis port.
func (v *tenant) contendedKey() string { return "contended/key/" + v.name + "/" + v.node }

// keys connects to the Redis port twice. One connection stays idle, the other waits for a lock of the owner.
func (v *tenant) keys(owner *client.Session) {
	if _, err := owner.Lock(v.t.Context(), v.contendedKey()); err != nil {
		v.t.Fatal(err)
	}
	for what, command := range map[string][]string{
		"idle Redis connection":                 {"PING"},
		"Redis connection of a waiting QL.LOCK": {"QL.LOCK", v.contendedKey(), "value", "PX", "60000", "WAIT", "3600000"},
	} {
		conn, err := v.dialer(what, v.redis)(v.t.Context(), v.redis)
		if err != nil {
			v.t.Fatal(err)
		}
		v.t.Cleanup(func() { _ = conn.Close() })
		config := v.c.TLS(v.with.certificate).Clone()
		config.ServerName, _, _ = net.SplitHostPort(v.redis)
		secured := resp.New(tls.Client(conn, config))
		if v.with.token != "" {
			if reply, err := secured.Do("AUTH", v.with.token); err != nil || reply != "+OK\r\n" {
				v.t.Fatalf("%v: AUTH: %q, %v", v, reply, err)
			}
		}
		if _, err := secured.Write(resp.Encode(command...)); err != nil {
			v.t.Fatal(err)
		}
		go func() {
			for {
				if _, err := secured.Reply(); err != nil {
					return // the line has noted the end
				}
			}
		}()
	}
	v.queued(1)
}

// queued waits until so many wait for the lock on the Redis port.
func (v *tenant) queued(want int) {
	v.t.Helper()
	v.c.Await(fmt.Sprintf("%d waits of %v", want, v), process.WaitTimeout, func(context.Context) error {
		if n := v.c.Lock(v.contendedKey()).GetQueueLength(); int(n) != want {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
}

// caller returns an HTTP client with a connection of its own, which presents the credential.
func (v *tenant) caller(what string, http2 bool) *http.Client {
	dial := v.dialer(what, v.c.HTTP(v.node)[len("https://"):])
	tr := &http.Transport{
		DialContext:       func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, addr) },
		TLSClientConfig:   v.c.TLS(v.with.certificate),
		ForceAttemptHTTP2: http2,
	}
	if !http2 {
		tr.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	v.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: bearer{v.with.token, tr}}
}

// bearer adds a token to requests.
type bearer struct {
	token string
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.next.RoundTrip(r)
}

// dialer connects to one address only, and records the connections.
func (v *tenant) dialer(what, only string) func(context.Context, string) (net.Conn, error) {
	dial := v.c.Dialer()
	return func(ctx context.Context, addr string) (net.Conn, error) {
		if addr != only {
			return nil, fmt.Errorf("%v does not reach %s", v, addr)
		}
		conn, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		l := &line{Conn: conn, what: what, gone: make(chan struct{})}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.lines = append(v.lines, l)
		return l, nil
	}
}

// open returns the tenant's open connections.
func (v *tenant) open() (open []*line) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, l := range v.lines {
		if l.isOpen() {
			open = append(open, l)
		}
	}
	return open
}

func (v *tenant) saw(what string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen[what] = true
}

// sees reports whether one of the watches, or all of them, have shown an event of the lock.
func (v *tenant) sees(lock string) (some, all bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	framed, overHTTP := v.seen["framed: "+lock], v.seen["HTTP: "+lock]
	return framed || overHTTP, framed && overHTTP
}
