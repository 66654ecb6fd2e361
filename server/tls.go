package server

import (
	"crypto/tls"
	"fmt"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/transport"
)

// rpcTLS returns the TLS configuration of the client port; nil means plaintext. With a CA, it verifies the
// certificates of clients.
func (c Config) rpcTLS(certs *nodeCertificates) (*tls.Config, error) {
	if certs.client == nil {
		return nil, nil
	}
	auth := tls.NoClientCert
	if c.TLS.CA != "" {
		auth = tls.VerifyClientCertIfGiven // rpc requires a certificate or a token
	}
	return certs.client.ServerConfig(auth)
}

func reportReload(log hclog.Logger) transport.Option {
	return transport.OnReload(func(err error) {
		if err != nil {
			log.Error("changed certificate files cannot be used: the last good ones stay", "port", "client", "error", err)
			return
		}
		log.Info("changed certificate files are in use", "port", "client")
	})
}

// certifiedCluster returns the cluster named in the node's peer certificate, or "" without a certificate. It
// returns an error if the certificate names another node, which the peers would reject anyway.
func (c Config) certifiedCluster() (string, error) {
	if c.PeerTLS.Cert == "" {
		return "", nil
	}
	cluster, id, err := c.PeerTLS.Peer()
	if err != nil {
		return "", fmt.Errorf("%w: --peer-tls-cert: %w: give the node's peer certificate, as qlock tls init makes it", ErrConfig, err)
	}
	if id != c.ID {
		return "", fmt.Errorf("%w: --peer-tls-cert %s belongs to node %s, but --id is %s: give the certificate of this node, or the --id that it names", ErrConfig, c.PeerTLS.Cert, id, c.ID)
	}
	return cluster, nil
}
