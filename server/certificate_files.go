package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/quorumlock/quorumlock/transport"
)

// checkCertificates returns the cluster named in the node's peer certificate, or "" without one. It returns an error,
// with the flag and a remedy, if one of the certificates would be refused by those who connect.
func (c Config) checkCertificates(now time.Time) (cluster string, err error) {
	if c.TLS.Cert != "" {
		pair, _, err := checkPair("tls", c.TLS, now)
		if err == nil {
			err = checkServer("--tls-cert "+c.TLS.Cert, pair.Leaf)
		}
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	if c.PeerTLS.Cert == "" {
		return "", nil
	}
	pair, authorities, err := checkPair("peer-tls", c.PeerTLS, now)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if cluster, err = c.certifiedCluster(); err != nil {
		return "", err
	}
	if err := checkPeer("--peer-tls-cert "+c.PeerTLS.Cert, c.PeerTLS.CA, &pair, authorities, now); err != nil {
		return "", fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return cluster, nil
}

// checkPair reads the files of one port, and checks what concerns both ports. The prefix is that of the port's flags.
func checkPair(prefix string, files transport.TLSFiles, now time.Time) (pair tls.Certificate, authorities *x509.CertPool, err error) {
	for _, f := range []struct{ flag, path string }{{"cert", files.Cert}, {"key", files.Key}, {"ca", files.CA}, {"crl", files.CRL}} {
		if err := readable(f.path); err != nil {
			return pair, nil, fmt.Errorf("--%s-%s %s: %w: give a file that the user of this node may read", prefix, f.flag, f.path, err)
		}
	}
	if pair, err = tls.LoadX509KeyPair(files.Cert, files.Key); err != nil {
		return pair, nil, fmt.Errorf("--%s-cert %s and --%s-key %s: %w: give a certificate and the key that belongs to it, both in PEM", prefix, files.Cert, prefix, files.Key, err)
	}
	authorities = x509.NewCertPool()
	if files.CA != "" {
		text, err := os.ReadFile(files.CA)
		if err != nil {
			return pair, nil, err
		}
		if !authorities.AppendCertsFromPEM(text) {
			return pair, nil, fmt.Errorf("--%s-ca %s has no certificate: give the certificate of the authority, in PEM", prefix, files.CA)
		}
	}
	if err := checkValidity(pair.Leaf, now); err != nil {
		return pair, nil, fmt.Errorf("--%s-cert %s %w", prefix, files.Cert, err)
	}
	return pair, authorities, nil
}

// readable returns an error unless the file can be read.
func readable(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		return failed.Err
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// checkValidity returns an error if a certificate has expired or is not valid yet.
func checkValidity(cert *x509.Certificate, now time.Time) error {
	switch {
	case now.After(cert.NotAfter):
		return fmt.Errorf("expired on %s: replace the file, as with qlock tls renew", cert.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(cert.NotBefore):
		return fmt.Errorf("is valid from %s on, and this machine's clock says %s: set the clock, or replace the file",
			cert.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// checkServer returns an error for a certificate that clients refuse because of its usage. Who signed it is between
// them and their authorities.
func checkServer(flag string, cert *x509.Certificate) error {
	if len(cert.ExtKeyUsage) == 0 && len(cert.UnknownExtKeyUsage) == 0 {
		return nil
	}
	for _, usage := range cert.ExtKeyUsage {
		if usage == x509.ExtKeyUsageServerAuth || usage == x509.ExtKeyUsageAny {
			return nil
		}
	}
	return fmt.Errorf("%s is not for servers: give one with the extended key usage serverAuth, as qlock tls init makes it", flag)
}

// checkPeer returns an error for a certificate that other nodes refuse. They use the same authority.
func checkPeer(flag, authority string, pair *tls.Certificate, roots *x509.CertPool, now time.Time) error {
	intermediates := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		if cert, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(cert)
		}
	}
	for _, usage := range []struct {
		name string
		key  x509.ExtKeyUsage
	}{{"serverAuth", x509.ExtKeyUsageServerAuth}, {"clientAuth", x509.ExtKeyUsageClientAuth}} {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage.key}})
		refused := x509.CertificateInvalidError{}
		switch {
		case err == nil:
		case errors.As(err, &refused) && refused.Reason == x509.IncompatibleUsage:
			return fmt.Errorf("%s lacks the extended key usage %s: nodes are servers and clients of each other, give one with both, as qlock tls init makes it", flag, usage.name)
		default:
			return fmt.Errorf("%s is not accepted by --peer-tls-ca %s: %w: give the authority that signed the certificates of all nodes", flag, authority, err)
		}
	}
	return nil
}
