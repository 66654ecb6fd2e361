package peerport

import (
	"crypto/tls"
	"slices"
)

// checkRevoked returns transport.ErrRevoked or transport.ErrExpired unless the other node could still connect with the
// certificate of this connection.
func (c *peerConn) checkRevoked() error {
	secured, ok := c.Conn.(*tls.Conn)
	if !ok || c.layer.certificates == nil {
		return nil
	}
	return c.layer.certificates.Verify(secured.ConnectionState().PeerCertificates)
}

// recheckCertificates closes every connection with a node whose certificate has been revoked or has expired since the
// handshake.
func (l *Layer) recheckCertificates() {
	l.mu.Lock()
	conns := make([]*peerConn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	closeAll(slices.DeleteFunc(conns, func(c *peerConn) bool {
		err := c.checkRevoked()
		if err != nil {
			l.warnings.Warn("closing a connection", "node", c.peer, "reason", err)
		}
		return err == nil
	}))
}
