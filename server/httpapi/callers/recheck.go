package callers

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/httpapi/listener"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// recheckInterval is how often callers are checked again. A revoked caller is gone after it at the latest.
const recheckInterval = 250 * time.Millisecond

// Callers are the callers of the running requests, and those of the idle connections. It is safe for concurrent use.
type Callers struct {
	cfg Config

	mu      sync.Mutex
	running map[*use]struct{} // guarded by mu
	// idle are the connections whose latest request has ended, by its use; guarded by mu. Closed connections are removed
	// when the callers are checked again. A connection that has asked for health only has no caller.
	idle map[*listener.Conn]*use
}

// New returns Callers without requests.
func New(cfg Config) *Callers {
	return &Callers{cfg: cfg, running: map[*use]struct{}{}, idle: map[*listener.Conn]*use{}}
}

// use is the use of a connection by a caller: a running request, or the time after it.
type use struct {
	// conn is the caller's connection; nil for a connection of another node, which serves many callers.
	conn   *listener.Conn
	caller *access.Caller
	tls    *tls.ConnectionState
	// cancel ends the request. It has no effect after the request.
	cancel context.CancelCauseFunc
	once   sync.Once
}

// dismiss ends the request, and its connection as soon as no other caller's request runs there, and reports it.
func (u *use) dismiss(err error) {
	u.once.Do(func() { u.caller.Dismissed(err) })
	u.cancel(err)
	u.conn.CloseWhenIdle()
}

// Begin returns the context of a request, which is cancelled when its caller has to go. end ends it. places are those of
// requests of this kind; nil if they are not bounded. Begin returns a refusal if the caller's identity has its share of
// them.
func (c *Callers) Begin(r *http.Request, caller *access.Caller, places *quota.Pool) (_ context.Context, end func(), refused *wire.Result) {
	ctx := r.Context()
	account, leave, refused := c.count(ctx, caller, places)
	if refused != nil {
		return nil, nil, refused
	}
	cancellable, cancel := context.WithCancelCause(quota.NewContext(access.NewContext(ctx, caller), account))
	memory, uncharge := listener.Of(ctx).Charge(wire.Printable(caller.Identity()), cancel)
	u := &use{caller: caller, tls: r.TLS, cancel: cancel}
	if conn := listener.Of(ctx); !conn.FromNode() {
		u.conn = conn
	}
	c.begin(u)
	return requestContext{listener.WithMemory(cancellable, memory), ctx}, func() {
		c.end(u)
		cancel(nil)
		uncharge()
		leave()
	}, nil
}

// begin registers a request. Its certificate may have been revoked since the request was identified.
func (c *Callers) begin(u *use) {
	c.mu.Lock()
	c.running[u] = struct{}{}
	delete(c.idle, u.conn)
	c.mu.Unlock()
	if err := c.verify(u.tls); err != nil {
		u.dismiss(err)
	}
}

// end unregisters a request and keeps its caller as the latest one of the connection.
func (c *Callers) end(u *use) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, u)
	if u.conn != nil {
		c.idle[u.conn] = u
	}
}

// list returns the running requests and the idle connections.
func (c *Callers) list() []*use {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*use, 0, len(c.running)+len(c.idle))
	for u := range c.running {
		list = append(list, u)
	}
	for conn, u := range c.idle {
		if conn.Closed() {
			delete(c.idle, conn)
			continue
		}
		list = append(list, u)
	}
	return list
}

// verify returns an error if the caller's certificate is revoked.
func (c *Callers) verify(state *tls.ConnectionState) error {
	if c.cfg.Verify == nil || state == nil {
		return nil
	}
	if err := c.cfg.Verify(state.PeerCertificates); err != nil {
		return fmt.Errorf("%w: %w", access.ErrUnauthenticated, err)
	}
	return nil
}

// VerifyAll ends the requests and idle connections of callers whose certificate is revoked.
func (c *Callers) VerifyAll() {
	for _, u := range c.list() {
		if err := c.verify(u.tls); err != nil {
			u.dismiss(err)
		}
	}
}

// Recheck ends the requests and idle connections of callers that may not go on, until life ends.
func (c *Callers) Recheck(life context.Context) {
	tick := time.NewTicker(recheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-life.Done():
			return
		case now := <-tick.C:
			for _, u := range c.list() {
				if err := u.caller.Recheck(now); err != nil {
					u.dismiss(err)
				}
			}
		}
	}
}

// Dismissal returns the error for a request that was ended because its caller has to go, or held too much; or nil.
func Dismissal(ctx context.Context) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, access.ErrNoRole):
		return apierror.New(wire.Status_PERMISSION_DENIED, cause.Error())
	case errors.Is(cause, access.ErrUnauthenticated):
		return apierror.New(wire.Status_UNAUTHENTICATED, cause.Error())
	case errors.Is(cause, listener.ErrCut):
		return apierror.New(wire.Status_UNCERTAIN, cause.Error())
	}
	return nil
}

// requestContext is the context of a request. The end of the connection shows in Err at once.
type requestContext struct {
	context.Context
	connection context.Context
}

func (c requestContext) Err() error { return cmp.Or(c.Context.Err(), c.connection.Err()) }
