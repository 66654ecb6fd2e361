package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/internal/callers"
	"github.com/quorumlock/quorumlock/server/internal/fairqueue"
	"github.com/quorumlock/quorumlock/server/internal/lease"
	"github.com/quorumlock/quorumlock/server/internal/quota"
	"github.com/quorumlock/quorumlock/server/internal/read"
	"github.com/quorumlock/quorumlock/server/internal/tunnel"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/handshake"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// responseRoom is the size of a response besides the page it carries, in bytes.
	responseRoom = 1 << 10

	shutdownMessage = "this node is shutting down: use another node"
)

var errCut = errors.New("cut in its handshake: too many others came after it (--max-handshakes)")

// Server is the client port of a node.
type Server struct {
	cfg Config
	// refusals logs failed handshakes, and endings logs connections lost after their handshake. They are
	// separate, so that a flood of unknown clients does not hide the problems of established ones.
	refusals, endings *ratelog.Logger
	metrics           *metrics
	reader            *read.Reader
	queues            *fairqueue.Queues

	handshakes   *handshake.Limiter
	places       chan struct{} // one element per established connection
	leaseWaits   chan struct{} // one element per waiting acquire of a lease
	leases       *lease.Service
	shares       shares
	wg           sync.WaitGroup
	ctx          context.Context // its end cancels handshakes
	cancel       context.CancelFunc
	stopHint     func() // cancels the subscription to leadership changes
	flusher      *flusher
	stopFlushing func()        // cancels the subscription to completed entries
	relay        *tunnel.Relay // nil without tunnels
	stopTunnels  func()        // cancels the subscription to incoming tunnels

	callers *callers.Connections

	hints sync.Mutex // orders the leadership hints sent to each connection

	mu      sync.Mutex // guards the fields below
	conns   map[*conn]struct{}
	raw     map[net.Conn]struct{} // every connection, from accept to close
	closing bool
}

// Serve starts accepting connections on cfg.Listener. Close stops it.
func Serve(cfg Config) (*Server, error) {
	if cfg.Listener == nil || cfg.Replica == nil {
		return nil, errors.New("rpc: a Listener and a Replica are needed")
	}
	cfg.Limits = cfg.Limits.WithDefaults()
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.ClusterID == nil {
		cfg.ClusterID = func() string { return "" }
	}
	if cfg.ClientAddrs == nil {
		cfg.ClientAddrs = func() []string { return nil }
	}
	s := &Server{
		cfg:         cfg,
		refusals:    ratelog.New(cfg.Logger),
		endings:     ratelog.New(cfg.Logger),
		reader:      read.New(cfg.Replica, cfg.Limits.MaxFrameBytes-responseRoom, cfg.Quotas),
		places:      make(chan struct{}, cfg.Limits.MaxConnections),
		handshakes:  handshake.New(handshake.Config{Max: cfg.Limits.MaxHandshakes}),
		leaseWaits:  make(chan struct{}, cfg.Limits.MaxLeaseWaits),
		shares:      newShares(cfg),
		conns:       map[*conn]struct{}{},
		raw:         map[net.Conn]struct{}{},
		stopTunnels: func() {},
		callers: callers.New(callers.Config{
			Source:          cfg.Replica,
			Cluster:         cfg.CertifiedCluster,
			RequireIdentity: cfg.RequireIdentity,
			Certificates:    cfg.Certificates,
			Denials:         cfg.Denials,
		}),
	}
	var err error
	if s.metrics, err = newMetrics(s, cfg.Registry); err != nil {
		return nil, fmt.Errorf("rpc: metrics: %w", err)
	}
	if s.relay, err = newRelay(cfg); err != nil {
		return nil, err
	}
	if s.queues = cfg.Queues; s.queues == nil {
		s.queues = fairqueue.NewQueues()
	}
	if s.leases = cfg.Leases; s.leases == nil {
		s.leases = lease.NewService(cfg.Replica, lease.Grace, cfg.Logger)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.flusher = startFlusher()
	s.stopFlushing = cfg.Replica.OnAnswered(s.flusher.flush)
	s.stopHint = cfg.Replica.OnLeader(s.leaderMoved)
	s.wg.Go(func() { transport.Accept(s.ctx, cfg.Listener, s.admit, s.acceptFailed) })
	s.wg.Go(func() { s.callers.Run(s.ctx) })
	if cfg.Tunnels != nil {
		s.stopTunnels = cfg.Tunnels.OnTunnel(s.admitArrived)
	}
	return s, nil
}

// Addr returns the address of the listener.
func (s *Server) Addr() net.Addr { return s.cfg.Listener.Addr() }

// Connections returns the number of established connections.
func (s *Server) Connections() int { return len(s.places) }

// Close stops accepting connections, answers what is in flight, notifies every client of the shutdown, and
// waits for the connections to end. If ctx ends first, it cuts the remaining connections; that is not an
// error.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	s.mu.Unlock()
	if first {
		_ = s.cfg.Listener.Close()
		s.cancel()
		s.stopHint()
		s.stopTunnels()
		s.leaderMoved(s.cfg.Replica.Leader()) // sent before the goodbye, so that clients know where to go
		s.relay.Close()
		for _, c := range s.connections() {
			c.end(wire.Goodbye_SHUTDOWN, shutdownMessage)
		}
	}
	stop := context.AfterFunc(ctx, s.cutAll)
	s.wg.Wait()
	stop()
	s.leases.Close()
	s.stopFlushing()
	s.flusher.close()
	if s.cfg.Queues == nil {
		s.queues.Close()
	}
	return nil
}

func (s *Server) cutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for raw := range s.raw {
		transport.Cut(raw)
	}
}

func (s *Server) acceptFailed(err error) { s.refusals.Warn("cannot accept connections", "error", err) }

// admit starts a connection's handshake. A connection takes no place before it is established.
func (s *Server) admit(raw net.Conn) {
	place := s.handshakes.Begin(raw)
	if !s.track(raw, func() {
		defer s.untrack(raw)
		defer place.End()
		s.serve(raw, place)
	}) {
		place.End()
		transport.Cut(raw)
	}
}

// track registers a connection and its goroutine, so that Close waits for it. It returns false if Close has
// started.
func (s *Server) track(raw net.Conn, serve func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.raw[raw] = struct{}{}
	s.wg.Go(serve)
	return true
}

func (s *Server) untrack(raw net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.raw, raw)
}

// link wraps the connection, with TLS if configured. A connection from a tunnel gets no TLS here: the
// client's TLS ends at the other node, and the nodes have their own between them.
func (s *Server) link(raw net.Conn, place *handshake.Handshake) *link {
	if _, through := raw.(*tunnel.Arrived); through || s.cfg.TLS == nil {
		return newLink(raw, s.cfg.Limits)
	}
	l := newLink(place.Server(s.cfg.TLS), s.cfg.Limits)
	l.secure = place.Secure
	return l
}

// serve handles a connection from its handshake to its end.
func (s *Server) serve(raw net.Conn, place *handshake.Handshake) {
	l := s.link(raw, place)
	g, err := s.handshake(l, place)
	if err != nil {
		if place.WasCut() {
			err = errCut
		}
		if errors.Is(err, transport.ErrRevoked) {
			s.cfg.Denials.RefusedAddress(l.RemoteAddr().String(), err)
		}
		s.handshakeFailed(l, err)
		return
	}
	defer g.leave()
	if l.tunnel != nil {
		s.carry(l, g.caller, g.frames)
		return
	}
	c := newConn(s, l, g)
	defer s.connected(g.caller, l, c.end)()
	c.told = g.hint
	defer c.memory.Close()
	if !s.register(c) {
		c.end(wire.Goodbye_SHUTDOWN, shutdownMessage)
	}
	if c.noMemory != nil {
		c.end(wire.Goodbye_RESOURCE_EXHAUSTED, c.noMemory.Error())
	}
	c.serve()
	s.unregister(c)
}

// greeted is the outcome of a handshake.
type greeted struct {
	hello  *wire.Hello
	caller *access.Caller
	frames *transport.FrameReader
	hint   *wire.LeaderHint // the hint sent to the client
	quota  *quota.Account
	leave  func() // frees the connection's place, in the server and in the quota
}

// handshake establishes a connection. On success, the connection has a place and, if it asked for one, a
// tunnel.
func (s *Server) handshake(l *link, half *handshake.Handshake) (*greeted, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Limits.HandshakeTimeout)
	defer cancel()
	var hint *wire.LeaderHint
	var caller *access.Caller
	var account *quota.Account
	leave := func() {}
	hello, frames, err := transport.ServerHandshake(ctx, l, func(hello *wire.Hello) (reply *wire.HelloReply, bye *wire.Goodbye) {
		if caller, bye = s.authenticate(l, hello); bye != nil {
			return nil, bye
		}
		if account, leave, bye = s.place(l, caller); bye != nil {
			return nil, bye
		}
		half.End() // before the client hears that it is established
		answer, leaveTunnel := s.openTunnel(ctx, l, caller, account, hello)
		leaveConnection := leave
		leave = func() { leaveTunnel(); leaveConnection() }
		hint = s.cfg.Replica.Leader() // leadership may have moved while the tunnel was opened
		return &wire.HelloReply{
			ClusterId:     s.cfg.ClusterID(),
			NodeId:        s.cfg.NodeID,
			Leader:        hint,
			MaxFrameBytes: uint32(s.cfg.Limits.MaxFrameBytes),
			MaxInFlight:   uint32(s.cfg.Limits.MaxInFlight),
			Tunnel:        answer,
			Identity:      caller.Identity(),
			Members:       s.cfg.ClientAddrs(),
		}, nil
	})
	if err != nil {
		if l.tunnel != nil {
			l.tunnel.Discard()
		}
		leave()
		return nil, err
	}
	return &greeted{hello, caller, frames, hint, account, leave}, nil
}

// shares are the places of this port of which an identity gets no more than are free.
type shares struct{ connections, tunnels, leaseWaits *quota.Pool }

func newShares(cfg Config) shares {
	return shares{
		connections: cfg.Quotas.Pool("max_connections", cfg.Limits.MaxConnections),
		tunnels:     cfg.Quotas.Pool("max_tunnels", cfg.Limits.MaxTunnels),
		leaseWaits:  cfg.Quotas.Pool("max_lease_waits", cfg.Limits.MaxLeaseWaits),
	}
}

// place gives a connection a place, until leave is called. A goodbye refuses it.
func (s *Server) place(l *link, caller *access.Caller) (account *quota.Account, leave func(), bye *wire.Goodbye) {
	select {
	case s.places <- struct{}{}:
	default:
		return nil, func() {}, &wire.Goodbye{Code: wire.Goodbye_TOO_MANY_CONNECTIONS,
			Message: fmt.Sprintf("this node has its %d connections (--max-connections)", s.cfg.Limits.MaxConnections)}
	}
	account = s.cfg.Quotas.Open(caller.Identity())
	disconnect, refused := account.Connect(s.shares.connections)
	if refused != nil {
		account.Close()
		<-s.places
		return nil, func() {}, &wire.Goodbye{Code: wire.Goodbye_TOO_MANY_CONNECTIONS, Message: refused.GetMessage()}
	}
	return account, func() {
		disconnect()
		account.Close()
		<-s.places
	}, nil
}

// handshakeFailed logs the reason and sends it to the client if the client can read it.
func (s *Server) handshakeFailed(l *link, err error) {
	if s.ctx.Err() != nil {
		transport.Refuse(l, wire.Goodbye_SHUTDOWN, shutdownMessage, hangupTimeout)
		return
	}
	s.metrics.refused.Inc()
	s.refusals.Warn("connection refused", "remote", l.RemoteAddr().String(), "reason", err)
	if _, told := errors.AsType[*transport.GoodbyeError](err); told {
		transport.Hangup(l, hangupTimeout)
	} else if errors.Is(err, transport.ErrPreface) {
		transport.Refuse(l, wire.Goodbye_PROTOCOL_ERROR, err.Error(), hangupTimeout)
	} else {
		transport.Cut(l)
	}
}

// register subscribes the connection to leadership changes, including one that happened since its hello. It
// returns false if the server is closing.
func (s *Server) register(c *conn) bool {
	s.hints.Lock()
	defer s.hints.Unlock()
	s.mu.Lock()
	open := !s.closing
	if open {
		s.conns[c] = struct{}{}
	}
	s.mu.Unlock()
	c.leaderMoved(s.cfg.Replica.Leader())
	return open
}

func (s *Server) unregister(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
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

func (s *Server) leaderMoved(hint *wire.LeaderHint) {
	s.relay.LeaderMoved(hint)
	s.hints.Lock()
	defer s.hints.Unlock()
	for _, c := range s.connections() {
		c.leaderMoved(hint)
		if hint.GetId() != s.cfg.NodeID {
			c.endWatches()
		}
	}
}

// noteEnd logs why a connection ended, as a warning if it is the client's fault.
func (s *Server) noteEnd(c *conn, code wire.Goodbye_Code, reason string) {
	s.metrics.ended.WithLabelValues(code.String()).Inc()
	args := []any{"remote", c.remote, "agent", c.agent, "code", code.String(), "reason", reason}
	switch code {
	case wire.Goodbye_UNSPECIFIED, wire.Goodbye_SHUTDOWN, wire.Goodbye_IDLE:
		s.cfg.Logger.Debug("connection ended", args...)
	default:
		s.endings.Warn("connection ended", args...)
	}
}
