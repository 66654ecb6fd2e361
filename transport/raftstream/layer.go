package raftstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/quorumlock/quorumlock/transport"
	limiter "github.com/quorumlock/quorumlock/transport/handshake"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Version is the highest version of the protocol between nodes that this program speaks.
const Version = 1

// Identity is what a node knows of itself and of the others. All methods are called from
// many goroutines, and all but Vouch must not block.
type Identity interface {
	// ClusterID is empty as long as the node does not know its cluster.
	ClusterID() string
	// Self is this node and the incarnation of its data directory.
	Self() (id, incarnation string)
	// Incarnation is the one recorded for a node in replicated state, if any is.
	Incarnation(id string) (string, bool)
	// Standing is what this node knows of another one, members' answers to Vouch included.
	Standing(id, incarnation string) wire.Standing
	// Vouch asks the members that this node knows about a caller that it does not know. It
	// may block until ctx ends. host is where the call comes from.
	Vouch(ctx context.Context, caller *wire.PeerHello, host string) wire.Standing
	// Observe is told of each caller that was accepted.
	Observe(*wire.PeerHello)
	// State is what this node tells a member first; an empty incarnation is one that is not
	// known.
	State(incarnation string) *wire.PeerState
	// Meet is told what a member says of its state, before anything else that it says. With an
	// error the two nodes have no connection.
	Meet(id, incarnation string, state *wire.PeerState) error
	// Parted is told of such an error once the other node has this node's state, too: as the answer
	// to its hello, or before it refused this node's hello.
	Parted(id string, err error)
}

// Handler answers a control call. from is the caller, checked. It has to return soon after
// ctx ends. A nil answer says that the request is not understood.
type Handler func(ctx context.Context, from *wire.PeerHello, req *wire.PeerRequest) *wire.PeerResponse

// Config says how to make a Layer.
type Config struct {
	// Listener is the peer port, listening already; the Layer closes it. Required.
	Listener net.Listener
	// Advertise is the address, host:port, under which others reach this node. Default:
	// the listener's.
	Advertise string
	// Network dials. Default: transport.TCP.
	Network transport.Network
	// Identity is required.
	Identity Identity
	// TLS are the peer certificate, its key and the CA of all peers; nil means plaintext.
	TLS *transport.TLSFiles
	// Handler answers control calls. Default: none is understood.
	Handler Handler
	// Tunnels decides about tunnels of clients to this node. Default: all are refused.
	Tunnels TunnelHandler
	// Logger is told of refusals. Default: none.
	Logger hclog.Logger

	// HandshakeTimeout bounds a handshake from the first byte to raft's accepting it.
	// Default: 3 s.
	HandshakeTimeout time.Duration
	// MaxHandshakes bounds the connections that are not established yet, and half of it those
	// of one address; beyond it, the oldest of them is cut. Default: 64.
	MaxHandshakes int
	// MaxConns bounds the established connections that came in, but for tunnels. Default: 512.
	MaxConns int
	// MaxTunnels bounds the tunnels that came in. Default: 2,048.
	MaxTunnels int
	// IdleTimeout bounds the silence on an incoming control connection. Default: 30 s.
	IdleTimeout time.Duration
	// WriteTimeout bounds each write of an answer. Default: 10 s.
	WriteTimeout time.Duration
}

func (c Config) withDefaults() Config {
	if c.Advertise == "" {
		c.Advertise = c.Listener.Addr().String()
	}
	if c.Network == nil {
		c.Network = transport.TCP{}
	}
	if c.Handler == nil {
		c.Handler = func(context.Context, *wire.PeerHello, *wire.PeerRequest) *wire.PeerResponse { return nil }
	}
	if c.Tunnels == nil {
		c.Tunnels = noTunnels
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	setDefault(&c.HandshakeTimeout, 3*time.Second)
	setDefault(&c.MaxHandshakes, 64)
	setDefault(&c.MaxConns, 512)
	setDefault(&c.MaxTunnels, 2048)
	setDefault(&c.IdleTimeout, 30*time.Second)
	setDefault(&c.WriteTimeout, 10*time.Second)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Layer is one node's peer port. It is a raft.StreamLayer; all methods are safe for
// concurrent use.
type Layer struct {
	cfg       Config
	log       hclog.Logger
	serverTLS *tls.Config // nil: plaintext
	clientTLS *tls.Config
	certified string // the cluster that this node's certificate names

	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	accepted chan *lent
	running  sync.WaitGroup // goroutines of the Layer
	lent     sync.WaitGroup // connections that raft has accepted and not closed yet
	refusals refusals
	mute     atomic.Bool

	handshakes *limiter.Limiter // connections that are not established yet

	mu      sync.Mutex // guards what follows
	closed  bool
	conns   map[*peerConn]bool // established, both directions
	inbound int                // of conns, those that came in and are no tunnels
	tunnels int                // of conns, the tunnels that came in
}

// New starts a Layer. It returns an error if the certificate names another node or another
// cluster than Identity does.
func New(cfg Config) (*Layer, error) {
	if cfg.Listener == nil || cfg.Identity == nil {
		return nil, errors.New("raftstream: a listener and an identity are required")
	}
	l := &Layer{
		cfg:      cfg.withDefaults(),
		accepted: make(chan *lent),
		conns:    make(map[*peerConn]bool),
	}
	l.handshakes = limiter.New(limiter.Config{Max: l.cfg.MaxHandshakes})
	l.log = l.cfg.Logger
	if err := l.openTLS(); err != nil {
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.running.Go(l.listen)
	return l, nil
}

func (l *Layer) openTLS() error {
	if l.cfg.TLS == nil {
		return nil
	}
	files := *l.cfg.TLS
	report := transport.OnReload(l.reloaded)
	var err error
	if l.serverTLS, err = files.ServerConfig(tls.RequireAndVerifyClientCert, report); err != nil {
		return err
	}
	if l.clientTLS, err = files.ClientConfig(); err != nil {
		return err
	}
	cluster, id, err := files.Peer()
	if err != nil {
		return err
	}
	if self, _ := l.cfg.Identity.Self(); id != self {
		return fmt.Errorf("%w: the peer certificate %s names node %q, this is node %q",
			transport.ErrPeerName, files.Cert, id, self)
	}
	if mine := l.cfg.Identity.ClusterID(); mine != "" && mine != cluster {
		return fmt.Errorf("%w: the peer certificate %s names cluster %q, this is cluster %q",
			transport.ErrPeerName, files.Cert, cluster, mine)
	}
	l.certified = cluster
	return nil
}

func (l *Layer) reloaded(err error) {
	if err != nil {
		l.log.Error("peer certificates could not be reloaded", "error", err)
		return
	}
	l.log.Info("peer certificates reloaded")
}

// cluster is this node's cluster, as far as it is known.
func (l *Layer) cluster() string {
	if id := l.cfg.Identity.ClusterID(); id != "" {
		return id
	}
	return l.certified
}

// Accept returns the next connection that a checked peer opened for raft. After Close it
// returns net.ErrClosed.
func (l *Layer) Accept() (net.Conn, error) {
	conn, err := l.accept()
	if err != nil {
		return nil, err
	}
	return conn, nil
}

func (l *Layer) accept() (*lent, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Addr is the advertised address.
func (l *Layer) Addr() net.Addr { return advertised(l.cfg.Advertise) }

type advertised string

func (advertised) Network() string  { return "tcp" }
func (a advertised) String() string { return string(a) }

// spawn starts a goroutine that Close waits for, and reports whether it was not too late.
func (l *Layer) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.running.Go(f)
	}
	return !l.closed
}

// Close closes the port and every connection, those that raft uses included, and waits for
// the Layer's goroutines, handlers included.
func (l *Layer) Close() error {
	l.mu.Lock()
	l.closed = true
	conns := make([]*peerConn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	l.cancel() // ends handshakes and calls
	err := l.cfg.Listener.Close()
	closeAll(conns)
	l.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Mute has nothing leave the node any more: every write to a connection fails. It does not
// wait, as Close does.
func (l *Layer) Mute() { l.mute.Store(true) }

// Recheck closes every connection with a node that is no member any more, so that nothing more
// that it sends reaches raft. For when members have changed.
func (l *Layer) Recheck() {
	self, _ := l.cfg.Identity.Self()
	l.mu.Lock()
	conns := make([]*peerConn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	closeAll(slices.DeleteFunc(conns, func(c *peerConn) bool {
		return c.peer == self || c.incarnation == "" || admits(l.cfg.Identity.Standing(c.peer, c.incarnation))
	}))
}

// Disconnect closes every connection from and to a node.
func (l *Layer) Disconnect(id string) {
	l.mu.Lock()
	var conns []*peerConn
	for c := range l.conns {
		if c.peer == id {
			conns = append(conns, c)
		}
	}
	l.mu.Unlock()
	closeAll(conns)
}

// closeAll closes in parallel: saying goodbye to peers that do not read takes a moment each.
func closeAll(conns []*peerConn) {
	var all sync.WaitGroup
	for _, c := range conns {
		all.Go(func() { _ = c.Close() })
	}
	all.Wait()
}
