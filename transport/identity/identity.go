package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Anonymous is the identity of callers that present neither a certificate nor a token.
const Anonymous = "anonymous"

// ErrNone is returned for a certificate or a token that identifies no client. The message says why.
var ErrNone = errors.New("no client identity")

const (
	scheme       = "quorumlock"
	spiffe       = "spiffe"
	clientPrefix = "/client/"
	// maxBytes bounds an identity.
	maxBytes = 256
)

// URI returns the name of a client in its certificate: quorumlock://<cluster>/client/<name>, a subject alternative
// name of type URI.
func URI(cluster, name string) *url.URL {
	return &url.URL{Scheme: scheme, Host: cluster, Path: clientPrefix + name}
}

var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@/-]{0,127}$`)

// ValidName returns an error for a text that can be the name of neither a certificate nor a token.
func ValidName(text string) error {
	switch {
	case text == Anonymous:
		return fmt.Errorf("the name %q is reserved for callers without an identity", text)
	case !name.MatchString(text):
		return fmt.Errorf("the name %q is not allowed: use up to 128 letters, digits, '.', '_', '@', '/' and '-', beginning with a letter or digit", text)
	}
	return nil
}

// FromCertificate returns the caller that a verified client certificate identifies, without its address. cluster is
// the cluster's id, or empty if it is not known yet. It returns ErrNone for a certificate of a node, of a server, of
// another cluster, without a name, or that is not valid for clients.
func FromCertificate(cert *x509.Certificate, cluster string) (*wire.Caller, error) {
	named, err := nameIn(cert, cluster)
	if err == nil {
		err = validForClients(cert)
	}
	if err != nil {
		return nil, err
	}
	return &wire.Caller{Identity: named, Credential: wire.CertificateCredential + Serial(cert)}, nil
}

// Serial returns the serial number of a certificate as other tools print it.
func Serial(cert *x509.Certificate) string { return hex.EncodeToString(cert.SerialNumber.Bytes()) }

func nameIn(cert *x509.Certificate, cluster string) (string, error) {
	ours, ids := urisOf(cert, scheme), urisOf(cert, spiffe)
	switch {
	case len(ours)+len(ids) > 1:
		return "", fmt.Errorf("%w: the certificate has several names", ErrNone)
	case len(ours) == 1:
		return fromURI(ours[0], cluster)
	case len(ids) == 1:
		return bounded(ids[0].String())
	case cert.Subject.CommonName == "":
		return "", fmt.Errorf("%w: the certificate has neither a URI nor a common name", ErrNone)
	}
	return bounded("cn:" + cert.Subject.CommonName)
}

// validForClients returns ErrNone for a certificate whose extended key usage does not say that it is a client's, and
// nothing else: others are those of servers. The SPIFFE standard requires both usages, and its id names no server.
func validForClients(cert *x509.Certificate) error {
	usable := func(u x509.ExtKeyUsage) bool { return slices.Contains(cert.ExtKeyUsage, u) }
	server := usable(x509.ExtKeyUsageServerAuth) && len(urisOf(cert, spiffe)) == 0
	switch {
	case server || usable(x509.ExtKeyUsageAny):
		return fmt.Errorf("%w: the certificate is that of a server: its extended key usage must be clientAuth only", ErrNone)
	case !usable(x509.ExtKeyUsageClientAuth):
		return fmt.Errorf("%w: the certificate is not said to be that of a client: its extended key usage must be clientAuth", ErrNone)
	}
	return nil
}

func urisOf(cert *x509.Certificate, scheme string) (found []*url.URL) {
	for _, u := range cert.URIs {
		if u.Scheme == scheme {
			found = append(found, u)
		}
	}
	return found
}

func fromURI(u *url.URL, cluster string) (string, error) {
	who, isClient := strings.CutPrefix(u.Path, clientPrefix)
	switch {
	case !isClient:
		return "", fmt.Errorf("%w: the certificate is that of the node %q: use a client's (qlock tls add --client NAME)", ErrNone, u)
	case u.String() != URI(u.Host, who).String():
		return "", fmt.Errorf("%w: %q is not of the form quorumlock://<cluster>/client/<name>", ErrNone, u)
	case cluster != "" && u.Host != cluster:
		return "", fmt.Errorf("%w: the certificate is for cluster %q, but this is cluster %q: use one for this cluster, or correct --endpoints", ErrNone, u.Host, cluster)
	}
	if err := ValidName(who); err != nil {
		return "", fmt.Errorf("%w: %w", ErrNone, err)
	}
	return who, nil
}

// bounded refuses an identity that cannot be stored or shown.
func bounded(who string) (string, error) {
	if len(who) > maxBytes {
		return "", fmt.Errorf("%w: the name in the certificate has %d bytes, at most %d are allowed", ErrNone, len(who), maxBytes)
	}
	if err := wire.ValidText("the name in the certificate", who); err != nil {
		return "", fmt.Errorf("%w: %w", ErrNone, err)
	}
	return who, nil
}

const (
	tokenPrefix = "ql_"
	tokenBytes  = 32
)

// NewToken returns a random token.
func NewToken() string {
	secret := make([]byte, tokenBytes)
	_, _ = rand.Read(secret) // never fails
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(secret)
}

// HashToken returns the SHA-256 under which a token is stored, and ErrNone for a text that is no token. The error does
// not contain the text.
func HashToken(token string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(token, tokenPrefix)
	// The decoder skips newlines and stops at a fault: only what is encoded to the same text was a token.
	secret, _ := base64.RawURLEncoding.DecodeString(encoded)
	if !ok || len(secret) != tokenBytes || base64.RawURLEncoding.EncodeToString(secret) != encoded {
		return nil, fmt.Errorf("%w: the token is malformed: it is the text beginning with %s that qlock token create printed", ErrNone, tokenPrefix)
	}
	sum := sha256.Sum256([]byte(token))
	return sum[:], nil
}

// TokenID returns the id of the token with that SHA-256.
func TokenID(sum []byte) string { return hex.EncodeToString(sum[:min(len(sum), 6)]) }
