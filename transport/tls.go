package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// ErrTLSFiles is returned when certificate files are missing, cannot be read or do not match.
var ErrTLSFiles = errors.New("TLS files")

// TLSFiles names the PEM files of a port or a client. Configurations made from it follow the files: they
// check them when a handshake needs them, at most once a second, and a change takes effect from that
// handshake on. If the new files cannot be used, the last good ones stay in use; see OnReload.
type TLSFiles struct {
	// Cert and Key are a certificate, with its chain, and its key. Both are optional for a client.
	Cert, Key string
	// CA is the authority that must have signed the peer's certificate. A client without it trusts the
	// system's authorities.
	CA string
}

// IsZero reports whether no file is named, which means plaintext.
func (f TLSFiles) IsZero() bool { return f == TLSFiles{} }

// Peer returns the node that the certificate names, see PeerURI.
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

// OnReload sets a function that is called after each change of the files: with nil when the new files are in
// use, or once with an error when they cannot be used. It is called during a handshake and must not block.
func OnReload(report func(error)) Option {
	return func(s *source) { s.report = report }
}

// ServerConfig returns the configuration of a listening port. auth determines whether clients need
// certificates; all values that verify them require a CA. Sessions are not resumed, because a resumed
// session would not be checked against a new CA.
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
	// net/http and tls.Listen require a certificate in the configuration.
	base.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return &src.current().certificates[0], nil
	}
	return base, nil
}

// ClientConfig returns the configuration of a dialler. Its certificate always follows the files. Its CA
// does so only for connections that use Dial, or pass the configuration through Fresh: crypto/tls has no
// hook that knows the dialled address and could check it against a new CA safely.
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

// Fresh returns a copy of a configuration for one connection. If the configuration is from ClientConfig,
// the copy has the current CA.
func Fresh(config *tls.Config) *tls.Config {
	c := config.Clone()
	if f, ok := c.ClientSessionCache.(following); ok {
		c.RootCAs = f.source.current().pool
	}
	return c
}

// following caches nothing, so no session is resumed without being checked against a new CA. It also
// gives Fresh access to the files of a configuration: it is the only field of a tls.Config that survives
// Clone and can do so.
type following struct{ source *source }

func (following) Get(string) (*tls.ClientSessionState, bool) { return nil, false }

func (following) Put(string, *tls.ClientSessionState) {}

func (s *source) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if certs := s.current().certificates; len(certs) > 0 {
		return &certs[0], nil
	}
	return &tls.Certificate{}, nil // no certificate: the server decides whether to accept that
}

// material is the contents of the files at one moment. It is never changed.
type material struct {
	certificates []tls.Certificate // one or none
	pool         *x509.CertPool    // nil: the system's
}
