package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// unfinished is the extension of files that Renew and Revoke have not put in place yet.
const unfinished = ".new"

// Renew replaces certificates by new ones with new keys and serial numbers and otherwise the same contents: those that
// are named (see Revoke), or, without names, those in dir that expire within a time and are not revoked. It replaces the
// files once all new ones are complete; an error before that leaves the old ones unchanged. Old certificates remain
// valid until they expire, so the new files can be distributed one after the other. It returns the new certificates.
func Renew(dir string, names []string, within time.Duration, opts ...Option) ([]Certificate, error) {
	s, err := newSettings(opts)
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
	chosen, err := d.choose(ca, names, within)
	if err != nil {
		return nil, err
	}
	w := &writer{}
	for _, c := range chosen {
		if err = s.renew(w, ca, c); err != nil {
			break
		}
	}
	if _, err := w.finish(err); err != nil {
		return nil, err
	}
	renewed := make([]Certificate, 0, len(chosen))
	for _, c := range chosen {
		if err := install(c.base()); err != nil {
			return renewed, err
		}
		cert, err := readCert(c.Path)
		if err != nil {
			return renewed, err
		}
		renewed = append(renewed, d.describe(c.Kind, c.Name, c.Path, cert))
	}
	return renewed, nil
}

// choose returns the certificates to renew.
func (d *directory) choose(ca *pair, names []string, within time.Duration) (chosen []Certificate, err error) {
	end := time.Now().Add(within)
	if len(names) == 0 && ca.cert.NotAfter.Before(end) {
		return nil, fmt.Errorf("%w: the authority itself expires on %s, and no certificate outlives it: create a new one with qlock tls init in another directory",
			ErrInvalid, ca.cert.NotAfter.Format(time.DateOnly))
	}
	for _, c := range d.certs {
		if len(names) == 0 && c.Cert.NotAfter.Before(end) && c.Revoked.IsZero() {
			chosen = append(chosen, c)
		}
	}
	for _, name := range names {
		found, err := d.find(name)
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			if c.Kind == KindFile {
				return nil, fmt.Errorf("%w: %s is not in %s: renew it where its authority is", ErrInvalid, name, d.path)
			}
			if !slices.ContainsFunc(chosen, func(other Certificate) bool { return other.Path == c.Path }) {
				chosen = append(chosen, c)
			}
		}
	}
	return chosen, nil
}

// renew writes a new certificate and its key next to the old ones.
func (s settings) renew(w *writer, ca *pair, c Certificate) error {
	if err := c.Cert.CheckSignatureFrom(ca.cert); err != nil {
		return fmt.Errorf("%w: the authority did not sign %s: %w", ErrInvalid, c.Path, err)
	}
	if err := resume(c.base()); err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject:     c.Cert.Subject,
		URIs:        c.Cert.URIs,
		DNSNames:    c.Cert.DNSNames,
		IPAddresses: c.Cert.IPAddresses,
		ExtKeyUsage: c.Cert.ExtKeyUsage,
	}
	p, err := sign(template, ca, s.life)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return err
	}
	if err := w.file(c.base()+".key"+unfinished, "PRIVATE KEY", der, 0o600); err != nil {
		return err
	}
	return w.file(c.base()+".crt"+unfinished, "CERTIFICATE", p.cert.Raw, 0o644)
}

// install puts a new key and its certificate in place of the old ones, with their permissions.
func install(base string) error {
	for _, ext := range []string{".key", ".crt"} {
		if old, err := os.Stat(base + ext); err == nil {
			if err := os.Chmod(base+ext+unfinished, old.Mode().Perm()); err != nil {
				return err
			}
		}
	}
	if err := os.Rename(base+".key"+unfinished, base+".key"); err != nil {
		return err
	}
	return os.Rename(base+".crt"+unfinished, base+".crt")
}

// resume cleans up after a Renew that was interrupted. If it was interrupted between the two renames of install, the
// new certificate belongs to the key in place.
func resume(base string) error {
	if _, err := tls.LoadX509KeyPair(base+".crt"+unfinished, base+".key"); err == nil {
		return os.Rename(base+".crt"+unfinished, base+".crt")
	}
	for _, ext := range []string{".key", ".crt"} {
		if err := os.Remove(base + ext + unfinished); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
