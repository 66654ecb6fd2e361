package raftstream

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// check decides about a caller, by the rules of the package's documentation.
func (h *handshake) check() error {
	hello, l := h.hello, h.layer
	if hello.GetVersion() == 0 {
		return refuse(ReasonVersion, "offer a version of the peer protocol from 1 to %d", Version)
	}
	if p := hello.GetPurpose(); p != wire.PeerHello_RAFT && p != wire.PeerHello_CONTROL {
		return refuse(ReasonProtocol, "unknown purpose %v of the connection", p)
	}
	if hello.GetId() == "" {
		return refuse(ReasonProtocol, "the hello does not say who is calling")
	}
	if mine, theirs := l.cluster(), hello.GetClusterId(); mine != "" && theirs != "" && mine != theirs {
		return refuse(ReasonCluster, "node %q belongs to cluster %q, this is cluster %q", hello.GetId(), theirs, mine)
	}
	if err := h.checkCertificate(); err != nil {
		return err
	}
	if err := h.checkTarget(); err != nil {
		return err
	}
	return h.checkIncarnation()
}

func (h *handshake) checkCertificate() error {
	t, ok := h.conn.(*tls.Conn)
	if !ok {
		return nil
	}
	return checkName(t.ConnectionState().PeerCertificates, h.layer.cluster(), h.hello.GetId())
}

// checkName says whether the first certificate, already verified, names the node.
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
	if want := h.hello.GetTargetId(); want != id {
		return refuse(ReasonTarget, "this is node %q, not %q", id, want)
	}
	if want := h.hello.GetTargetIncarnation(); want != "" && want != incarnation {
		return refuse(ReasonTarget, "node %q has another incarnation than the caller knows: "+
			"its data directory was replaced", id)
	}
	return nil
}

// checkIncarnation compares the caller with the record. One that does not match never gets
// to raft. It may open a control connection, but only for probes: they change nothing and
// are how it learns that its memory is gone.
func (h *handshake) checkIncarnation() error {
	hello := h.hello
	recorded, ok := h.layer.cfg.Identity.Incarnation(hello.GetId())
	if !ok || recorded == "" || recorded == hello.GetIncarnation() {
		return nil
	}
	if hello.GetPurpose() == wire.PeerHello_CONTROL {
		h.stranger = true
		return nil
	}
	return otherIncarnation(hello.GetId())
}

func otherIncarnation(id string) *refusal {
	return refuse(ReasonIncarnation, "node %q is recorded with another incarnation: its data directory was replaced; "+
		"remove it from the cluster and add it again", id)
}
