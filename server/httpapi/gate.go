package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// gate is the entry point of the port. Every request is counted here, and panics are recovered.
func (s *Server) gate(w http.ResponseWriter, r *http.Request) {
	s.handlers.Add(1)
	defer s.handlers.Done()
	c := &call{}
	route, known := s.routes[routeOf(r.URL.Path)]
	seat := s.connections.request(r, route.open)
	a := newAnswer(w, max(s.cfg.Limits.WriteTimeout, route.writeTimeout), c)
	a.memory = memoryOf(r.Context())
	defer s.metrics.count(route.name, a, time.Now())
	defer s.caught(a, r)
	defer c.endTurn()
	defer a.keep(0)
	if seat != placed {
		a.Header().Set("Connection", "close")
	}
	if seat == unseated {
		s.connections.turnAway(r)
		s.say(a, r, http.StatusServiceUnavailable, connect.CodeResourceExhausted, problem{
			Message: "max_connections: too many connections to this node",
		})
		return
	}
	if r.ContentLength != 0 {
		// Also for a body that no handler reads: net/http would wait for it in the end.
		_ = a.control.SetReadDeadline(time.Now().Add(s.cfg.Limits.BodyTimeout))
	}
	if !known {
		s.nothingHere(a, r)
		return
	}
	if !route.open && !s.certified(r) {
		s.say(a, r, http.StatusUnauthorized, connect.CodeUnauthenticated, problem{
			Message: "this port takes only callers with a certificate of its CA: show one (curl --cert FILE --key FILE)",
		})
		return
	}
	if r.Method != route.method && (r.Method != http.MethodHead || route.method != http.MethodGet) {
		a.Header().Set("Allow", route.method)
		s.say(a, r, http.StatusMethodNotAllowed, connect.CodeUnimplemented, problem{
			Message: fmt.Sprintf("%s is asked for with %s, not with %s", r.URL.Path, route.method, r.Method),
		})
		return
	}
	if route.method == http.MethodPost && !spoken(r, route) {
		a.Header().Set("Accept-Post", "application/json, application/proto, application/grpc, application/grpc-web")
		s.say(a, r, http.StatusUnsupportedMediaType, connect.CodeInvalidArgument, problem{
			Message: fmt.Sprintf("Content-Type %q is not spoken here: send JSON with -H 'Content-Type: application/json'", r.Header.Get("Content-Type")),
		})
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	if route.streams {
		route.handler.ServeHTTP(a, r)
		return
	}
	s.unary(a, r, route)
}

// unary serves a request of one message. It reads the request completely before anything is done, so that it
// can be forwarded to the leader at any later time.
func (s *Server) unary(a *answer, r *http.Request, route route) {
	leave, ok := s.enterRequest(connectionOf(r.Context()), route)
	if !ok {
		s.say(a, r, http.StatusTooManyRequests, connect.CodeResourceExhausted, problem{
			Message: "max_requests: too many requests are under way on this node, or this connection has as many of them as all others may still have",
		})
		return
	}
	defer leave()
	most := max(s.cfg.Limits.MaxBodyBytes, route.maxBody)
	takes := requestBytes + bodyFactor*bodyBytes(r, most)
	if err := a.memory.Reserve(takes); err != nil {
		s.say(a, r, http.StatusTooManyRequests, connect.CodeResourceExhausted, problem{Message: err.Error()})
		return
	}
	defer a.memory.Release(takes)
	body, ok := s.body(a, r, most)
	if !ok {
		return
	}
	rewind(r, body)
	route.handler.ServeHTTP(a, r)
	a.call.endTurn()
	if a.call.elsewhere {
		s.leader.carry(a, r, body, route)
	}
	if err := a.call.exhausted; err != nil {
		s.exhausted(a, r, err)
	}
}

// operatorsShare is the divisor that gives the part of MaxRequests reserved for operators.
const operatorsShare = 16

// enterRequest takes a place among the requests in flight. A connection may have as many places as are still
// free, so that busy connections leave places for others. Health requests are bounded by the connections
// instead.
func (s *Server) enterRequest(conn *watched, route route) (leave func(), ok bool) {
	if route.open {
		return func() {}, true
	}
	most := int64(s.cfg.Limits.MaxRequests)
	if !route.operators {
		most -= most / operatorsShare
	}
	taken := conn.addRequests(1)
	if free := most - s.metrics.underWay.Add(1) + 1; free <= 0 || taken > free {
		s.leaveRequest(conn)
		return nil, false
	}
	return func() { s.leaveRequest(conn) }, true
}

func (s *Server) leaveRequest(conn *watched) {
	conn.addRequests(-1)
	s.metrics.underWay.Add(-1)
}

// exhausted rejects an answer that the node has no memory for.
func (s *Server) exhausted(a *answer, r *http.Request, err error) {
	clear(a.Header())
	a.call.exhausted, a.call.outcome = nil, wire.Status_RESOURCE_EXHAUSTED.String()
	_ = s.errors.Write(a, r, failure(wire.Status_RESOURCE_EXHAUSTED, err.Error()))
}

// bodyBytes returns the upper bound of a body's size: its declared length, or most if that is missing or
// larger.
func bodyBytes(r *http.Request, most int) int {
	if r.ContentLength >= 0 && r.ContentLength < int64(most) {
		return int(r.ContentLength)
	}
	return most
}

// rewind sets the request's body to be read from the start.
func rewind(r *http.Request, body []byte) {
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
}

// body reads the request within its size and time bounds. Otherwise it answers with an error and returns
// false.
func (s *Server) body(a *answer, r *http.Request, most int) ([]byte, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(a, r.Body, int64(most)))
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		_ = a.control.SetReadDeadline(time.Time{})
		return body, true
	case errors.As(err, &tooLarge):
		s.say(a, r, http.StatusRequestEntityTooLarge, connect.CodeResourceExhausted, problem{
			Message: fmt.Sprintf("the body has more than %d bytes", most),
		})
	default:
		s.connections.warnings.Warn("closed a connection whose request did not arrive", "peer", r.RemoteAddr, "path", r.URL.Path, "reason", err)
		a.Header().Set("Connection", "close")
		s.say(a, r, http.StatusRequestTimeout, connect.CodeDeadlineExceeded, problem{
			Message: fmt.Sprintf("the body did not arrive within %v", s.cfg.Limits.BodyTimeout),
		})
	}
	return nil, false
}

// caught turns a panic of a handler into an error response and a log message.
func (s *Server) caught(a *answer, r *http.Request) {
	reason := recover()
	if reason == nil {
		return
	}
	if reason == http.ErrAbortHandler {
		panic(reason) // net/http's way to cut a connection
	}
	s.log.Error("a handler panicked", "path", r.URL.Path, "panic", reason, "stack", string(debug.Stack()))
	if a.status != 0 {
		panic(http.ErrAbortHandler)
	}
	a.call.elsewhere = false
	s.say(a, r, http.StatusInternalServerError, connect.CodeInternal, problem{
		Message: "this failed inside the node; its log says more",
	})
}

// certified reports whether the caller presented the required certificate.
func (s *Server) certified(r *http.Request) bool {
	return s.cfg.ClientAuth != AuthRequire || (r.TLS != nil && len(r.TLS.VerifiedChains) > 0)
}

// nothingHere answers an unknown path with a list of the existing ones.
func (s *Server) nothingHere(a *answer, r *http.Request) {
	s.say(a, r, http.StatusNotFound, connect.CodeUnimplemented, problem{
		Message:    fmt.Sprintf("there is no %s here: POST to one of the procedures, or GET /healthz, /readyz or /metrics", r.URL.Path),
		Procedures: procedures,
	})
}

// mediaTypes are the media types that connect's handlers accept.
var mediaTypes = map[string]bool{
	"application/json":           true,
	"application/proto":          true,
	"application/grpc":           true,
	"application/grpc+proto":     true,
	"application/grpc+json":      true,
	"application/grpc-web":       true,
	"application/grpc-web+proto": true,
	"application/grpc-web+json":  true,
}

func spoken(r *http.Request, route route) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return false
	}
	return mediaTypes[kind] || (route.streams || route.answers) && strings.HasPrefix(kind, "application/connect+")
}

func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}
