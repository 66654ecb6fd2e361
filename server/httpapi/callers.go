package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/httpapi/forward"
	"github.com/quorumlock/quorumlock/server/httpapi/listener"
	"github.com/quorumlock/quorumlock/server/httpapi/response"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// recheckInterval is how often the callers of running requests are checked again. A revoked caller is gone after it at
// the latest.
const recheckInterval = 250 * time.Millisecond

// errNoCredential is the error for a caller without a certificate on a port that requires one.
var errNoCredential = errors.New("this port requires a client certificate of its CA (curl --cert FILE --key FILE) or a token (-H 'Authorization: Bearer ql_...'): present one")

// identify determines who sent a request. Only other nodes may say so in a header.
func (s *Server) identify(r *http.Request) (*access.Caller, error) {
	conn := listener.Of(r.Context())
	presented := access.Presented{Address: r.RemoteAddr}
	if conn.FromNode() {
		value := r.Header.Get(forward.HeaderCaller)
		if value == "" {
			return access.Node(s.replica, r.Header.Get(forward.HeaderFrom)), nil
		}
		origin, err := forward.DecodeCaller(value)
		if err != nil {
			return nil, err
		}
		presented.Origin = origin
	} else {
		r.Header.Del(forward.HeaderFrom)
		r.Header.Del(forward.HeaderCaller)
		s.credentials(r, &presented)
		if s.cfg.ClientAuth == AuthRequire && presented.Certificate == nil && presented.Token == "" {
			return nil, errNoCredential
		}
	}
	return access.Authenticate(s.replica, s.clusterID(), presented)
}

// credentials adds what the caller presented itself.
func (s *Server) credentials(r *http.Request, presented *access.Presented) {
	if scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " "); found && strings.EqualFold(scheme, "Bearer") {
		presented.Token = strings.TrimSpace(token)
	}
	presented.Secure = r.TLS != nil || access.IsLoopback(r.RemoteAddr)
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		presented.Certificate = r.TLS.PeerCertificates[0]
	}
}

// refuse answers a caller that is not known, or that has no role.
func (s *Server) refuse(a *response.Writer, r *http.Request, err error) {
	a.Header().Set("Connection", "close")
	if errors.Is(err, access.ErrNoRole) {
		s.respond(a, r, http.StatusForbidden, connect.CodePermissionDenied, problem{Message: err.Error()})
		return
	}
	a.Header().Set("WWW-Authenticate", "Bearer")
	s.respond(a, r, http.StatusUnauthorized, connect.CodeUnauthenticated, problem{Message: err.Error()})
}

// callers are the running requests, which have to end when their caller loses its credential or its rights.
type callers struct {
	mu  sync.Mutex
	all map[*running]struct{}
}

// running is a request in progress.
type running struct {
	caller *access.Caller
	cancel context.CancelCauseFunc
}

// begin returns the context of a request, which is cancelled when its caller has to go. end ends it.
func (c *callers) begin(ctx context.Context, caller *access.Caller) (_ context.Context, end func()) {
	cancellable, cancel := context.WithCancelCause(access.NewContext(ctx, caller))
	one := &running{caller, cancel}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[*running]struct{}{}
	}
	c.all[one] = struct{}{}
	return requestContext{cancellable, ctx}, func() {
		c.mu.Lock()
		delete(c.all, one)
		c.mu.Unlock()
		cancel(nil)
	}
}

// requestContext is the context of a request. The end of the connection shows in Err at once.
type requestContext struct {
	context.Context
	connection context.Context
}

func (c requestContext) Err() error { return cmp.Or(c.Context.Err(), c.connection.Err()) }

func (c *callers) list() []*running {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*running, 0, len(c.all))
	for one := range c.all {
		list = append(list, one)
	}
	return list
}

// recheck ends the requests of callers that may not go on, until the server closes.
func (s *Server) recheck() {
	tick := time.NewTicker(recheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case now := <-tick.C:
			for _, one := range s.callers.list() {
				if err := one.caller.Recheck(now); err != nil {
					one.cancel(err)
				}
			}
		}
	}
}

// dismissal returns the error for a request that was ended because its caller has to go, or nil.
func dismissal(ctx context.Context) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, access.ErrNoRole):
		return apierror.New(wire.Status_PERMISSION_DENIED, cause.Error())
	case errors.Is(cause, access.ErrUnauthenticated):
		return apierror.New(wire.Status_UNAUTHENTICATED, cause.Error())
	}
	return nil
}

// checker checks each message against the rights of its caller before its handler sees it. It is a
// connect.Interceptor.
type checker struct{}

// WrapUnary checks the requests of unary handlers.
func (checker) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if err := check(ctx, req.Any()); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// WrapStreamingHandler checks the requests of streaming handlers.
func (checker) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return next(ctx, checkedConn{conn, ctx})
	}
}

// WrapStreamingClient implements connect.Interceptor. The port has no streaming clients.
func (checker) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// check refuses a request that its caller may not send.
func check(ctx context.Context, request any) error {
	message, ok := request.(proto.Message)
	if !ok {
		return apierror.New(wire.Status_INTERNAL, "the request is no message of the schema")
	}
	if refused := access.Of(ctx).Check(message); refused != nil {
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
	return check(c.ctx, m)
}
