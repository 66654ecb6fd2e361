package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// ErrTLSFiles is returned when certificate files are missing, cannot be read or do not
// belong together.
var ErrTLSFiles = errors.New("TLS files")

// TLSFiles names the PEM files of one port or one client. Configurations made from it
// follow the files: they look at them at most once a second, when a handshake needs them,
// and a change takes effect from that handshake on. If the new files cannot be used, the
// last good ones stay in use; see OnReload.
type TLSFiles struct {
	// Cert and Key are a certificate, with its chain, and its key. A client may leave out
	// both.
	Cert, Key string
	// CA is what the other side's certificate has to be signed by. A client that leaves it
	// out trusts the system's authorities.
	CA string
}

// IsZero says that no file is named, which means plaintext.
func (f TLSFiles) IsZero() bool { return f == TLSFiles{} }

// Peer returns whom the certificate names, see PeerURI.
func (f TLSFiles) Peer() (cluster, id string, err error) {
	held, err := f.load()
	if err != nil {
		return "", "", err
	}
	if len(held.certificates) == 0 {
		return "", "", fmt.Errorf("%w: no certificate is named", ErrTLSFiles)
	}
	cluster, id, err = PeerFromCert(held.certificates[0].Leaf)
	if err != nil {
		err = fmt.Errorf("%s: %w", f.Cert, err)
	}
	return cluster, id, err
}

// Option changes a configuration made from TLSFiles.
type Option func(*source)

// OnReload has report called after each change of the files: with nil when the new files
// are in use, with an error, once for each, when they are not. It is called by a handshake
// and must not block.
func OnReload(report func(error)) Option {
	return func(s *source) { s.report = report }
}

// ServerConfig returns the configuration of a listening port. auth says whether clients
// need certificates; any value that verifies them needs CA. Sessions are not resumed: a
// resumed one would not be checked against a new CA.
func (f TLSFiles) ServerConfig(auth tls.ClientAuthType, opts ...Option) (*tls.Config, error) {
	if f.Cert == "" {
		return nil, fmt.Errorf("%w: a port needs a certificate and a key", ErrTLSFiles)
	}
	if f.CA == "" && auth >= tls.VerifyClientCertIfGiven {
		return nil, fmt.Errorf("%w: checking the certificates of clients needs a CA", ErrTLSFiles)
	}
	src, err := f.open(opts)
	if err != nil {
		return nil, err
	}
	base := &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             auth,
		SessionTicketsDisabled: true,
	}
	base.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		now := src.current()
		c := base.Clone()
		c.GetConfigForClient = nil
		c.Certificates, c.ClientCAs = now.certificates, now.pool
		return c, nil
	}
	// net/http and tls.Listen insist on a certificate in sight.
	base.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return &src.current().certificates[0], nil
	}
	return base, nil
}

// ClientConfig returns the configuration of a dialler. Its certificate follows the files
// always, its CA when it is dialled with Dial or passed through Fresh for each connection:
// crypto/tls has no hook that knows the address dialled and so could check it against a
// new CA safely.
func (f TLSFiles) ClientConfig(opts ...Option) (*tls.Config, error) {
	src, err := f.open(opts)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		RootCAs:              src.current().pool,
		GetClientCertificate: src.clientCertificate,
		ClientSessionCache:   following{src},
	}, nil
}

// Fresh returns a copy of a configuration for one connection: if it is from ClientConfig,
// with the CA of this moment.
func Fresh(config *tls.Config) *tls.Config {
	c := config.Clone()
	if f, ok := c.ClientSessionCache.(following); ok {
		c.RootCAs = f.source.current().pool
	}
	return c
}

// following remembers nothing, so that no session is resumed past a new CA, and leads
// Fresh from a configuration to its files: it is the one field of a tls.Config that
// survives Clone and can carry them.
type following struct{ source *source }

func (following) Get(string) (*tls.ClientSessionState, bool) { return nil, false }

func (following) Put(string, *tls.ClientSessionState) {}

func (s *source) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if certs := s.current().certificates; len(certs) > 0 {
		return &certs[0], nil
	}
	return &tls.Certificate{}, nil // none: the server says whether that will do
}

// material is what the files held at one moment. It is never changed.
type material struct {
	certificates []tls.Certificate // one or none
	pool         *x509.CertPool    // nil: the system's
}
