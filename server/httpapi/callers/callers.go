package callers

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/httpapi/forward"
	"github.com/quorumlock/quorumlock/server/httpapi/listener"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/transport/wire"
)

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
			c.cfg.Denials.RefusedAddress(r.RemoteAddr, err)
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

// Connect counts the connection of a caller until it is closed. It returns a refusal if the caller's identity has its
// connections. Call it before the connection is established, so that a refused one takes no place of others. What other
// nodes forward, they have counted themselves.
func (c *Callers) Connect(ctx context.Context, caller *access.Caller) (refused *wire.Result) {
	conn := listener.Of(ctx)
	if conn.FromNode() {
		return nil
	}
	conn.Count(caller.Identity(), func(first bool) (leave func()) {
		account := c.cfg.Quotas.Open(caller.Identity())
		defer account.Close()
		port := c.cfg.Connections
		if !first {
			port = nil // the connection has a place already
		}
		leave, refused = account.Connect(port)
		return leave
	})
	return refused
}

// count opens the account of a caller and counts its request until leave is called. Another node has already counted what
// it forwards towards the quotas, for which account is nil, but not towards the places of this node.
func (c *Callers) count(ctx context.Context, caller *access.Caller, places *quota.Pool) (account *quota.Account, leave func(), refused *wire.Result) {
	opened := c.cfg.Quotas.Open(caller.Identity())
	if !listener.Of(ctx).FromNode() {
		account = opened
	}
	free := func() {}
	if places != nil {
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
	refused := quota.Of(ctx).Request(message, caller.Check(message))
	if refused == nil {
		return nil
	}
	caller.Denied(message, refused)
	return apierror.FromResult(refused)
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
