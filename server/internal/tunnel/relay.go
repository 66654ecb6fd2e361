package tunnel

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/internal/budget"
	"github.com/quorumlock/quorumlock/transport/handshake"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// bufferBytes is the size of the read buffer of one direction.
	bufferBytes = 16 << 10
	// tunnelBytes is what a tunnel takes of the node's budget, in bytes: the buffers of both directions, two
	// connections, four goroutines, TLS.
	tunnelBytes = 2*bufferBytes + 64<<10
	// maxOpening bounds the tunnels being opened concurrently. The leader's peer port has few places for
	// connections in their handshake, and other nodes need them.
	maxOpening = 8
)

// Config configures a Relay.
type Config struct {
	// NodeID is the ID of this node.
	NodeID string
	// Leader returns the leader known to this node.
	Leader func() *wire.LeaderHint
	// Dial opens a connection to the leader on behalf of a client.
	Dial func(ctx context.Context, leader *wire.LeaderHint, caller *wire.Caller) (net.Conn, error)
	// Max bounds the tunnels of the node. A single address may have half of them, rounded up.
	Max int
	// DialTimeout bounds the opening of a tunnel.
	DialTimeout time.Duration
	// WriteTimeout bounds one write to a client.
	WriteTimeout time.Duration
	// Buffers is the node's budget; nil means unbounded.
	Buffers *budget.Budget
	// Logger receives a message per tunnel; nil discards them.
	Logger hclog.Logger
	// Registry receives the metrics; if nil, they stay unregistered.
	Registry prometheus.Registerer
}

// Refusal is the error returned when a client gets no tunnel.
type Refusal struct {
	Status  wire.Status_Code
	Message string // human-readable
}

func (r *Refusal) Error() string { return fmt.Sprintf("no tunnel: %s: %s", r.Status, r.Message) }

func refuse(status wire.Status_Code, format string, args ...any) *Refusal {
	return &Refusal{status, fmt.Sprintf(format, args...)}
}

// Relay manages the tunnels from one node to the leader. All methods are safe for concurrent use. A nil Relay
// refuses every tunnel.
type Relay struct {
	cfg     Config
	metrics *metrics
	opening chan struct{} // one element per tunnel that is being opened

	mu      sync.Mutex // guards the fields below
	tunnels map[*Tunnel]struct{}
	sources map[netip.Addr]int // number of tunnels by source
	closing bool
}

// New returns a Relay without tunnels.
func New(cfg Config) (*Relay, error) {
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	r := &Relay{cfg: cfg, opening: make(chan struct{}, maxOpening), tunnels: map[*Tunnel]struct{}{}, sources: map[netip.Addr]int{}}
	var err error
	if r.metrics, err = newMetrics(r, cfg.Registry); err != nil {
		return nil, fmt.Errorf("tunnel: metrics: %w", err)
	}
	return r, nil
}

// Open opens a tunnel to the requested leader for the client at address client, which this node has verified to be
// caller. It is bounded by ctx and by
// Config.DialTimeout. A failure is returned as a *Refusal. After success, the caller must call Run or
// Discard.
func (r *Relay) Open(ctx context.Context, client net.Addr, caller *wire.Caller, leader string) (*Tunnel, error) {
	if r == nil {
		return nil, refuse(wire.Status_UNSUPPORTED, "tunnels are switched off at this node (--no-tunnels)")
	}
	t, err := r.enter(client, leader)
	if err == nil {
		if err = t.open(ctx, caller); err != nil {
			t.leave()
		}
	}
	if err != nil {
		r.metrics.refused.WithLabelValues(err.Status.String()).Inc()
		r.cfg.Logger.Debug("tunnel refused", "remote", client, "leader", leader, "reason", err.Message)
		return nil, err
	}
	r.metrics.opened.Inc()
	r.cfg.Logger.Debug("tunnel opened", "remote", client, "leader", leader)
	return t, nil
}

// enter takes a place for a tunnel. From then on, LeaderMoved and Close end it.
func (r *Relay) enter(client net.Addr, leader string) (*Tunnel, *Refusal) {
	t := &Tunnel{relay: r, remote: client, source: handshake.Source(client)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	var err error
	if t.memory, err = r.cfg.Buffers.Open(tunnelBytes, t.heldMost); err != nil {
		t.cancel()
		return nil, refuse(wire.Status_RESOURCE_EXHAUSTED, "%v", err)
	}
	r.mu.Lock()
	t.leader = r.cfg.Leader() // under mu, because a later leader comes through LeaderMoved
	refused := r.fault(t, leader)
	if refused == nil {
		r.tunnels[t] = struct{}{}
		r.sources[t.source]++
	}
	r.mu.Unlock()
	if refused != nil {
		t.cancel()
		t.memory.Close()
		return nil, refused
	}
	return t, nil
}

// fault returns why there is no tunnel to that leader, or nil. The caller holds mu.
func (r *Relay) fault(t *Tunnel, leader string) *Refusal {
	perSource := (r.cfg.Max + 1) / 2
	switch present := t.leader.GetId(); {
	case r.closing:
		return refuse(wire.Status_UNAVAILABLE, "this node is shutting down: use another node")
	case present == "":
		return refuse(wire.Status_UNAVAILABLE, "this node knows of no leader")
	case present == r.cfg.NodeID:
		return refuse(wire.Status_FAILED_PRECONDITION, "this node leads: go on without a tunnel")
	case present != leader:
		return refuse(wire.Status_FAILED_PRECONDITION, "node %q leads, not %q", present, leader)
	case len(r.tunnels) >= r.cfg.Max:
		return refuse(wire.Status_RESOURCE_EXHAUSTED, "this node has its %d tunnels (--max-tunnels)", r.cfg.Max)
	case t.source.IsValid() && r.sources[t.source] >= perSource:
		return refuse(wire.Status_RESOURCE_EXHAUSTED, "there are %d tunnels from %v already: one address has half of --max-tunnels", perSource, t.source)
	}
	return nil
}

// leave frees the tunnel's place. Only the first call has an effect.
func (t *Tunnel) leave() {
	r := t.relay
	t.cancel()
	t.memory.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, here := r.tunnels[t]; !here {
		return
	}
	delete(r.tunnels, t)
	if r.sources[t.source]--; r.sources[t.source] == 0 {
		delete(r.sources, t.source)
	}
}

// Len returns the number of tunnels, including those being opened.
func (r *Relay) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tunnels)
}

// LeaderMoved ends all tunnels except those to the given leader in the given term.
func (r *Relay) LeaderMoved(now *wire.LeaderHint) {
	if r == nil {
		return
	}
	for _, t := range r.all() {
		if t.leader.GetId() != now.GetId() || t.leader.GetTerm() != now.GetTerm() {
			t.End(wire.Goodbye_TUNNEL_ENDED, "the leader moved: look for the next one")
		}
	}
}

// Close ends all tunnels and refuses new ones. It does not wait, but Run returns soon.
func (r *Relay) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	for _, t := range r.all() {
		t.End(wire.Goodbye_SHUTDOWN, "this node is shutting down: use another node")
	}
}

func (r *Relay) all() []*Tunnel {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Tunnel, 0, len(r.tunnels))
	for t := range r.tunnels {
		all = append(all, t)
	}
	return all
}
