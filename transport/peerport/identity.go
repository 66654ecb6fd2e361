package peerport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// check applies the rules in the package documentation to a caller.
func (h *handshake) check(ctx context.Context) error {
	hello, l := h.hello, h.layer
	if hello.GetVersion() == 0 {
		return refuse(ReasonVersion, "offer a version of the peer protocol from 1 to %d", Version)
	}
	switch p := hello.GetPurpose(); p {
	case wire.PeerHello_RAFT, wire.PeerHello_CONTROL, wire.PeerHello_TUNNEL:
	default:
		return refuse(ReasonProtocol, "unknown purpose %v of the connection", p)
	}
	if hello.GetId() == "" {
		return refuse(ReasonProtocol, "the hello does not say who is calling")
	}
	if mine, theirs := l.cfg.Identity.ClusterID(), hello.GetClusterId(); mine != "" && theirs != "" && mine != theirs {
		return refuse(ReasonCluster, "node %q belongs to cluster %q, this is cluster %q", hello.GetId(), theirs, mine)
	}
	if err := h.checkCertificate(); err != nil {
		return err
	}
	if err := h.checkTarget(); err != nil {
		return err
	}
	return h.checkStanding(ctx)
}

func (h *handshake) checkCertificate() error {
	t, ok := h.conn.(*tls.Conn)
	if !ok {
		return nil
	}
	return checkName(t.ConnectionState().PeerCertificates, h.layer.certified, h.hello.GetId())
}

// checkName returns a refusal unless the first certificate, which is already verified, names the node.
func checkName(chain []*x509.Certificate, cluster, id string) error {
	if len(chain) == 0 {
		return refuse(ReasonCertificate, "there is no certificate")
	}
	namedCluster, namedID, err := transport.PeerFromCert(chain[0])
	if err != nil {
		return refuse(ReasonCertificate, "%v", err)
	}
	if namedCluster != cluster || namedID != id {
		return refuse(ReasonCertificate, "the certificate names node %q of cluster %q, expected node %q of cluster %q",
			namedID, namedCluster, id, cluster)
	}
	return nil
}

func (h *handshake) checkTarget() error {
	id, incarnation := h.layer.cfg.Identity.Self()
	if h.hello.GetId() == id && h.hello.GetIncarnation() == incarnation {
		return errItself
	}
	if h.hello.GetId() == id {
		return refuse(ReasonTarget, "this is node %q itself", id) // connections to itself do not use the network
	}
	if want := h.hello.GetTargetId(); want != id && (want != "" || h.hello.GetPurpose() != wire.PeerHello_CONTROL) {
		return refuse(ReasonTarget, "this is node %q, not %q", id, want)
	}
	if want := h.hello.GetTargetIncarnation(); want != "" && want != incarnation {
		return refuse(ReasonTarget, "node %q has another incarnation than the caller knows: "+
			"its data directory was replaced", id)
	}
	return nil
}

// checkStanding admits members. Any other caller never gets to raft. It may open a control connection,
// but only to join, or to learn that it is no longer a member. If this node does not know the caller, it
// asks the members it knows: the caller may have been added while this node was away.
func (h *handshake) checkStanding(ctx context.Context) error {
	hello, identity := h.hello, h.layer.cfg.Identity
	standing := identity.Standing(hello.GetId(), hello.GetIncarnation())
	if !admits(standing) && standing != wire.Standing_REMOVED && hello.GetPurpose() == wire.PeerHello_RAFT {
		standing = identity.AskMembers(ctx, hello, host(h.raw.RemoteAddr()))
	}
	if h.admitted = admits(standing); h.admitted {
		return nil
	}
	if hello.GetPurpose() == wire.PeerHello_CONTROL {
		h.stranger = noMember(hello.GetId(), standing)
		return nil
	}
	return noMember(hello.GetId(), standing)
}

// compareStates compares the states of this node and of a caller that is a member. If they are incompatible, it
// answers the caller, which learns this node's state from the answer, and returns an error.
func (h *handshake) compareStates() error {
	if !h.admitted {
		return nil
	}
	identity, id := h.layer.cfg.Identity, h.hello.GetId()
	foreign := identity.CheckState(id, h.hello.GetIncarnation(), h.hello.GetState())
	if foreign == nil {
		return nil
	}
	err := h.answer(refuse(ReasonState, "%v", foreign))
	identity.Incompatible(id, foreign)
	return err
}

// admittedAs returns the incarnation under which the caller is a member, "" for a stranger.
func (h *handshake) admittedAs() string {
	if h.stranger != nil {
		return ""
	}
	return h.hello.GetIncarnation()
}

// stillAdmits returns an error if the other node was a member and no longer is one.
func (l *Layer) stillAdmits(c *peerConn) error {
	if self, _ := l.cfg.Identity.Self(); c.peer == self || c.incarnation == "" {
		return nil
	}
	if standing := l.cfg.Identity.Standing(c.peer, c.incarnation); !admits(standing) {
		return noMember(c.peer, standing)
	}
	return nil
}

// admits reports whether a node with that standing takes part in the cluster.
func admits(s wire.Standing) bool { return s == wire.Standing_MEMBER || s == wire.Standing_EXPECTED }

// host returns the address of a connection's other end without its port.
func host(addr net.Addr) string {
	name, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return name
}

func noMember(id string, standing wire.Standing) *refusal {
	switch standing {
	case wire.Standing_REMOVED:
		return refuse(ReasonRemoved, "node %q was removed from the cluster, and no longer takes part: "+
			"to have it back, give it an empty data directory and add it again", id)
	case wire.Standing_REPLACED:
		return otherIncarnation(id)
	}
	return refuse(ReasonUnknown, "no member knows node %q with this incarnation: add it to the cluster first", id)
}

func otherIncarnation(id string) *refusal {
	return refuse(ReasonIncarnation, "node %q is recorded with another incarnation: its data directory was replaced; "+
		"remove it from the cluster and add it again", id)
}
