package callers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// errNoCredential is the error for a client without a certificate on a port that requires one.
var errNoCredential = errors.New("this port requires a client certificate of its CA, or a token")

// recheckInterval is how often callers are checked again. A revoked caller is gone after it at the latest.
const recheckInterval = 250 * time.Millisecond

// Config configures Connections.
type Config struct {
	// Source is the node's applied state.
	Source access.Source
	// Cluster is the cluster that client certificates must name; empty if they may name any.
	Cluster string
	// RequireIdentity refuses callers without a certificate and without a token.
	RequireIdentity bool
	// Certificates know which certificates are revoked; nil without TLS.
	Certificates *transport.Credentials
	// Denials gets the refusals of callers and of their requests; nil discards them.
	Denials access.Denials
}

// Connections are the connections of a port. It is safe for concurrent use.
type Connections struct {
	cfg Config

	mu  sync.Mutex
	all map[*Connection]struct{} // guarded by mu
}

// New returns Connections without any.
func New(cfg Config) *Connections {
	return &Connections{cfg: cfg, all: map[*Connection]struct{}{}}
}

// Authenticate returns the caller of a connection that presents a token, which may be empty. origin is set if another
// node has verified the caller. It returns access.ErrNoRole, or another error if the caller is not authenticated.
func (c *Connections) Authenticate(conn net.Conn, token string, origin *wire.Caller) (*access.Caller, error) {
	presented := access.Presented{Token: token, Address: conn.RemoteAddr().String(), Denials: c.cfg.Denials, Origin: origin}
	if secured, ok := conn.(*tls.Conn); ok {
		presented.Secure = true
		if state := secured.ConnectionState(); len(state.VerifiedChains) > 0 {
			presented.Certificate = state.PeerCertificates[0]
		}
	} else {
		presented.Secure = access.IsLoopback(presented.Address)
	}
	if c.cfg.RequireIdentity && presented.Certificate == nil && token == "" && origin == nil {
		c.cfg.Denials.Refused(&wire.Caller{Address: presented.Address}, errNoCredential)
		return nil, errNoCredential
	}
	return access.Authenticate(c.cfg.Source, c.cfg.Cluster, presented)
}

// Connection is a connection with its caller.
type Connection struct {
	// Caller is the caller.
	Caller *access.Caller
	// Conn is the connection, a *tls.Conn with TLS.
	Conn net.Conn
	// End ends the connection because its caller may not stay. It must not block.
	End func(err error)

	once sync.Once
}

// dismiss ends the connection because of err, and reports it.
func (c *Connection) dismiss(err error) {
	c.once.Do(func() { c.Caller.Dismissed(err) })
	c.End(err)
}

// certificates returns what the client presented in its TLS handshake.
func (c *Connection) certificates() []*x509.Certificate {
	if conn, ok := c.Conn.(*tls.Conn); ok {
		return conn.ConnectionState().PeerCertificates
	}
	return nil
}

// Add registers a connection until remove is called. The certificate may have been revoked since its handshake.
func (c *Connections) Add(one *Connection) (remove func()) {
	c.mu.Lock()
	c.all[one] = struct{}{}
	c.mu.Unlock()
	c.verify(one)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.all, one)
	}
}

func (c *Connections) list() []*Connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*Connection, 0, len(c.all))
	for one := range c.all {
		list = append(list, one)
	}
	return list
}

// verify ends a connection whose certificate is revoked.
func (c *Connections) verify(one *Connection) {
	if c.cfg.Certificates == nil {
		return
	}
	if err := c.cfg.Certificates.Verify(one.certificates()); err != nil {
		one.dismiss(err)
	}
}

// Run ends the connections of callers that may not stay, until ctx ends.
func (c *Connections) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	if c.cfg.Certificates != nil {
		running.Go(func() {
			c.cfg.Certificates.Watch(ctx, func() {
				for _, one := range c.list() {
					c.verify(one)
				}
			})
		})
	}
	tick := time.NewTicker(recheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			c.recheck(now)
		}
	}
}

func (c *Connections) recheck(now time.Time) {
	for _, one := range c.list() {
		if err := one.Caller.Recheck(now); err != nil {
			one.dismiss(err)
		}
	}
}
