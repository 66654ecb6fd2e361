package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/transport/identity"
)

// crlType is the type of a revocation list in PEM.
const crlType = "X509 CRL"

// CRLPath returns the path of the revocation list in dir.
func CRLPath(dir string) string { return filepath.Join(dir, "crl.pem") }

// CRL is a revocation list that Revoke wrote.
type CRL struct {
	Path string
	// Number increases with each list of the authority.
	Number *big.Int
	// Next is the time by which the list must have been replaced.
	Next time.Time
	// Entries is the number of revoked certificates.
	Entries int
	// Named are the certificates that were to be revoked. Of one that is known by its serial number only, Cert is nil.
	Named []Certificate
	// Added are those of them that the previous list did not revoke.
	Added []Certificate
}

// Revoke adds certificates to the revocation list in dir, and replaces the file. A certificate is named by its node or
// client, which means all of its certificates in dir, by a path within dir, by a file anywhere, or by its serial number
// in hexadecimal. Without any of them, the list is only renewed. A certificate that is revoked already stays so.
func Revoke(dir string, names, serials []string, opts ...Option) (*CRL, error) {
	s, err := newSettings(append([]Option{ValidFor(authorityLife)}, opts...))
	if err != nil {
		return nil, err
	}
	ca, err := readAuthority(filepath.Join(dir, "ca"))
	if err != nil {
		return nil, err
	}
	d, err := readDirectory(dir)
	if err != nil {
		return nil, err
	}
	named, err := d.named(names, serials)
	if err != nil {
		return nil, err
	}
	entries, number := d.entries()
	crl := &CRL{Path: CRLPath(dir), Number: number, Named: named}
	known := map[string]bool{}
	for _, entry := range entries {
		known[entry.SerialNumber.String()] = true
	}
	now := time.Now()
	for _, c := range named {
		value, _ := new(big.Int).SetString(c.Serial, 16)
		if known[value.String()] {
			continue
		}
		known[value.String()] = true
		entries = append(entries, x509.RevocationListEntry{SerialNumber: value, RevocationTime: now})
		c.Revoked = now
		crl.Added = append(crl.Added, c)
	}
	crl.Entries = len(entries)
	der, err := newList(ca, entries, number, s.life)
	if err != nil {
		return nil, err
	}
	crl.Next = nextUpdate(ca, s.life)
	return crl, replaceFile(crl.Path, der)
}

// named returns the certificates with these names and serial numbers.
func (d *directory) named(names, serials []string) (named []Certificate, err error) {
	for _, name := range names {
		found, err := d.find(name)
		if err != nil {
			return nil, err
		}
		named = append(named, found...)
	}
	for _, text := range serials {
		value, ok := new(big.Int).SetString(strings.ReplaceAll(text, ":", ""), 16)
		if !ok || value.Sign() <= 0 || value.BitLen() > 20*8 {
			return nil, fmt.Errorf("%w serial number %q: give up to 40 hexadecimal digits, as in qlock tls show and qlock audit", ErrInvalid, text)
		}
		if value.Cmp(d.authority.SerialNumber) == 0 {
			return nil, fmt.Errorf("%w: %s is the serial number of the authority itself", ErrInvalid, text)
		}
		c := Certificate{Serial: fmt.Sprintf("%x", value.Bytes())}
		for _, known := range d.certs {
			if known.Cert.SerialNumber.Cmp(value) == 0 {
				c = known
			}
		}
		named = append(named, c)
	}
	return named, nil
}

// entries returns the present entries of the list, and the number of the next list.
func (d *directory) entries() ([]x509.RevocationListEntry, *big.Int) {
	if d.list == nil {
		return nil, big.NewInt(1)
	}
	entries := make([]x509.RevocationListEntry, 0, len(d.list.RevokedCertificateEntries))
	for _, entry := range d.list.RevokedCertificateEntries {
		entries = append(entries, x509.RevocationListEntry{SerialNumber: entry.SerialNumber, RevocationTime: entry.RevocationTime, ReasonCode: entry.ReasonCode})
	}
	number := big.NewInt(1)
	if d.list.Number != nil {
		number.Add(number, d.list.Number)
	}
	return entries, number
}

// newList returns a revocation list in DER.
func newList(ca *pair, entries []x509.RevocationListEntry, number *big.Int, life time.Duration) ([]byte, error) {
	return x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number:                    number,
		ThisUpdate:                time.Now().Add(-clockSkew),
		NextUpdate:                nextUpdate(ca, life),
		RevokedCertificateEntries: entries,
	}, ca.cert, ca.key)
}

// nextUpdate returns the end of a list. There is no service that would replace it regularly, so by default it is the
// end of its authority.
func nextUpdate(ca *pair, life time.Duration) time.Time {
	if next := time.Now().Add(life); life > 0 && next.Before(ca.cert.NotAfter) {
		return next
	}
	return ca.cert.NotAfter
}

// readList returns the revocation list in a file, nil if there is no file.
func readList(path string, authority *x509.Certificate) (*x509.RevocationList, error) {
	der, err := readPEM(path, crlType)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := x509.ParseRevocationList(der)
	if err == nil {
		err = list.CheckSignatureFrom(authority)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s is not a list of the authority beside it: %w", ErrInvalid, path, err)
	}
	return list, nil
}

// revokedAt returns the time of a revocation, zero if there is none.
func revokedAt(list *x509.RevocationList, number *big.Int) time.Time {
	if list != nil {
		for _, entry := range list.RevokedCertificateEntries {
			if entry.SerialNumber.Cmp(number) == 0 {
				return entry.RevocationTime
			}
		}
	}
	return time.Time{}
}

func serial(cert *x509.Certificate) string { return identity.Serial(cert) }

// replaceFile replaces a revocation list, atomically.
func replaceFile(path string, der []byte) error {
	var content bytes.Buffer
	if err := pem.Encode(&content, &pem.Block{Type: crlType, Bytes: der}); err != nil {
		return err
	}
	f, err := os.OpenFile(path+unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content.Bytes())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path+unfinished))
	}
	return os.Rename(path+unfinished, path)
}
