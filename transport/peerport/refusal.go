package peerport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Reason is why a connection was refused. There are few reasons, so that they can label metrics.
type Reason string

// The reasons.
const (
	ReasonTLS         Reason = "tls"         // no TLS, or a certificate that is not trusted
	ReasonProtocol    Reason = "protocol"    // not this protocol, or a violation of it
	ReasonTimeout     Reason = "timeout"     // the handshake took too long
	ReasonGone        Reason = "gone"        // the caller closed before the handshake ended
	ReasonVersion     Reason = "version"     // no version in common
	ReasonCluster     Reason = "cluster"     // the caller is of another cluster
	ReasonTarget      Reason = "target"      // the caller wants another node or incarnation
	ReasonIncarnation Reason = "incarnation" // not the incarnation on record
	ReasonUnknown     Reason = "unknown"     // no member knows the caller
	ReasonRemoved     Reason = "removed"     // the caller was a member
	ReasonState       Reason = "state"       // the log of either node was rolled back, or they diverge
	ReasonClaim       Reason = "claim"       // a call to raft in another node's name, or one that the node may not make
	ReasonCertificate Reason = "certificate" // the certificate names another node
	ReasonOverload    Reason = "overload"    // too many connections
	ReasonNotReady    Reason = "not_ready"   // raft did not accept in time
)

// ErrRefused is returned, as a *RefusedError, when the other node refused a hello, or when its answer is
// not that of the node wanted.
var ErrRefused = errors.New("refused")

// RefusedError contains the reason of a refusal.
type RefusedError struct {
	// Reply is the other node's answer; nil if this node refused before there was one.
	Reply   *wire.PeerHelloReply
	Message string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("%v: %s", ErrRefused, e.Message) }

// Is makes errors.Is(err, ErrRefused) true.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// refusal is a decision to refuse a caller.
type refusal struct {
	reason Reason
	text   string // sent to the caller
}

func (r *refusal) Error() string { return r.text }

func refuse(reason Reason, format string, args ...any) *refusal {
	return &refusal{reason, fmt.Sprintf(format, args...)}
}

// errItself refuses a call from this node, which has looked for others at a name that it has too.
var errItself = refuse(ReasonTarget, "this is the calling node itself")

var errFull = refuse(ReasonOverload, "too many connections between nodes: try again later")

// classify returns the reason for a failed handshake.
func classify(err error) Reason {
	var r *refusal
	var netErr net.Error
	switch {
	case errors.As(err, &r):
		return r.reason
	case errors.Is(err, transport.ErrPreface), errors.Is(err, transport.ErrMalformed), errors.Is(err, transport.ErrFrameTooLarge):
		return ReasonProtocol
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &netErr) && netErr.Timeout():
		return ReasonTimeout
	case errors.Is(err, errTLS):
		return ReasonTLS
	default:
		return ReasonGone
	}
}

var errTLS = errors.New("tls")

// secure completes a TLS handshake and marks its error with errTLS.
func secure(ctx context.Context, conn *tls.Conn) error {
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("%w: %w", errTLS, err)
	}
	return nil
}

// refusals counts refusals.
type refusals struct {
	mu       sync.Mutex
	counts   map[Reason]uint64
	accepted uint64
}

func (r *refusals) count(reason Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = make(map[Reason]uint64)
	}
	r.counts[reason]++
}

func (r *refusals) accept() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.accepted++
}

func (l *Layer) refused(remote net.Addr, caller string, err error) {
	if l.ctx.Err() != nil {
		return // not the caller's fault
	}
	reason := classify(err)
	l.refusals.count(reason)
	if errors.Is(err, errItself) {
		l.log.Debug("this node has called itself", "remote", remote.String())
		return
	}
	if reason == ReasonUnknown && l.cfg.Identity.ClusterID() == "" {
		l.log.Debug("refused a connection before this node knows its cluster", "remote", remote.String(), "node", caller, "error", err)
		return // a leader calls a node while it adds it
	}
	l.warnings.Warn("refused a connection to the peer port", "remote", remote.String(), "node", caller, "reason", string(reason), "error", err)
}

// Stats are a Layer's counters since its start.
type Stats struct {
	Handshaking int // connections that are not established yet
	Inbound     int // established incoming connections, without tunnels
	Outbound    int // established connections that this node opened, tunnels included
	Tunnels     int // established incoming tunnels
	Accepted    uint64
	Refused     map[Reason]uint64
}

// Stats returns the current numbers.
func (l *Layer) Stats() Stats {
	l.mu.Lock()
	s := Stats{Handshaking: l.handshakes.Len(), Inbound: l.inbound, Outbound: len(l.conns) - l.inbound - l.tunnels, Tunnels: l.tunnels}
	l.mu.Unlock()
	l.refusals.mu.Lock()
	defer l.refusals.mu.Unlock()
	s.Accepted = l.refusals.accepted
	s.Refused = make(map[Reason]uint64, len(l.refusals.counts))
	for reason, n := range l.refusals.counts {
		s.Refused[reason] = n
	}
	return s
}
