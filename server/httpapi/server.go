package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/server/httpapi/callers"
	"github.com/quorumlock/quorumlock/server/httpapi/forward"
	"github.com/quorumlock/quorumlock/server/httpapi/listener"
	"github.com/quorumlock/quorumlock/server/httpapi/response"
	"github.com/quorumlock/quorumlock/server/httpapi/retry"
	"github.com/quorumlock/quorumlock/server/internal/fairqueue"
	"github.com/quorumlock/quorumlock/server/internal/health"
	"github.com/quorumlock/quorumlock/server/internal/lease"
	"github.com/quorumlock/quorumlock/server/internal/pending"
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/server/internal/read"
	"github.com/quorumlock/quorumlock/transport"
)

// maxAnswerBytes bounds the answer to a read before encoding. Longer answers are paginated.
const maxAnswerBytes = 1 << 20

// smallAnswer is an upper bound for an answer about one hold or about the cluster, in bytes.
const smallAnswer = 64 << 10

// Server is the HTTP port of a node.
type Server struct {
	cfg         Config
	log         hclog.Logger
	replica     Replica
	reader      *read.Reader
	pending     *pending.Requests
	leases      *lease.Service
	requests    *retry.Requests
	health      *health.Probe
	queues      *fairqueue.Queues
	metrics     *response.Metrics
	warnings    *ratelog.Logger
	connections *listener.Connections
	places      *quota.Pool // of requests in flight
	drains      *response.Drains
	errors      *connect.ErrorWriter
	routes      map[string]route
	forwarder   *forward.Forwarder
	nodes       *listener.Nodes
	stopNodes   func() // cancels the subscription to connections of other nodes
	callers     *callers.Callers
	tls         *tls.Config
	// certificates are those of the port, and know which of the callers' are revoked; nil without TLS.
	certificates *transport.Credentials
	http         *http.Server

	// life is cancelled by stop when the server starts to close.
	life     context.Context
	stop     context.CancelFunc
	mu       sync.Mutex     // orders begin before Close, or after it
	serving  sync.WaitGroup // running Serve calls
	handlers sync.WaitGroup // running requests
}

// New returns a server, which starts listening when [Server.Serve] is called. It returns [ErrConfig] or
// transport.ErrTLSFiles.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg:     cfg,
		log:     cfg.Logger,
		replica: cfg.Replica,
		reader:  read.New(cfg.Replica, maxAnswerBytes, cfg.Quotas),
		metrics: response.NewMetrics(cfg.Registry),
		drains:  response.NewDrains(),
		errors:  connect.NewErrorWriter(),
	}
	s.life, s.stop = context.WithCancel(context.Background())
	s.requests = retry.New(cfg.Replica, s.propose, s.log)
	s.pending = pending.New(cfg.Limits.RetryGrace, s.requests.Cancel)
	if s.leases = cfg.Leases; s.leases == nil {
		s.leases = lease.NewService(cfg.Replica, cfg.Limits.RetryGrace, s.log)
	}
	s.warnings = ratelog.New(s.log)
	s.connections = s.newConnections()
	s.health = &health.Probe{NodeID: cfg.NodeID, Replica: cfg.Replica, Closing: s.isClosing}
	s.routes = s.newRoutes()
	if err := s.secure(); err != nil {
		return nil, err
	}
	s.callers = s.newCallers()
	s.places = cfg.Quotas.Pool("max_requests", cfg.Limits.MaxRequests)
	s.http = s.newHTTP()
	s.nodes = listener.NewNodes()
	s.stopNodes = cfg.Replica.OnForward(func(conn net.Conn) { go s.nodes.Arrive(conn) })
	if s.queues = cfg.Queues; s.queues == nil {
		s.queues = fairqueue.NewQueues()
	}
	return s, nil
}

func (s *Server) newConnections() *listener.Connections {
	limits := s.cfg.Limits
	return listener.New(listener.Config{
		Warnings: s.warnings, Registry: s.cfg.Registry, Buffers: s.cfg.Buffers, Plain: s.cfg.TLS.IsZero(),
		MaxConnections: limits.MaxConnections, MaxHandshakes: limits.MaxHandshakes,
		HeaderTimeout: limits.HeaderTimeout, IdleTimeout: limits.IdleTimeout, Refused: s.cfg.Denials.RefusedAddress,
	})
}

// secure sets up TLS. Even if client certificates are required, the handshake accepts
// clients without one, because the health paths are open to them. The gate rejects their other requests with
// an error message.
func (s *Server) secure() error {
	if !s.cfg.TLS.IsZero() {
		ask := tls.NoClientCert
		if s.cfg.ClientAuth != AuthNone {
			ask = tls.VerifyClientCertIfGiven
		}
		var err error
		report := transport.OnReload(func(err error) {
			if err != nil {
				s.log.Error("changed certificate files cannot be used: the last good ones stay", "port", "http", "error", err)
				return
			}
			s.log.Info("changed certificate files are in use", "port", "http")
		})
		if s.certificates, err = s.cfg.TLS.Open(report); err == nil {
			s.tls, err = s.certificates.ServerConfig(ask)
		}
		if err != nil {
			return fmt.Errorf("http port: %w", err)
		}
		s.tls.NextProtos = []string{"h2", "http/1.1"}
	}
	s.forwarder = forward.New(forward.Config{
		NodeID: s.cfg.NodeID, Replica: s.cfg.Replica, Wait: s.cfg.Limits.LeaderWait,
		Registry: s.cfg.Registry, Warnings: s.warnings, Errors: s.errors, Dismissal: callers.Dismissal, Life: s.life,
	})
	return nil
}

func (s *Server) newCallers() *callers.Callers {
	cfg := callers.Config{Source: s.replica, Cluster: s.cfg.CertifiedCluster, Require: s.cfg.ClientAuth == AuthRequire, Denials: s.cfg.Denials,
		Quotas: s.cfg.Quotas, Connections: s.cfg.Quotas.Pool("max_connections", s.cfg.Limits.MaxConnections)}
	if s.certificates != nil {
		cfg.Verify = s.certificates.Verify
	}
	return callers.New(cfg)
}

func (s *Server) newHTTP() *http.Server {
	limits := s.cfg.Limits
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(s.tls != nil)
	protocols.SetUnencryptedHTTP2(true) // from other nodes, and from everybody without TLS
	return &http.Server{
		Handler:           http.HandlerFunc(s.gate),
		TLSConfig:         s.tls.Clone(), // a copy, because net/http changes it
		Protocols:         &protocols,
		ReadHeaderTimeout: limits.HeaderTimeout,
		// No IdleTimeout; listener.Connections implements it. When a connection ends during a request, net/http's
		// HTTP/2 restarts that timer and keeps the connection's memory until it fires.
		MaxHeaderBytes: limits.MaxHeaderBytes,
		ErrorLog:       log.New(s.warnings, "", 0),
		ConnState:      s.connections.State,
		ConnContext:    listener.Context,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250,
			// The waits of a client that vanished silently must end.
			SendPingTimeout:  15 * time.Second,
			PingTimeout:      15 * time.Second,
			WriteByteTimeout: limits.WriteTimeout,
		},
	}
}

// Serve accepts connections on l until [Server.Close], closes l and returns nil. After a Close it returns
// immediately. It must be called at most once.
func (s *Server) Serve(l net.Listener) error {
	if !s.begin() {
		return l.Close()
	}
	defer s.serving.Done()
	s.serving.Go(func() { _ = s.http.Serve(s.connections.Listen(s.life, s.nodes, nil)) })
	s.serving.Go(func() { s.callers.Recheck(s.life) })
	if s.certificates != nil {
		s.serving.Go(func() { s.certificates.Watch(s.life, s.callers.VerifyAll) })
	}
	err := s.http.Serve(s.connections.Listen(s.life, l, s.tls))
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http port: %w", err)
	}
	return nil
}

// begin registers a Serve call. It returns false if Close came first and does not wait for Serve.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosing() {
		return false
	}
	s.serving.Add(1)
	return true
}

// Close stops accepting requests, tells waiting callers to use another node, cancels abandoned acquires, and
// returns when all of that has finished. If ctx ends first, it cuts the connections and returns an error. The
// replica must still be running.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.stopNodes()
	_ = s.nodes.Close()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = fmt.Errorf("http port: requests were cut: %w", err)
	}
	s.serving.Wait()
	_ = s.http.Close()
	s.handlers.Wait()
	s.pending.Close()
	s.leases.Close()
	s.forwarder.Close()
	s.connections.Wait()
	if s.cfg.Queues == nil {
		s.queues.Close()
	}
	return err
}

func (s *Server) isClosing() bool { return s.life.Err() != nil }
