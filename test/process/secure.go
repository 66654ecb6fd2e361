package process

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
)

// certified is the cluster in the certificates.
const certified = "c1"

// secure creates the certificates of the initial nodes and of the clients in Options.Secure, if there are any.
func (c *Cluster) secure() {
	c.t.Helper()
	if len(c.opts.Secure) == 0 {
		return
	}
	var nodes []pki.Node
	for _, n := range c.nodes {
		host, _, err := net.SplitHostPort(n.client)
		if err != nil {
			c.t.Fatal(err)
		}
		nodes = append(nodes, pki.Node{ID: n.id, Hosts: []string{host}})
	}
	if _, err := pki.Init(c.Certificates(), certified, nodes, c.opts.Secure); err != nil {
		c.t.Fatal(err)
	}
	for _, n := range c.nodes {
		c.CopyCRL(n.id)
	}
}

// Certificates returns the directory of the authority, as qlock tls init creates it.
func (c *Cluster) Certificates() string { return filepath.Join(c.opts.Dir, "certs") }

// crl returns the path of a node's copy of the revocation list.
func (c *Cluster) crl(id string) string { return filepath.Join(c.opts.Dir, id+".crl.pem") }

// CopyCRL copies the authority's revocation list to a node, in place, and returns when that was done.
func (c *Cluster) CopyCRL(id string) time.Time {
	c.t.Helper()
	list, err := os.ReadFile(pki.CRLPath(c.Certificates()))
	if err == nil {
		err = os.WriteFile(c.crl(id), list, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return time.Now()
}

// tlsFlags returns the flags of a node for TLS on all ports.
func (c *Cluster) tlsFlags(id string) []string {
	if len(c.opts.Secure) == 0 {
		return nil
	}
	own, ca := filepath.Join(c.Certificates(), "nodes", id), filepath.Join(c.Certificates(), "ca.crt")
	return []string{
		"--tls-cert", filepath.Join(own, "server.crt"), "--tls-key", filepath.Join(own, "server.key"),
		"--tls-ca", ca, "--tls-crl", c.crl(id),
		"--peer-tls-cert", filepath.Join(own, "peer.crt"), "--peer-tls-key", filepath.Join(own, "peer.key"),
		"--peer-tls-ca", ca, "--peer-tls-crl", c.crl(id),
	}
}

// filesOf returns the files with which a client connects. Without a name, it has no certificate.
func (c *Cluster) filesOf(name string) transport.TLSFiles {
	files := transport.TLSFiles{CA: filepath.Join(c.Certificates(), "ca.crt")}
	if name != "" {
		own := filepath.Join(c.Certificates(), "clients", name)
		files.Cert, files.Key = filepath.Join(own, "client.crt"), filepath.Join(own, "client.key")
	}
	return files
}

// TLS returns the configuration of a client with the certificate of that name, or without a certificate if there is no
// name. It is nil if the ports use no TLS.
func (c *Cluster) TLS(name string) *tls.Config {
	c.t.Helper()
	if len(c.opts.Secure) == 0 {
		return nil
	}
	config, err := c.filesOf(name).ClientConfig()
	if err != nil {
		c.t.Fatal(err)
	}
	return config
}

// operator returns the configuration of the cluster's own client, which has the first certificate.
func (c *Cluster) operator() *tls.Config {
	c.t.Helper()
	if len(c.opts.Secure) == 0 {
		return nil
	}
	return c.TLS(c.opts.Secure[0])
}

// Qlock runs qlock with the certificate of that name, or without one, and returns its output. The ports must use TLS.
// at are the nodes that it connects to first; none means all.
func (c *Cluster) Qlock(ctx context.Context, name string, at []string, args ...string) (string, error) {
	c.t.Helper()
	endpoints := c.Endpoints()
	if len(at) > 0 {
		endpoints = nil
	}
	for _, id := range at {
		endpoints = append(endpoints, c.Endpoint(id))
	}
	files := c.filesOf(name)
	flags := []string{"--endpoints", strings.Join(endpoints, ","), "--cacert", files.CA}
	if name != "" {
		flags = append(flags, "--cert", files.Cert, "--key", files.Key)
	}
	return c.programs.Qlock(ctx, append(flags, args...)...)
}
