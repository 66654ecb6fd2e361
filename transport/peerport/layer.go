package peerport

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
	"github.com/quorumlock/quorumlock/internal/ratelog"
	"github.com/quorumlock/quorumlock/transport"
	limiter "github.com/quorumlock/quorumlock/transport/handshake"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Version is the highest version of the protocol between nodes that this program supports.
const Version = 1

// Identity is what a node knows about itself and the other nodes. All methods are called from many
// goroutines, and all but AskMembers must not block.
type Identity interface {
	// ClusterID returns "" until the node knows its cluster.
	ClusterID() string
	// Self returns this node's id and the incarnation of its data directory.
	Self() (id, incarnation string)
	// Incarnation returns the incarnation of a node in the replicated state, if there is one.
	Incarnation(id string) (string, bool)
	// Standing returns what this node knows about another one, including members' answers to AskMembers.
	Standing(id, incarnation string) wire.Standing
	// AskMembers asks the members that this node knows about a caller that it does not know. It may block
	// until ctx ends. host is the address that the call comes from.
	AskMembers(ctx context.Context, caller *wire.PeerHello, host string) wire.Standing
	// Observe is called for each caller that was accepted.
	Observe(*wire.PeerHello)
	// State returns what this node sends to a member first. An empty incarnation means that it is unknown.
	State(incarnation string) *wire.PeerState
	// CheckState is called with the state that a member sent, before anything else it sends is used. If it
	// returns an error, the two nodes do not get a connection.
	CheckState(id, incarnation string, state *wire.PeerState) error
	// Incompatible is called with such an error once the other node has this node's state as well: as the
	// answer to its hello, or before it refused this node's hello.
	Incompatible(id string, err error)
}

// Handler answers a control call. from is the verified caller. It must return soon after ctx ends. A nil
// answer means that it does not know the request.
type Handler func(ctx context.Context, from *wire.PeerHello, req *wire.PeerRequest) *wire.PeerResponse

// Config configures a Layer.
type Config struct {
	// Listener is the peer port, already listening. The Layer closes it. Required.
	Listener net.Listener
	// Advertise is the address, host:port, at which others reach this node. Default: the listener's address.
	Advertise string
	// Network dials. Default: transport.TCP.
	Network transport.Network
	// Identity is required.
	Identity Identity
	// TLS names the peer certificate, its key and the CA of all peers; nil means plaintext.
	TLS *transport.TLSFiles
	// Handler answers control calls. Default: it knows no request.
	Handler Handler
	// Tunnels decides about tunnels of clients to this node. Default: all are refused.
	Tunnels TunnelHandler
	// Logger logs refusals. Default: none.
	Logger hclog.Logger

	// HandshakeTimeout bounds a handshake from the first byte until raft accepts the connection. Default: 3 s.
	HandshakeTimeout time.Duration
	// MaxHandshakes bounds the connections that are not established yet. A single address may have half
	// as many. If there are more, the oldest of them is cut. Default: 64.
	MaxHandshakes int
	// MaxConns bounds the established incoming connections, except tunnels. Default: 512.
	MaxConns int
	// MaxTunnels bounds the incoming tunnels. Default: 2,048.
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

// Layer is one node's peer port. It is a raft.StreamLayer. All methods are safe for concurrent use.
type Layer struct {
	cfg       Config
	log       hclog.Logger
	serverTLS *tls.Config // nil: plaintext
	clientTLS *tls.Config
	certified string // the cluster in this node's certificate
	// certificates are this node's, and know which of the others' are revoked; nil: plaintext.
	certificates *transport.Credentials

	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	accepted  chan *raftConn
	running   sync.WaitGroup // goroutines of the Layer
	raftConns sync.WaitGroup // connections that raft has accepted and not closed yet
	refusals  refusals
	warnings  *ratelog.Logger
	silenced  atomic.Bool

	handshakes *limiter.Limiter // connections that are not established yet

	mu      sync.Mutex // guards the fields below
	closed  bool
	conns   map[*peerConn]bool // established, both directions
	inbound int                // number of conns that are incoming and not tunnels
	tunnels int                // number of conns that are incoming tunnels
}

// New creates a Layer, which accepts no connections before Start. It returns an error if the certificate names another node or another cluster than
// Identity does.
func New(cfg Config) (*Layer, error) {
	if cfg.Listener == nil || cfg.Identity == nil {
		return nil, errors.New("peerport: a listener and an identity are required")
	}
	l := &Layer{
		cfg:      cfg.withDefaults(),
		accepted: make(chan *raftConn),
		conns:    make(map[*peerConn]bool),
	}
	l.handshakes = limiter.New(limiter.Config{Max: l.cfg.MaxHandshakes})
	l.log = l.cfg.Logger
	l.warnings = ratelog.New(l.log)
	if err := l.openTLS(); err != nil {
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l, nil
}

// Start accepts connections from then on. The handlers may be called before it returns.
func (l *Layer) Start() {
	l.running.Go(func() { transport.Accept(l.ctx, l.cfg.Listener, l.begin, l.acceptFailed) })
	if l.certificates != nil {
		l.running.Go(func() { l.certificates.Watch(l.ctx, l.recheckCertificates) })
	}
}

func (l *Layer) openTLS() error {
	if l.cfg.TLS == nil {
		return nil
	}
	files := *l.cfg.TLS
	report := transport.OnReload(l.reloaded)
	var err error
	if l.certificates, err = files.Open(report); err != nil {
		return err
	}
	if l.serverTLS, err = l.certificates.ServerConfig(tls.RequireAndVerifyClientCert); err != nil {
		return err
	}
	l.clientTLS = l.certificates.ClientConfig()
	cluster, id, err := files.Peer()
	if err != nil {
		return err
	}
	if self, _ := l.cfg.Identity.Self(); id != self {
		return fmt.Errorf("%w: the peer certificate %s names node %q, this is node %q",
			transport.ErrPeerName, files.Cert, id, self)
	}
	if mine := l.cfg.Identity.ClusterID(); mine != "" && !wire.NamesCluster(cluster, mine) {
		return fmt.Errorf("%w: the peer certificate %s names cluster %q, this is cluster %q",
			transport.ErrPeerName, files.Cert, cluster, mine)
	}
	l.certified = cluster
	return nil
}

func (l *Layer) reloaded(err error) {
	if err != nil {
		l.log.Error("changed certificate files cannot be used: the last good ones stay", "port", "peer", "error", err)
		return
	}
	l.log.Info("changed certificate files are in use", "port", "peer")
}

// Accept returns the next connection that a verified peer opened for raft. After Close it returns
// net.ErrClosed.
func (l *Layer) Accept() (net.Conn, error) {
	conn, err := l.accept()
	if err != nil {
		return nil, err
	}
	return conn, nil
}

func (l *Layer) accept() (*raftConn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Addr returns the advertised address.
func (l *Layer) Addr() net.Addr { return advertised(l.cfg.Advertise) }

type advertised string

func (advertised) Network() string  { return "tcp" }
func (a advertised) String() string { return string(a) }

// spawn starts a goroutine that Close waits for. It reports false if the Layer is closed.
func (l *Layer) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.running.Go(f)
	}
	return !l.closed
}

// Close closes the port and every connection, including those that raft uses, and waits for the Layer's
// goroutines and handlers.
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

// StopSending stops all output of the node: every later write to a connection fails. Unlike Close, it does not wait.
func (l *Layer) StopSending() { l.silenced.Store(true) }

// Recheck closes every connection with a node that is no longer a member, so that nothing it sends
// reaches raft. It must be called when the members have changed.
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

// closeAll closes connections in parallel: the TLS alert to a peer that does not read takes a moment.
func closeAll(conns []*peerConn) {
	var all sync.WaitGroup
	for _, c := range conns {
		all.Go(func() { _ = c.Close() })
	}
	all.Wait()
}
