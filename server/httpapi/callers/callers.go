package callers

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/httpapi/forward"
	"github.com/quorumlock/quorumlock/server/httpapi/listener"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// recheckInterval is how often the callers of running requests are checked again. A revoked caller is gone after it at
// the latest.
const recheckInterval = 250 * time.Millisecond

// errNoCredential is the error for a caller without a certificate on a port that requires one.
var errNoCredential = errors.New("this port requires a client certificate of its CA (curl --cert FILE --key FILE) or a token (-H 'Authorization: Bearer ql_...'): present one")

// Identify determines who sent a request. Only other nodes may say so in a header; the headers of others are removed.
func (c *Callers) Identify(r *http.Request) (*access.Caller, error) {
	conn := listener.Of(r.Context())
	presented := access.Presented{Address: r.RemoteAddr, Denials: c.cfg.Denials}
	if conn.FromNode() {
		value := r.Header.Get(forward.HeaderCaller)
		if value == "" {
			return access.Node(c.cfg.Source, r.Header.Get(forward.HeaderFrom)), nil
		}
		origin, err := forward.DecodeCaller(value)
		if err != nil {
			return nil, err
		}
		presented.Origin = origin
	} else {
		r.Header.Del(forward.HeaderFrom)
		r.Header.Del(forward.HeaderCaller)
		if err := c.verify(r.TLS); err != nil {
			return nil, err
		}
		credentials(r, &presented)
		if c.cfg.Require && presented.Certificate == nil && presented.Token == "" {
			c.cfg.Denials.Refused(&wire.Caller{Address: r.RemoteAddr}, errNoCredential)
			return nil, errNoCredential
		}
	}
	return access.Authenticate(c.cfg.Source, c.cfg.Cluster, presented)
}

// credentials adds what the caller presented itself.
func credentials(r *http.Request, presented *access.Presented) {
	if scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " "); found && strings.EqualFold(scheme, "Bearer") {
		presented.Token = strings.TrimSpace(token)
	}
	presented.Secure = r.TLS != nil || access.IsLoopback(r.RemoteAddr)
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		presented.Certificate = r.TLS.PeerCertificates[0]
	}
}

// Config configures Callers.
type Config struct {
	// Source is the node's applied state.
	Source access.Source
	// Cluster is the cluster that client certificates must name; empty if they may name any.
	Cluster string
	// Verify returns an error for certificates that are revoked; nil without TLS.
	Verify func(presented []*x509.Certificate) error
	// Require refuses callers without a certificate and without a token.
	Require bool
	// Denials gets the refusals of callers and their requests.
	Denials access.Denials
	// Quotas counts what identities use of the node; nil counts nothing. Connections are the places of the port.
	Quotas      *quota.Node
	Connections *quota.Pool
}

// Callers are the callers of the running requests. It is safe for concurrent use.
type Callers struct {
	cfg Config
	mu  sync.Mutex
	all map[*running]struct{} // guarded by mu
}

// New returns Callers without requests.
func New(cfg Config) *Callers { return &Callers{cfg: cfg, all: map[*running]struct{}{}} }

// running is a request in progress.
type running struct {
	caller *access.Caller
	tls    *tls.ConnectionState
	cancel context.CancelCauseFunc
}

// Begin returns the context of a request, which is cancelled when its caller has to go. end ends it. places are those of
// requests of this kind; nil if they are not bounded. Begin returns a refusal if the caller's identity has its
// connections or its share of the places.
func (c *Callers) Begin(r *http.Request, caller *access.Caller, places *quota.Pool) (_ context.Context, end func(), refused *wire.Result) {
	ctx := r.Context()
	account, leave, refused := c.count(ctx, caller, places)
	if refused != nil {
		return nil, nil, refused
	}
	cancellable, cancel := context.WithCancelCause(quota.NewContext(access.NewContext(ctx, caller), account))
	one := &running{caller, r.TLS, cancel}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[one] = struct{}{}
	return requestContext{cancellable, ctx}, func() {
		c.mu.Lock()
		delete(c.all, one)
		c.mu.Unlock()
		cancel(nil)
		leave()
	}, nil
}

// count opens the account of a caller and counts its connection, and its request until leave is called. Another node has
// already counted what it forwards towards the quotas, for which account is nil, but not towards the places of this node.
func (c *Callers) count(ctx context.Context, caller *access.Caller, places *quota.Pool) (account *quota.Account, leave func(), refused *wire.Result) {
	opened, conn := c.cfg.Quotas.Open(caller.Identity()), listener.Of(ctx)
	if !conn.FromNode() {
		account = opened
		conn.Count(caller.Identity(), func() (leave func()) {
			leave, refused = account.Connect(c.cfg.Connections)
			return leave
		})
	}
	free := func() {}
	if refused == nil && places != nil {
		free, refused = opened.Enter(places)
	}
	if refused != nil {
		opened.Close()
		return nil, nil, refused
	}
	return account, func() {
		free()
		opened.Close()
	}, nil
}

// BeginWatch takes a place among the watches of the caller's connection, of which there are at most so many, and of its
// identity.
func BeginWatch(ctx context.Context, most int) (leave func(), err error) {
	conn := listener.Of(ctx)
	if !conn.BeginWatch(most) {
		return nil, apierror.New(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("max_watches_per_connection: this connection has %d watches already", most))
	}
	end, refused := quota.Of(ctx).Watch()
	if refused != nil {
		conn.EndWatch()
		return nil, apierror.FromResult(refused)
	}
	return func() {
		end()
		conn.EndWatch()
	}, nil
}

// requestContext is the context of a request. The end of the connection shows in Err at once.
type requestContext struct {
	context.Context
	connection context.Context
}

func (c requestContext) Err() error { return cmp.Or(c.Context.Err(), c.connection.Err()) }

func (c *Callers) list() []*running {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*running, 0, len(c.all))
	for one := range c.all {
		list = append(list, one)
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

// VerifyAll ends the requests of callers whose certificate is revoked.
func (c *Callers) VerifyAll() {
	for _, one := range c.list() {
		if err := c.verify(one.tls); err != nil {
			one.cancel(err)
		}
	}
}

// Recheck ends the requests of callers that may not go on, until life ends.
func (c *Callers) Recheck(life context.Context) {
	tick := time.NewTicker(recheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-life.Done():
			return
		case now := <-tick.C:
			for _, one := range c.list() {
				if err := one.caller.Recheck(now); err != nil {
					one.cancel(err)
				}
			}
		}
	}
}

// Dismissal returns the error for a request that was ended because its caller has to go, or nil.
func Dismissal(ctx context.Context) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, access.ErrNoRole):
		return apierror.New(wire.Status_PERMISSION_DENIED, cause.Error())
	case errors.Is(cause, access.ErrUnauthenticated):
		return apierror.New(wire.Status_UNAUTHENTICATED, cause.Error())
	}
	return nil
}

// Checker checks each message against the rights of its caller before its handler sees it. It is a
// connect.Interceptor.
type Checker struct{}

// WrapUnary checks the requests of unary handlers.
func (Checker) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if err := Check(ctx, req.Any()); err != nil {
			return nil, err
		}
		resp, err := next(ctx, req)
		if message, ok := req.Any().(proto.Message); ok && connect.CodeOf(err) == connect.CodePermissionDenied {
			access.Of(ctx).Denied(message, &wire.Result{Status: wire.Status_PERMISSION_DENIED, Message: apierror.Message(err)})
		}
		return resp, err
	}
}

// WrapStreamingHandler checks the requests of streaming handlers.
func (Checker) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return next(ctx, checkedConn{conn, ctx})
	}
}

// WrapStreamingClient implements connect.Interceptor. The port has no streaming clients.
func (Checker) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// Check refuses a request that its caller may not send.
func Check(ctx context.Context, request any) error {
	message, ok := request.(proto.Message)
	if !ok {
		return apierror.New(wire.Status_INTERNAL, "the request is no message of the schema")
	}
	caller := access.Of(ctx)
	if refused := caller.Check(message); refused != nil {
		caller.Denied(message, refused)
		return apierror.FromResult(refused)
	}
	if refused := quota.Of(ctx).Request(message); refused != nil {
		return apierror.FromResult(refused)
	}
	return nil
}

// checkedConn checks each message that it receives.
type checkedConn struct {
	connect.StreamingHandlerConn
	ctx context.Context
}

// Receive implements connect.StreamingHandlerConn.
func (c checkedConn) Receive(m any) error {
	if err := c.StreamingHandlerConn.Receive(m); err != nil {
		return err
	}
	return Check(c.ctx, m)
}
