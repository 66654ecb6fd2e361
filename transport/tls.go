package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// ErrTLSFiles is returned when certificate files are missing, cannot be read or do not match.
var ErrTLSFiles = errors.New("TLS files")

// TLSFiles names the files of a port or a client, in PEM. Credentials and configurations made from it follow the
// files: they check them when a handshake needs them, at most once a second, and a change takes effect from that
// handshake on. If the new files cannot be used, the last good ones stay in use; see OnReload.
type TLSFiles struct {
	// Cert and Key are a certificate, with its chain, and its key. Both are optional for a client.
	Cert, Key string
	// CA is the authority that must have signed the peer's certificate. A client without it trusts the
	// system's authorities.
	CA string
	// CRL is a file with the certificate revocation lists of authorities in CA, in PEM or one in DER. A peer whose
	// certificate is listed is refused. Certificates of an authority without a list are not revoked. A list that
	// no authority in CA signed, or that is past its next update, is an error. Optional.
	CRL string
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
type Option func(*Credentials)

// OnReload sets a function that is called after each change of the files: with nil when the new files are in
// use, or once with an error when they cannot be used. It is also called, once, when the CRL in use passes its next
// update. It is called during a handshake or by Watch, must not block, and must not call the Credentials.
func OnReload(report func(error)) Option {
	return func(c *Credentials) { c.report = report }
}

// ServerConfig returns Credentials.ServerConfig of the files.
func (f TLSFiles) ServerConfig(auth tls.ClientAuthType, opts ...Option) (*tls.Config, error) {
	c, err := f.Open(opts...)
	if err != nil {
		return nil, err
	}
	return c.ServerConfig(auth)
}

// ClientConfig returns Credentials.ClientConfig of the files.
func (f TLSFiles) ClientConfig(opts ...Option) (*tls.Config, error) {
	c, err := f.Open(opts...)
	if err != nil {
		return nil, err
	}
	return c.ClientConfig(), nil
}

// ServerConfig returns the configuration of a listening port. auth determines whether clients need
// certificates; all values that verify them require a CA. Sessions are not resumed, because a resumed
// session would not be checked against a new CA.
func (c *Credentials) ServerConfig(auth tls.ClientAuthType) (*tls.Config, error) {
	if c.files.Cert == "" {
		return nil, fmt.Errorf("%w: a port needs a certificate and a key", ErrTLSFiles)
	}
	if c.files.CA == "" && auth >= tls.VerifyClientCertIfGiven {
		return nil, fmt.Errorf("%w: checking the certificates of clients needs a CA", ErrTLSFiles)
	}
	base := &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             auth,
		SessionTicketsDisabled: true,
	}
	base.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.current()
		config := base.Clone()
		config.GetConfigForClient = nil
		config.Certificates, config.ClientCAs = now.certificates, now.pool
		config.VerifyConnection = now.verifyConnection
		return config, nil
	}
	// net/http and tls.Listen require a certificate in the configuration.
	base.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return &c.current().certificates[0], nil
	}
	return base, nil
}

// ClientConfig returns the configuration of a dialler. Its certificate and its CRL always follow the files. Its CA
// does so only for connections that use Dial, or pass the configuration through Fresh: crypto/tls has no
// hook that knows the dialled address and could check it against a new CA safely.
func (c *Credentials) ClientConfig() *tls.Config {
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		RootCAs:              c.current().pool,
		GetClientCertificate: c.clientCertificate,
		VerifyConnection:     func(state tls.ConnectionState) error { return c.current().verifyConnection(state) },
		ClientSessionCache:   following{c},
	}
}

// Fresh returns a copy of a configuration for one connection. If the configuration is from ClientConfig,
// the copy has the current CA.
func Fresh(config *tls.Config) *tls.Config {
	c := config.Clone()
	if f, ok := c.ClientSessionCache.(following); ok {
		c.RootCAs = f.credentials.current().pool
	}
	return c
}

// following caches nothing, so no session is resumed without being checked against a new CA. It also
// gives Fresh access to the files of a configuration: it is the only field of a tls.Config that survives
// Clone and can do so.
type following struct{ credentials *Credentials }

func (following) Get(string) (*tls.ClientSessionState, bool) { return nil, false }

func (following) Put(string, *tls.ClientSessionState) {}

func (c *Credentials) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if certs := c.current().certificates; len(certs) > 0 {
		return &certs[0], nil
	}
	return &tls.Certificate{}, nil // no certificate: the server decides whether to accept that
}

// material is the contents of the files at one moment. It is never changed.
type material struct {
	certificates []tls.Certificate // one or none
	pool         *x509.CertPool    // nil: the system's
	crl          *revocations      // nil: there is none
}

// verifyConnection returns ErrRevoked if the peer presented a revoked certificate. crypto/tls has verified all else.
func (m *material) verifyConnection(state tls.ConnectionState) error {
	return m.crl.check(state.PeerCertificates)
}
