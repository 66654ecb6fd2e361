package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/httpapi/callers"
	"github.com/quorumlock/quorumlock/server/httpapi/forward"
	"github.com/quorumlock/quorumlock/server/httpapi/jsoncodec"
	"github.com/quorumlock/quorumlock/server/httpapi/listener"
	"github.com/quorumlock/quorumlock/server/httpapi/response"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// gate is the entry point of the port. Every request is counted here, and panics are recovered.
func (s *Server) gate(w http.ResponseWriter, r *http.Request) {
	s.handlers.Add(1)
	defer s.handlers.Done()
	route, known := s.routes[routeOf(r.URL.Path)]
	s.connections.Request(r)
	caller, unknown := s.identify(r, route, known && !route.open)
	refused := s.connect(r, caller)
	full := caller != nil && refused == nil && !s.connections.Establish(r)
	a := response.New(w, max(s.cfg.Limits.WriteTimeout, route.writeTimeout), listener.Memory(r.Context()))
	defer s.metrics.Count(route.name, a, time.Now())
	defer s.recoverPanic(a, r)
	defer a.Release()
	defer a.EndTurn()
	if r.ContentLength != 0 {
		// Also for a body that no handler reads: net/http would wait for it in the end.
		a.SetReadDeadline(time.Now().Add(s.cfg.Limits.BodyTimeout))
	}
	if full {
		a.Header().Set("Connection", "close")
		s.connections.Refuse(r)
		s.respond(a, r, http.StatusServiceUnavailable, connect.CodeResourceExhausted, problem{
			Message: "max_connections: too many connections to this node",
		})
		return
	}
	switch {
	case !known:
		s.notFound(a, r)
	case unknown != nil:
		s.refuse(a, r, unknown)
	case refused != nil:
		a.Header().Set("Connection", "close") // or connections beyond the quota would stay
		s.respond(a, r, http.StatusTooManyRequests, connect.CodeResourceExhausted, problem{Message: refused.GetMessage()})
	case caller == nil:
		s.dispatch(a, r, route)
	default:
		s.serveCaller(a, r, route, caller)
	}
}

// identify returns who sent a request that needs a caller; nil if it needs none.
func (s *Server) identify(r *http.Request, route route, needed bool) (*access.Caller, error) {
	if !needed {
		return nil, nil
	}
	caller, err := s.callers.Identify(r)
	if err != nil || !route.role {
		return caller, err
	}
	if err := caller.RequireRole(); err != nil {
		return nil, err
	}
	return caller, nil
}

// connect counts the connection of a verified caller, and returns a refusal if that has its connections.
func (s *Server) connect(r *http.Request, caller *access.Caller) *wire.Result {
	if caller == nil {
		return nil
	}
	return s.callers.Connect(r.Context(), caller)
}

// serveCaller serves a request of a verified caller.
func (s *Server) serveCaller(a *response.Writer, r *http.Request, route route, caller *access.Caller) {
	places := s.places
	if route.unbounded() {
		places = nil
	}
	ctx, end, refused := s.callers.Begin(r, caller, places)
	if refused != nil {
		s.respond(a, r, http.StatusTooManyRequests, connect.CodeResourceExhausted, problem{Message: refused.GetMessage()})
		return
	}
	defer end()
	a.Charge(listener.Memory(ctx))
	// Whoever has no right of operators could take the places reserved for them by requests that are refused later.
	route.operators = route.operators && caller.Grants().Operates()
	s.dispatch(a, r.WithContext(ctx), route)
}

// otherOrigins finds requests that a browser sends for a page of another origin. A browser presents its client
// certificate to every page, and reaches a node on loopback, so such a page could act for whoever visits it. Requests
// of other programs have no such headers.
var otherOrigins = http.NewCrossOriginProtection()

// dispatch checks the form of a request and hands it to its handler.
func (s *Server) dispatch(a *response.Writer, r *http.Request, route route) {
	if r.Method != route.method && (r.Method != http.MethodHead || route.method != http.MethodGet) {
		a.Header().Set("Allow", route.method)
		s.respond(a, r, http.StatusMethodNotAllowed, connect.CodeUnimplemented, problem{
			Message: fmt.Sprintf("%s requires method %s, not %s", r.URL.Path, route.method, r.Method),
		})
		return
	}
	if route.method == http.MethodPost && !jsoncodec.Supported(r.Header, route.streams || route.answers) {
		a.Header().Set("Accept-Post", "application/json, application/proto, application/grpc, application/grpc-web")
		s.respond(a, r, http.StatusUnsupportedMediaType, connect.CodeInvalidArgument, problem{
			Message: fmt.Sprintf("Content-Type %q is not supported: send JSON with -H 'Content-Type: application/json'", r.Header.Get("Content-Type")),
		})
		return
	}
	if err := otherOrigins.Check(r); err != nil && !listener.Of(r.Context()).FromNode() {
		s.respond(a, r, http.StatusForbidden, connect.CodePermissionDenied, problem{
			Message: "a page of another origin may not send requests with this browser's certificate or address: use the console at /ui/ of this node",
		})
		return
	}
	leave, ok := s.enterRequest(listener.Of(r.Context()), route)
	if !ok {
		s.respond(a, r, http.StatusTooManyRequests, connect.CodeResourceExhausted, problem{
			Message: "max_requests: too many requests are in flight on this node, or this connection has used its share",
		})
		return
	}
	defer leave()
	r = r.WithContext(a.Context(r.Context()))
	if route.streams {
		route.handler.ServeHTTP(a, r)
		return
	}
	s.unary(a, r, route)
}

// unary serves a request of one message. It reads the request completely before anything is done, so that it
// can be forwarded to the leader at any later time.
func (s *Server) unary(a *response.Writer, r *http.Request, route route) {
	most := max(s.cfg.Limits.MaxBodyBytes, route.maxBody)
	memory, takes := a.Memory(), requestBytes+response.BodyFactor*bodyBytes(r, most)
	if err := memory.Reserve(takes); err != nil {
		s.respond(a, r, http.StatusTooManyRequests, connect.CodeResourceExhausted, problem{Message: err.Error()})
		return
	}
	defer memory.Release(takes)
	body, ok := s.body(a, r, most)
	if !ok {
		return
	}
	forward.Rewind(r, body)
	route.handler.ServeHTTP(a, r)
	a.EndTurn()
	if a.Forward {
		s.forwarder.Serve(a, forward.Request{Request: r, Body: body, Procedure: route.name, Handler: route.handler})
	}
	if err := a.Exhausted; err != nil {
		s.exhausted(a, r, err)
	}
}

// requestBytes is the memory of a request in flight besides its body and answer, in bytes.
const requestBytes = 16 << 10

// operatorsShare is the divisor that gives the part of MaxRequests reserved for operators.
const operatorsShare = 16

// enterRequest takes a place among the requests in flight. A connection may have as many places as are still
// free, so that busy connections leave places for others. A connection of another node carries the requests of
// many callers, whose identities have shares instead. Short requests are bounded by the connections.
func (s *Server) enterRequest(conn *listener.Conn, route route) (leave func(), ok bool) {
	if route.unbounded() {
		return func() {}, true
	}
	most := int64(s.cfg.Limits.MaxRequests)
	if !route.operators {
		most -= most / operatorsShare
	}
	taken := conn.AddRequests(1)
	if free := most - s.metrics.InFlight.Add(1) + 1; free <= 0 || taken > free && !conn.FromNode() {
		s.leaveRequest(conn)
		return nil, false
	}
	return func() { s.leaveRequest(conn) }, true
}

func (s *Server) leaveRequest(conn *listener.Conn) {
	conn.AddRequests(-1)
	s.metrics.InFlight.Add(-1)
}

// exhausted rejects an answer that the node has no memory for. The rejection is small enough to be sent without.
func (s *Server) exhausted(a *response.Writer, r *http.Request, err error) {
	clear(a.Header())
	if ended := callers.Dismissal(r.Context()); ended != nil {
		err = ended
	} else {
		err = apierror.New(wire.Status_RESOURCE_EXHAUSTED, err.Error())
	}
	a.Exhausted, a.Outcome = nil, apierror.Name(err)
	a.ChargeNothing()
	_ = s.errors.Write(a, r, err)
}

// bodyBytes returns the upper bound of a body's size: its declared length, or most if that is missing or
// larger.
func bodyBytes(r *http.Request, most int) int {
	if r.ContentLength >= 0 && r.ContentLength < int64(most) {
		return int(r.ContentLength)
	}
	return most
}

// body reads the request within its size and time bounds. Otherwise it answers with an error and returns
// false.
func (s *Server) body(a *response.Writer, r *http.Request, most int) ([]byte, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(a, r.Body, int64(most)))
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		a.SetReadDeadline(time.Time{})
		return body, true
	case errors.As(err, &tooLarge):
		s.respond(a, r, http.StatusRequestEntityTooLarge, connect.CodeResourceExhausted, problem{
			Message: fmt.Sprintf("the body has more than %d bytes", most),
		})
	default:
		s.warnings.Warn("closed a connection whose request did not arrive", "remote", r.RemoteAddr, "path", r.URL.Path, "reason", err)
		a.Header().Set("Connection", "close")
		r.Body = http.NoBody // it has had its time
		s.respond(a, r, http.StatusRequestTimeout, connect.CodeDeadlineExceeded, problem{
			Message: fmt.Sprintf("the body did not arrive within %v", s.cfg.Limits.BodyTimeout),
		})
	}
	return nil, false
}

// recoverPanic turns a panic of a handler into an error response and a log message.
func (s *Server) recoverPanic(a *response.Writer, r *http.Request) {
	reason := recover()
	if reason == nil {
		return
	}
	if reason == http.ErrAbortHandler {
		panic(reason) // net/http's way to cut a connection
	}
	s.log.Error("a handler panicked", "path", r.URL.Path, "panic", reason, "stack", string(debug.Stack()))
	if a.Code != 0 {
		panic(http.ErrAbortHandler)
	}
	a.Forward = false
	s.respond(a, r, http.StatusInternalServerError, connect.CodeInternal, problem{
		Message: "internal error: see the node's log",
	})
}

// refuse answers a caller that is not known, or that has no role. The connection of another node has other callers.
func (s *Server) refuse(a *response.Writer, r *http.Request, err error) {
	if !listener.Of(r.Context()).FromNode() {
		a.Header().Set("Connection", "close")
	}
	if errors.Is(err, access.ErrNoRole) {
		s.respond(a, r, http.StatusForbidden, connect.CodePermissionDenied, problem{Message: err.Error()})
		return
	}
	a.Header().Set("WWW-Authenticate", "Bearer")
	s.respond(a, r, http.StatusUnauthorized, connect.CodeUnauthenticated, problem{Message: err.Error()})
}

// notFound answers an unknown path with a list of the existing ones.
func (s *Server) notFound(a *response.Writer, r *http.Request) {
	s.respond(a, r, http.StatusNotFound, connect.CodeUnimplemented, problem{
		Message:    fmt.Sprintf("there is no %s here: POST to one of the procedures, or GET /openapi.json, which describes them, /healthz, /readyz or /metrics", r.URL.Path),
		Procedures: procedures,
	})
}
