package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/tunnel"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// errNoCredential is the error for a client without a certificate on a port that requires one.
var errNoCredential = errors.New("this port requires a client certificate of its CA, or a token")

// recheckInterval is how often callers are checked again. A revoked caller is gone after it at the latest.
const recheckInterval = 250 * time.Millisecond

// authenticate determines who a client is. A goodbye refuses it.
func (s *Server) authenticate(l *link, hello *wire.Hello) (*access.Caller, *wire.Goodbye) {
	presented := access.Presented{Token: hello.GetAuthToken(), Address: l.RemoteAddr().String(), Denials: s.cfg.Denials}
	switch conn := l.Conn.(type) {
	case *tunnel.Arrived:
		presented.Origin = conn.Caller()
	case *tls.Conn:
		presented.Secure = true
		if state := conn.ConnectionState(); len(state.VerifiedChains) > 0 {
			presented.Certificate = state.PeerCertificates[0]
		}
	default:
		presented.Secure = access.IsLoopback(presented.Address)
	}
	if s.cfg.RequireIdentity && presented.Certificate == nil && presented.Token == "" && presented.Origin == nil {
		s.cfg.Denials.Refused(&wire.Caller{Address: presented.Address}, errNoCredential)
		return nil, goodbyeFor(errNoCredential)
	}
	caller, err := access.Authenticate(s.cfg.Replica, s.cfg.CertifiedCluster, presented)
	if err != nil {
		return nil, goodbyeFor(err)
	}
	return caller, nil
}

func goodbyeFor(err error) *wire.Goodbye {
	code := wire.Goodbye_UNAUTHENTICATED
	if errors.Is(err, access.ErrNoRole) {
		code = wire.Goodbye_PERMISSION_DENIED
	}
	return &wire.Goodbye{Code: code, Message: err.Error()}
}

// callers are the connections that have to end when their caller loses its credential or its rights.
type callers struct {
	mu  sync.Mutex
	all map[*connected]struct{}
}

// connected is the connection of one caller.
type connected struct {
	caller *access.Caller
	link   *link
	end    func(code wire.Goodbye_Code, reason string)
	once   sync.Once
}

// dismiss ends the connection because of err, and reports it.
func (c *connected) dismiss(err error) {
	c.once.Do(func() { c.caller.Dismissed(err) })
	bye := goodbyeFor(err)
	c.end(bye.Code, bye.Message)
}

// certificates returns what the client presented in its TLS handshake.
func (c *connected) certificates() []*x509.Certificate {
	if conn, ok := c.link.Conn.(*tls.Conn); ok {
		return conn.ConnectionState().PeerCertificates
	}
	return nil
}

// add registers a connection until remove is called.
func (c *callers) add(one *connected) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[*connected]struct{}{}
	}
	c.all[one] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.all, one)
	}
}

func (c *callers) list() []*connected {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*connected, 0, len(c.all))
	for one := range c.all {
		list = append(list, one)
	}
	return list
}

// connected registers a connection, which has to end when its caller may not stay. The certificate may have been revoked
// since its handshake.
func (s *Server) connected(caller *access.Caller, l *link, end func(wire.Goodbye_Code, string)) (remove func()) {
	one := &connected{caller: caller, link: l, end: end}
	remove = s.callers.add(one)
	s.verify(one)
	return remove
}

// verify ends a connection whose certificate is revoked.
func (s *Server) verify(c *connected) {
	if s.cfg.Certificates == nil {
		return
	}
	if err := s.cfg.Certificates.Verify(c.certificates()); err != nil {
		c.dismiss(err)
	}
}

// verifyAll does so for all connections.
func (s *Server) verifyAll() {
	for _, one := range s.callers.list() {
		s.verify(one)
	}
}

// recheck ends the connections of callers that may not stay, until ctx ends.
func (s *Server) recheck(ctx context.Context) {
	tick := time.NewTicker(recheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, one := range s.callers.list() {
				if err := one.caller.Recheck(now); err != nil {
					one.dismiss(err)
				}
			}
		}
	}
}
