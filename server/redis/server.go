package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/server/internal/callers"
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/server/redis/keyname"
	"github.com/quorumlock/quorumlock/server/redis/metrics"
	"github.com/quorumlock/quorumlock/server/redis/script"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/handshake"
)

// drainTimeout bounds how long Close waits for the commands that are running.
const drainTimeout = time.Second

// Server is the Redis port of a node.
type Server struct {
	cfg     Config
	names   keyname.Names
	scripts *script.Cache
	metrics *metrics.Metrics
	// refusals logs connections that are lost before a command of a verified caller, and endings the others, so that a
	// flood of unknown clients does not hide the problems of established ones.
	refusals, endings *ratelog.Logger

	handshakes *handshake.Limiter
	places     chan struct{} // one element per established connection
	share      *quota.Pool   // the same places, for the shares of identities
	waits      *quota.Pool   // the waits of QL.LOCK
	callers    *callers.Connections
	started    time.Time
	ids        atomic.Uint64 // the id of the latest connection

	wg     sync.WaitGroup
	ctx    context.Context // its end cancels what runs
	cancel context.CancelFunc

	mu      sync.Mutex // guards the fields below
	conns   map[*conn]struct{}
	closing bool
}

// Serve starts accepting connections on cfg.Listener. Close stops it.
func Serve(cfg Config) (*Server, error) {
	if cfg.Listener == nil || cfg.Service == nil || cfg.Source == nil {
		return nil, errors.New("redis: a Listener, a Service and a Source are needed")
	}
	names, err := keyname.New(cfg.Prefix)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	cfg.Limits = cfg.Limits.WithDefaults()
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.ClusterID == nil {
		cfg.ClusterID = func() string { return "" }
	}
	s := &Server{
		cfg:        cfg,
		names:      names,
		scripts:    script.NewCache(),
		refusals:   ratelog.New(cfg.Logger),
		endings:    ratelog.New(cfg.Logger),
		handshakes: handshake.New(handshake.Config{Max: cfg.Limits.MaxHandshakes}),
		places:     make(chan struct{}, cfg.Limits.MaxConnections),
		share:      cfg.Quotas.Pool("max_connections", cfg.Limits.MaxConnections),
		waits:      cfg.Quotas.Pool("waits of QL.LOCK", cfg.Limits.MaxWaits),
		callers: callers.New(callers.Config{
			Source: cfg.Source, Cluster: cfg.CertifiedCluster, RequireIdentity: cfg.RequireIdentity,
			Certificates: cfg.Certificates, Denials: cfg.Denials,
		}),
		started: time.Now(),
		conns:   map[*conn]struct{}{},
	}
	if s.metrics, err = metrics.New(cfg.Registry, s.Connections, s.handshakes.Len); err != nil {
		return nil, fmt.Errorf("redis: metrics: %w", err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(func() { transport.Accept(s.ctx, cfg.Listener, s.admit, s.acceptFailed) })
	s.wg.Go(func() { s.callers.Run(s.ctx) })
	return s, nil
}

// Addr returns the address of the listener.
func (s *Server) Addr() net.Addr { return s.cfg.Listener.Addr() }

// Connections returns the number of established connections.
func (s *Server) Connections() int { return len(s.places) }

// Close stops accepting connections, waits for the commands that are running, at most until ctx ends, and closes all
// connections.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	for c := range s.conns {
		c.finish()
	}
	s.mu.Unlock()
	_ = s.cfg.Listener.Close()
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, s.cutAll)
	defer stop()
	for _, c := range s.connections() {
		<-c.done
	}
	s.cancel()
	s.wg.Wait()
	return nil
}

func (s *Server) cutAll() {
	s.cancel()
	for _, c := range s.connections() {
		transport.Cut(c.raw)
	}
}

func (s *Server) connections() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}

func (s *Server) acceptFailed(err error) { s.refusals.Warn("cannot accept connections", "error", err) }

// admit starts to serve a connection. It takes no place before it is established.
func (s *Server) admit(raw net.Conn) {
	place := s.handshakes.Begin(raw)
	c := newConn(s, raw, place)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		place.End()
		transport.Cut(raw)
		return
	}
	s.conns[c] = struct{}{}
	s.wg.Go(func() {
		defer s.remove(c)
		c.serve()
	})
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	close(c.done)
}

// secure completes the TLS handshake of a connection, if there is one, within HandshakeTimeout.
func (s *Server) secure(c *conn) error {
	if s.cfg.TLS == nil {
		return nil
	}
	ctx, cancel := context.WithDeadline(s.ctx, c.established)
	defer cancel()
	secured := c.place.Server(s.cfg.TLS)
	c.Conn = secured
	err := c.place.Secure(ctx, secured)
	if errors.Is(err, transport.ErrRevoked) {
		s.cfg.Denials.RefusedAddress(c.remote, err)
	}
	return err
}
