package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/identity"
)

const (
	day = 24 * time.Hour
	// authorityLife is long, because replacing the authority means replacing every file.
	authorityLife = 10 * 365 * day
	// certificateLife gives two years to replace a certificate (Renew). Nodes load new files without a restart.
	certificateLife = 2 * 365 * day
	// clockSkew is how far the clock of a machine may be behind when it uses a new certificate.
	clockSkew = time.Hour
)

// pair is a certificate with its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(cluster string) (*pair, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "quorumlock " + cluster + " CA"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	return sign(template, nil, authorityLife)
}

// peerCert is valid for client and server, because every node dials and accepts.
func peerCert(cluster, id string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: id + " peer"},
		URIs:        []*url.URL{transport.PeerURI(cluster, id)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// serverCert is valid for clients as well, because the HTTP port forwards to the leader's HTTP port,
// which may require client certificates.
func serverCert(n Node) *x509.Certificate {
	cert := &x509.Certificate{
		Subject:     pkix.Name{CommonName: n.ID},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	hosts := n.Hosts
	if len(hosts) == 0 {
		hosts = []string{"localhost", "127.0.0.1", "::1"}
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, host)
		}
	}
	return cert
}

// clientCert identifies the client by its URI; the common name is for people.
func clientCert(cluster, name string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		URIs:        []*url.URL{identity.URI(cluster, name)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// sign creates a key and a certificate for it, signed by ca, or self-signed if ca is nil.
func sign(template *x509.Certificate, ca *pair, life time.Duration) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template.NotBefore, template.NotAfter = now.Add(-clockSkew), now.Add(life)
	parent, signer := template, key
	if ca != nil {
		template.KeyUsage = x509.KeyUsageDigitalSignature
		parent, signer = ca.cert, ca.key
		if template.NotAfter.After(ca.cert.NotAfter) {
			template.NotAfter = ca.cert.NotAfter
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &pair{cert, key}, err
}

// readAuthority reads <path>.crt and <path>.key.
func readAuthority(path string) (*pair, error) {
	certDER, err := readPEM(path+".crt", "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(certDER)
	if err != nil {
		return nil, fmt.Errorf("%s.crt: %w", path, err)
	}
	keyDER, err := readPEM(path+".key", "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(keyDER)
	if err != nil {
		return nil, fmt.Errorf("%s.key: %w", path, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(cert.PublicKey) || !cert.IsCA {
		return nil, fmt.Errorf("%w: %s.crt and %s.key are not an authority made here", ErrInvalid, path, path)
	}
	if time.Now().After(cert.NotAfter) {
		return nil, fmt.Errorf("%w: the authority %s.crt expired on %s: create a new one in another directory", ErrInvalid, path, cert.NotAfter.Format(time.DateOnly))
	}
	return &pair{cert, key}, nil
}

func readPEM(path, kind string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("%w: %s holds no %s in PEM", ErrInvalid, path, kind)
	}
	return block.Bytes, nil
}
