package transport

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

var (
	// ErrRevoked is returned for a certificate that its authority has revoked.
	ErrRevoked = errors.New("the certificate is revoked")
	// ErrExpired is returned for a certificate whose end has passed.
	ErrExpired = errors.New("the certificate has expired")
)

// maxCRL bounds the file with the revocation lists, in bytes: about 400,000 certificates.
const maxCRL = 16 << 20

// revocations are the revoked certificates of some authorities. They are never changed. A nil *revocations revokes
// nothing.
type revocations struct {
	lists []revocationList
	first time.Time // the first next update of the lists
}

// revocationList is the list of one authority.
type revocationList struct {
	issuer  *x509.Certificate
	revoked map[string]time.Time // serial number, as bytes, to the time of revocation
}

// readCRL reads the revocation lists in a file. authorities is the PEM of the certificates that may have signed them.
func readCRL(path string, authorities []byte) (*revocations, error) {
	lists, err := parseCRL(path)
	if err != nil {
		return nil, fmt.Errorf("%w: CRL %s: %w", ErrTLSFiles, path, err)
	}
	r := &revocations{}
	for _, list := range lists {
		issuer, err := signer(list, authorities)
		if err != nil {
			return nil, fmt.Errorf("%w: CRL %s: %w", ErrTLSFiles, path, err)
		}
		if time.Now().After(list.NextUpdate) {
			return nil, fmt.Errorf("%w: %w", ErrTLSFiles, staleCRL(path, list.NextUpdate))
		}
		if r.first.IsZero() || list.NextUpdate.Before(r.first) {
			r.first = list.NextUpdate
		}
		revoked := make(map[string]time.Time, len(list.RevokedCertificateEntries))
		for _, entry := range list.RevokedCertificateEntries {
			revoked[string(entry.SerialNumber.Bytes())] = entry.RevocationTime
		}
		r.lists = append(r.lists, revocationList{issuer, revoked})
	}
	return r, nil
}

func staleCRL(path string, due time.Time) error {
	return fmt.Errorf("CRL %s should have been replaced by %s: get a new one from its authority (qlock tls revoke writes one)", path, due.UTC().Format(time.RFC3339))
}

// parseCRL returns the lists in a file, without verifying their signatures.
func parseCRL(path string) ([]*x509.RevocationList, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxCRL {
		return nil, fmt.Errorf("it is larger than %d bytes", maxCRL)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxCRL))
	if err != nil {
		return nil, err
	}
	var ders [][]byte
	block, rest := pem.Decode(content)
	for ; block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "X509 CRL" {
			return nil, fmt.Errorf("it contains a PEM block of type %q, expected X509 CRL", block.Type)
		}
		ders = append(ders, block.Bytes)
	}
	switch {
	case len(ders) == 0:
		ders = [][]byte{content} // DER
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, fmt.Errorf("%d bytes after the last list are no PEM: the file may be truncated", len(rest))
	}
	lists := make([]*x509.RevocationList, 0, len(ders))
	for _, der := range ders {
		list, err := x509.ParseRevocationList(der)
		if err == nil {
			err = complete(list)
		}
		if err != nil {
			return nil, fmt.Errorf("malformed: %w", err)
		}
		lists = append(lists, list)
	}
	return lists, nil
}

// complete returns an error for a list that covers only some certificates or reasons. Such lists have critical
// extensions (RFC 5280, 5.2 and 5.3), which must not be ignored.
func complete(list *x509.RevocationList) error {
	if list.NextUpdate.IsZero() {
		return errors.New("it has no next update")
	}
	for _, extension := range list.Extensions {
		if extension.Critical {
			return fmt.Errorf("its critical extension %v is not supported: use a complete list", extension.Id)
		}
	}
	for _, entry := range list.RevokedCertificateEntries {
		for _, extension := range entry.Extensions {
			if extension.Critical {
				return fmt.Errorf("the critical extension %v of an entry is not supported: use the issuer's own list", extension.Id)
			}
		}
	}
	return nil
}

// signer returns the authority that signed the list.
func signer(list *x509.RevocationList, authorities []byte) (*x509.Certificate, error) {
	err := errors.New("none has its name")
	for block, rest := pem.Decode(authorities); block != nil; block, rest = pem.Decode(rest) {
		ca, parseErr := x509.ParseCertificate(block.Bytes)
		if parseErr != nil || !bytes.Equal(ca.RawSubject, list.RawIssuer) {
			continue
		}
		if err = list.CheckSignatureFrom(ca); err == nil {
			return ca, nil
		}
	}
	return nil, fmt.Errorf("no authority in the CA file signed the list of %q: %w", list.Issuer, err)
}

// due returns the time by which a new CRL is needed, zero if there is none.
func (r *revocations) due() time.Time {
	if r == nil {
		return time.Time{}
	}
	return r.first
}

// check returns ErrRevoked if one of the certificates that a peer presented is revoked.
func (r *revocations) check(presented []*x509.Certificate) error {
	if r == nil {
		return nil
	}
	for _, cert := range presented {
		for _, list := range r.lists {
			if since, ok := list.find(cert); ok {
				return fmt.Errorf("%w: %s, since %s", ErrRevoked, describe(cert), since.UTC().Format(time.RFC3339))
			}
		}
	}
	return nil
}

// find returns the time of a certificate's revocation.
func (l revocationList) find(cert *x509.Certificate) (since time.Time, ok bool) {
	if !bytes.Equal(cert.RawIssuer, l.issuer.RawSubject) {
		return since, false
	}
	// Authorities that replaced each other may have the same name, but not the same key.
	if theirs, its := l.issuer.SubjectKeyId, cert.AuthorityKeyId; len(theirs) > 0 && len(its) > 0 && !bytes.Equal(theirs, its) {
		return since, false
	}
	since, ok = l.revoked[string(cert.SerialNumber.Bytes())]
	return since, ok
}

// describe returns the name and the serial number of a certificate, for messages.
func describe(cert *x509.Certificate) string {
	name := cert.Subject.CommonName
	if len(cert.URIs) > 0 {
		name = cert.URIs[0].String()
	}
	return fmt.Sprintf("%q with serial number %x", name, cert.SerialNumber.Bytes())
}
