package framed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/server/fairqueue"
	"github.com/quorumlock/quorumlock/server/read"
	"github.com/quorumlock/quorumlock/server/tunnel"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/handshake"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// responseRoom is what a response takes beside the page that it carries.
	responseRoom = 1 << 10

	goElsewhere = "the node shuts down: go on with another one"
)

var errCut = errors.New("cut in its handshake: too many others came after it (--max-handshakes)")

// Server is the framed port of one node.
type Server struct {
	cfg Config
	// refusals are of connections that are not established, endings of those that were: a crowd
	// of strangers hides nothing of clients.
	refusals, endings *complaints
	metrics           *metrics
	reader            *read.Reader
	queues            *fairqueue.Queues

	handshakes   *handshake.Limiter
	places       chan struct{} // one element per established connection
	leaseWaits   chan struct{} // one element per acquire of a lease under way
	wg           sync.WaitGroup
	ctx          context.Context // ends handshakes
	cancel       context.CancelFunc
	stopHint     func() // ends the subscription to leadership
	flusher      *flusher
	stopFlushing func()        // ends the subscription to entries
	relay        *tunnel.Relay // nil without tunnels
	stopTunnels  func()        // ends the subscription to tunnels

	hints sync.Mutex // orders what a connection is told of leadership

	mu      sync.Mutex // guards what follows
	conns   map[*conn]struct{}
	raw     map[net.Conn]struct{} // every connection, from accept to close
	closing bool
}

// Serve accepts connections on cfg.Listener until Close.
func Serve(cfg Config) (*Server, error) {
	if cfg.Listener == nil || cfg.Replica == nil {
		return nil, errors.New("framed: a Listener and a Replica are needed")
	}
	cfg.Limits = cfg.Limits.WithDefaults()
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.ClusterID == nil {
		cfg.ClusterID = func() string { return "" }
	}
	s := &Server{
		cfg:         cfg,
		refusals:    newComplaints(cfg.Logger, time.Now),
		endings:     newComplaints(cfg.Logger, time.Now),
		reader:      read.New(cfg.Replica, cfg.Limits.MaxFrameBytes-responseRoom),
		places:      make(chan struct{}, cfg.Limits.MaxConnections),
		handshakes:  handshake.New(handshake.Config{Max: cfg.Limits.MaxHandshakes}),
		leaseWaits:  make(chan struct{}, cfg.Limits.MaxLeaseWaits),
		conns:       map[*conn]struct{}{},
		raw:         map[net.Conn]struct{}{},
		stopTunnels: func() {},
	}
	var err error
	if s.metrics, err = newMetrics(s, cfg.Registry); err != nil {
		return nil, fmt.Errorf("framed: metrics: %w", err)
	}
	if s.relay, err = newRelay(cfg); err != nil {
		return nil, err
	}
	if s.queues = cfg.Queues; s.queues == nil {
		s.queues = fairqueue.NewQueues()
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.flusher = startFlusher()
	s.stopFlushing = cfg.Replica.OnAnswered(s.flusher.flush)
	s.stopHint = cfg.Replica.OnLeader(s.leaderMoved)
	s.wg.Go(s.accept)
	if cfg.Tunnels != nil {
		s.stopTunnels = cfg.Tunnels.OnTunnel(s.admitArrived)
	}
	return s, nil
}

// Addr is where the port listens.
func (s *Server) Addr() net.Addr { return s.cfg.Listener.Addr() }

// Connections returns the number of established connections.
func (s *Server) Connections() int { return len(s.places) }

// Close takes no more connections, answers what is under way, tells every client that
// the node shuts down, and waits. When ctx ends first, the rest is cut off; that is no
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
		s.leaderMoved(s.cfg.Replica.Leader()) // where to go, before the goodbye
		s.relay.Close()
		for _, c := range s.connections() {
			c.end(wire.Goodbye_SHUTDOWN, goElsewhere)
		}
	}
	stop := context.AfterFunc(ctx, s.cutAll)
	s.wg.Wait()
	stop()
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

func (s *Server) accept() {
	const longest = time.Second
	wait := 5 * time.Millisecond
	for {
		raw, err := s.cfg.Listener.Accept()
		switch {
		case err == nil:
			wait = 5 * time.Millisecond
			s.admit(raw)
		case s.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		default: // out of descriptors, most likely: others will close theirs
			s.refusals.warn("cannot accept connections", "error", err)
			select {
			case <-time.After(wait):
			case <-s.ctx.Done():
				return
			}
			wait = min(2*wait, longest)
		}
	}
}

// admit begins a connection's handshake. Those that are not established yet take no places.
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

// track has Close wait for what serves a connection. It returns false if that has begun.
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

// link is the connection with TLS, unless there is none. What comes through a tunnel has its TLS
// between the client and the other node, and between the nodes.
func (s *Server) link(raw net.Conn, place *handshake.Handshake) *link {
	if _, through := raw.(*tunnel.Arrived); through || s.cfg.TLS == nil {
		return newLink(raw, s.cfg.Limits)
	}
	l := newLink(place.Server(s.cfg.TLS), s.cfg.Limits)
	l.secure = place.Secure
	return l
}

// serve is the life of one connection.
func (s *Server) serve(raw net.Conn, place *handshake.Handshake) {
	l := s.link(raw, place)
	g, err := s.handshake(l, place)
	if err != nil {
		if place.WasCut() {
			err = errCut
		}
		s.handshakeFailed(l, err)
		return
	}
	defer func() { <-s.places }()
	if l.tunnel != nil {
		s.carry(l, g.frames)
		return
	}
	c := newConn(s, l, g.frames, g.hello.GetAgent())
	c.told = g.hint
	defer c.memory.Close()
	if !s.register(c) {
		c.end(wire.Goodbye_SHUTDOWN, goElsewhere)
	}
	if c.noMemory != nil {
		c.end(wire.Goodbye_RESOURCE_EXHAUSTED, c.noMemory.Error())
	}
	c.serve()
	s.unregister(c)
}

// greeted is what a handshake has brought.
type greeted struct {
	hello  *wire.Hello
	frames *transport.FrameReader
	hint   *wire.LeaderHint // what the client was told
}

// handshake establishes a connection, which has one of the places then, and perhaps a tunnel.
func (s *Server) handshake(l *link, half *handshake.Handshake) (*greeted, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Limits.HandshakeTimeout)
	defer cancel()
	var hint *wire.LeaderHint
	placed := false
	hello, frames, err := transport.ServerHandshake(ctx, l, func(hello *wire.Hello) (*wire.HelloReply, *wire.Goodbye) {
		select {
		case s.places <- struct{}{}:
			placed = true
			half.End() // before the client hears that it is established
		default:
			return nil, &wire.Goodbye{Code: wire.Goodbye_TOO_MANY_CONNECTIONS,
				Message: fmt.Sprintf("this node has its %d connections (--max-connections)", s.cfg.Limits.MaxConnections)}
		}
		answer := s.openTunnel(ctx, l, hello)
		hint = s.cfg.Replica.Leader() // it may have moved meanwhile
		return &wire.HelloReply{
			ClusterId:     s.cfg.ClusterID(),
			NodeId:        s.cfg.NodeID,
			Leader:        hint,
			MaxFrameBytes: uint32(s.cfg.Limits.MaxFrameBytes),
			MaxInFlight:   uint32(s.cfg.Limits.MaxInFlight),
			Tunnel:        answer,
		}, nil
	})
	if err != nil {
		if l.tunnel != nil {
			l.tunnel.Discard()
		}
		if placed {
			<-s.places
		}
		return nil, err
	}
	return &greeted{hello, frames, hint}, nil
}

// handshakeFailed says why, to the log and to who may be able to read it.
func (s *Server) handshakeFailed(l *link, err error) {
	if s.ctx.Err() != nil {
		transport.Refuse(l, wire.Goodbye_SHUTDOWN, goElsewhere, hangupTimeout)
		return
	}
	s.metrics.refused.Inc()
	s.refusals.warn("connection refused", "remote", l.RemoteAddr().String(), "reason", err)
	if _, told := errors.AsType[*transport.GoodbyeError](err); told {
		transport.Hangup(l, hangupTimeout)
	} else if errors.Is(err, transport.ErrPreface) {
		transport.Refuse(l, wire.Goodbye_PROTOCOL_ERROR, err.Error(), hangupTimeout)
	} else {
		transport.Cut(l)
	}
}

// register has the connection told of leadership, also of what happened between its hello
// and now. It returns false if the server closes.
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

// noteEnd logs why a connection ended: what is the client's fault as a complaint.
func (s *Server) noteEnd(c *conn, code wire.Goodbye_Code, reason string) {
	s.metrics.ended.WithLabelValues(code.String()).Inc()
	args := []any{"remote", c.remote, "agent", c.agent, "code", code.String(), "reason", reason}
	switch code {
	case wire.Goodbye_UNSPECIFIED, wire.Goodbye_SHUTDOWN, wire.Goodbye_IDLE:
		s.cfg.Logger.Debug("connection ended", args...)
	default:
		s.endings.warn("connection ended", args...)
	}
}
