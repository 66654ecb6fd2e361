package web

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

	"github.com/quorumlock/quorumlock/server/fairqueue"
	"github.com/quorumlock/quorumlock/server/health"
	"github.com/quorumlock/quorumlock/server/read"
	"github.com/quorumlock/quorumlock/transport"
)

// maxAnswerBytes bounds the answer to a read, before it is encoded. Longer ones come in pages.
const maxAnswerBytes = 1 << 20

// smallAnswer is more than an answer about one hold or about the cluster takes.
const smallAnswer = 64 << 10

// Server is the HTTP port of one node.
type Server struct {
	cfg     Config
	log     hclog.Logger
	replica Replica
	reader  *read.Reader
	visits  *visits
	health  *health.Probe
	queues  *fairqueue.Queues
	metrics *metrics
	watcher *watcher
	errors  *connect.ErrorWriter
	routes  map[string]route
	leader  *passage
	tls     *tls.Config
	http    *http.Server

	// life ends with stop, when the server begins to close.
	life     context.Context
	stop     context.CancelFunc
	mu       sync.Mutex     // orders begin and Close
	serving  sync.WaitGroup // of Serve
	handlers sync.WaitGroup // of requests
}

// New makes a server; it listens once [Server.Serve] is called. Its errors are
// [ErrConfig] and transport.ErrTLSFiles.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg:     cfg,
		log:     cfg.Logger,
		replica: cfg.Replica,
		reader:  read.New(cfg.Replica, maxAnswerBytes),
		metrics: newMetrics(cfg.Registry),
		errors:  connect.NewErrorWriter(),
	}
	s.life, s.stop = context.WithCancel(context.Background())
	s.visits = newVisits(cfg.Limits.RetryGrace, s.cancelAbandoned)
	s.watcher = newWatcher(s.log, cfg.Limits, s.metrics, cfg.TLS.IsZero(), cfg.Buffers)
	s.health = &health.Probe{NodeID: cfg.NodeID, Replica: cfg.Replica, Closing: s.isClosing}
	s.metrics.observe(cfg.Registry, s.watcher.handshakes)
	s.routes = s.newRoutes()
	if err := s.secure(); err != nil {
		return nil, err
	}
	s.http = s.newHTTP()
	if s.queues = cfg.Queues; s.queues == nil {
		s.queues = fairqueue.NewQueues()
	}
	return s, nil
}

// secure prepares both directions of TLS. Even where certificates are required, the
// handshake lets callers without one in: the health paths are theirs, and the gate
// refuses the rest in words.
func (s *Server) secure() error {
	var toLeader *tls.Config
	if !s.cfg.TLS.IsZero() {
		ask := tls.NoClientCert
		if s.cfg.ClientAuth != AuthNone {
			ask = tls.VerifyClientCertIfGiven
		}
		var err error
		report := transport.OnReload(func(err error) {
			if err != nil {
				s.log.Error("cannot use the changed certificates", "error", err)
				return
			}
			s.log.Info("using the changed certificates")
		})
		if s.tls, err = s.cfg.TLS.ServerConfig(ask, report); err != nil {
			return fmt.Errorf("http port: %w", err)
		}
		if toLeader, err = s.cfg.TLS.ClientConfig(); err != nil {
			return fmt.Errorf("http port: %w", err)
		}
		s.tls.NextProtos = []string{"h2", "http/1.1"}
		toLeader.NextProtos = []string{"h2", "http/1.1"}
	}
	s.leader = newPassage(s, toLeader)
	return nil
}

func (s *Server) newHTTP() *http.Server {
	limits := s.cfg.Limits
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(s.tls != nil)
	protocols.SetUnencryptedHTTP2(s.tls == nil)
	return &http.Server{
		Handler:           http.HandlerFunc(s.gate),
		TLSConfig:         s.tls.Clone(), // net/http changes it
		Protocols:         &protocols,
		ReadHeaderTimeout: limits.HeaderTimeout,
		// No IdleTimeout, which watcher.state sees to: where a connection ends amid its requests,
		// net/http's HTTP/2 starts that timer again, and keeps all that the connection had for
		// as long.
		MaxHeaderBytes: limits.MaxHeaderBytes,
		ErrorLog:       log.New(s.watcher.complaints, "", 0),
		ConnState:      s.watcher.state,
		ConnContext:    s.watcher.context,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250,
			// A caller that is gone without a word must not keep its waits.
			SendPingTimeout:  15 * time.Second,
			PingTimeout:      15 * time.Second,
			WriteByteTimeout: limits.WriteTimeout,
		},
	}
}

// Serve accepts on l, which it closes in the end, until [Server.Close], then returns
// nil, as it does at once after a Close. It may be called once.
func (s *Server) Serve(l net.Listener) error {
	if !s.begin() {
		return l.Close()
	}
	defer s.serving.Done()
	err := s.http.Serve(s.watcher.listen(s.life, l, s.tls))
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http port: %w", err)
	}
	return nil
}

// begin counts a Serve in, unless Close was first and does not wait for it any more.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosing() {
		return false
	}
	s.serving.Add(1)
	return true
}

// Close takes no new requests, tells those that wait to go elsewhere, cancels what
// was abandoned, and returns when all of that has ended. If ctx is done before, the
// connections are cut off first. The replica must still run.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = fmt.Errorf("http port: requests were cut off: %w", err)
	}
	s.serving.Wait()
	_ = s.http.Close()
	s.handlers.Wait()
	s.visits.close()
	s.leader.close()
	s.watcher.wait()
	if s.cfg.Queues == nil {
		s.queues.Close()
	}
	return err
}

func (s *Server) isClosing() bool { return s.life.Err() != nil }
