package peerport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// errNoTarget is returned by Dial for an address that does not name a node.
var errNoTarget = errors.New("the address does not name a node: it was not dialled through a peerport.Transport")

// target combines a node's id and address into the address that raft's NetworkTransport dials, and by which
// it pools connections: id@host:port. Hosts and ports contain no @, so the last one is the separator.
func target(id raft.ServerID, addr raft.ServerAddress) raft.ServerAddress {
	return raft.ServerAddress(string(id) + "@" + string(addr))
}

func parseTarget(t raft.ServerAddress) (id, addr string, err error) {
	at := strings.LastIndexByte(string(t), '@')
	if at <= 0 {
		return "", "", fmt.Errorf("dial %q: %w", t, errNoTarget)
	}
	return string(t[:at]), string(t[at+1:]), nil
}

// Dial opens a connection for raft and completes its handshake. The Transport calls it with an address
// that also names the node. Connections to this node itself do not use the network.
func (l *Layer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	id, addr, err := parseTarget(address)
	if err != nil {
		return nil, err
	}
	if self, incarnation := l.cfg.Identity.Self(); id == self {
		return l.dialSelf(self, incarnation)
	}
	ctx, cancel := l.ctx, context.CancelFunc(func() {})
	if timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, timeout)
	}
	defer cancel()
	peer, r, _, err := l.open(ctx, addr, id, wire.PeerHello_RAFT)
	if err != nil {
		return nil, fmt.Errorf("dial node %q at %s: %w", id, addr, err)
	}
	if n := r.Buffered(); n > 0 {
		_ = peer.Close()
		return nil, fmt.Errorf("dial node %q at %s: %w", id, addr,
			&RefusedError{Message: fmt.Sprintf("it sent %d bytes unasked", n)})
	}
	return peer, nil
}

// dialSelf connects raft to itself, because this machine need not be able to reach its own advertised address.
func (l *Layer) dialSelf(self, incarnation string) (net.Conn, error) {
	near, far := net.Pipe()
	out, err := l.establish(near, self, incarnation, false, false)
	if err != nil {
		return nil, err
	}
	in, err := l.establish(far, self, incarnation, true, false)
	if err == nil && !l.spawn(func() {
		l.giveToRaft(in)
		_ = in.Close()
	}) {
		err = net.ErrClosed
		_ = in.Close()
	}
	if err != nil {
		_ = out.Close()
		return nil, err
	}
	return out, nil
}

// open connects to a node and completes the handshake.
func (l *Layer) open(ctx context.Context, addr, id string, purpose wire.PeerHello_Purpose) (
	*peerConn, *transport.FrameReader, *wire.PeerHelloReply, error,
) {
	if l.ctx.Err() != nil {
		return nil, nil, nil, net.ErrClosed
	}
	dialling, cancel := context.WithTimeout(ctx, l.cfg.HandshakeTimeout)
	defer cancel()
	raw, err := l.cfg.Network.Dial(dialling, addr)
	if err != nil {
		return nil, nil, nil, err
	}
	conn := raw
	if l.clientTLS != nil {
		conn = tls.Client(raw, l.dialTLS(id))
	}
	r := transport.NewFrameReader(conn, maxHello)
	var reply *wire.PeerHelloReply
	err = transport.Within(dialling, conn, l.cfg.HandshakeTimeout, func(ctx context.Context) (err error) {
		reply, err = l.exchangeHellos(ctx, conn, r, id, purpose)
		if err == nil || reply.GetStatus() != wire.Status_OK {
			err = errors.Join(err, l.compareStates(id, reply))
		}
		return err
	})
	var peer *peerConn
	if err == nil {
		peer, err = l.establish(conn, id, reply.GetIncarnation(), false, purpose == wire.PeerHello_TUNNEL)
	}
	if err == nil {
		// Check again: a Disconnect in the meantime has missed this connection.
		if err = l.checkIncarnation(purpose, reply); err != nil {
			l.forget(peer)
		}
	}
	if err != nil {
		transport.Cut(conn)
		return nil, nil, reply, err
	}
	return peer, r, reply, nil
}

// dialTLS returns the configuration for a connection to one node. It verifies the node's name in the
// certificate instead of a host name, which crypto/tls does not support directly.
func (l *Layer) dialTLS(id string) *tls.Config {
	config := transport.Fresh(l.clientTLS)
	notRevoked := config.VerifyConnection
	config.InsecureSkipVerify = true // VerifyConnection verifies everything
	config.VerifyConnection = func(state tls.ConnectionState) error {
		chain := state.PeerCertificates
		opts := x509.VerifyOptions{
			Roots:         config.RootCAs,
			Intermediates: x509.NewCertPool(),
			KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		for _, cert := range chain[1:] {
			opts.Intermediates.AddCert(cert)
		}
		if _, err := chain[0].Verify(opts); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
		}
		if err := notRevoked(state); err != nil {
			return err
		}
		expected := id
		if id == "" { // any node of the cluster; it must give the same name in its hello
			_, expected, _ = transport.PeerFromCert(chain[0])
		}
		return checkName(chain, l.certified, expected)
	}
	return config
}

// exchangeHellos sends the hello and checks the answer.
func (l *Layer) exchangeHellos(ctx context.Context, conn net.Conn, r *transport.FrameReader, target string, purpose wire.PeerHello_Purpose) (*wire.PeerHelloReply, error) {
	if t, ok := conn.(*tls.Conn); ok {
		if err := secure(ctx, t); err != nil {
			return nil, err
		}
	}
	hello := l.hello(target, purpose)
	if err := transport.NewFrameWriter(conn, maxHello).WriteFirst(hello); err != nil {
		return nil, err
	}
	var reply wire.PeerHelloReply
	if err := r.Read(&reply); err != nil {
		return nil, fmt.Errorf("no answer to the hello: %w", err)
	}
	err := l.checkReply(hello, &reply)
	if t, ok := conn.(*tls.Conn); ok && err == nil {
		err = checkName(t.ConnectionState().PeerCertificates, l.certified, reply.GetId())
	}
	return &reply, err
}

func (l *Layer) hello(target string, purpose wire.PeerHello_Purpose) *wire.PeerHello {
	id, incarnation := l.cfg.Identity.Self()
	known, _ := l.cfg.Identity.Incarnation(target)
	return &wire.PeerHello{
		Version:           Version,
		Purpose:           purpose,
		ClusterId:         l.cfg.Identity.ClusterID(),
		Id:                id,
		Incarnation:       incarnation,
		TargetId:          target,
		TargetIncarnation: known,
		State:             l.cfg.Identity.State(known),
	}
}

// compareStates compares the states of this node and of a member that has answered, even if that member refused.
func (l *Layer) compareStates(id string, reply *wire.PeerHelloReply) error {
	incarnation, known := l.cfg.Identity.Incarnation(id)
	if !known {
		incarnation = reply.GetIncarnation()
	}
	if reply.GetState() == nil || reply.GetId() != id || incarnation == "" {
		return nil
	}
	if err := l.cfg.Identity.CheckState(id, incarnation, reply.GetState()); err != nil {
		if reply.GetStatus() != wire.Status_OK { // otherwise the hello was sent too early to reveal this
			l.cfg.Identity.Incompatible(id, err)
		}
		return &RefusedError{Reply: reply, Message: err.Error()}
	}
	return nil
}

func (l *Layer) checkReply(hello *wire.PeerHello, reply *wire.PeerHelloReply) error {
	mine, theirs := l.cfg.Identity.ClusterID(), reply.GetClusterId()
	message := ""
	switch {
	case reply.GetStatus() != wire.Status_OK:
		message = reply.GetMessage()
	case reply.GetVersion() == 0 || reply.GetVersion() > hello.GetVersion():
		message = fmt.Sprintf("it answers with version %d to an offer of %d", reply.GetVersion(), hello.GetVersion())
	case mine != "" && theirs != "" && mine != theirs:
		message = fmt.Sprintf("it belongs to cluster %q, this is cluster %q", theirs, mine)
	case reply.GetId() != hello.GetTargetId() && hello.GetTargetId() != "":
		message = fmt.Sprintf("it is node %q", reply.GetId())
	default:
		return l.checkIncarnation(hello.GetPurpose(), reply)
	}
	return &RefusedError{Reply: reply, Message: message}
}

// checkIncarnation compares the answering node with the record. A node that treats this one as a stranger
// does not reveal its incarnation, and such a connection is only good for probes.
func (l *Layer) checkIncarnation(purpose wire.PeerHello_Purpose, reply *wire.PeerHelloReply) error {
	if reply.GetIncarnation() == "" && purpose == wire.PeerHello_CONTROL {
		return nil
	}
	recorded, ok := l.cfg.Identity.Incarnation(reply.GetId())
	if !ok || recorded == "" || recorded == reply.GetIncarnation() {
		return nil
	}
	return &RefusedError{Reply: reply, Message: otherIncarnation(reply.GetId()).text}
}
