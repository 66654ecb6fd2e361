package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Kind is what a certificate is for.
type Kind string

// The kinds of certificates in a directory.
const (
	KindAuthority Kind = "authority"
	KindPeer      Kind = "peer"   // the peer port of a node
	KindServer    Kind = "server" // the client and the HTTP port of a node
	KindClient    Kind = "client"
	// KindFile is a certificate outside the directory.
	KindFile Kind = "file"
)

// Certificate is a certificate of an authority.
type Certificate struct {
	Kind Kind
	// Name is the node or the client; empty for the authority.
	Name string
	// Path is the file, with the directory. It is empty for a certificate of which only the serial number is known.
	Path string
	// Cert is nil if only the serial number is known.
	Cert *x509.Certificate
	// Serial is the serial number in hexadecimal, as identity.Serial returns it.
	Serial string
	// Revoked is the time of the revocation; zero if the certificate is not revoked.
	Revoked time.Time
}

// base returns the path without its extension.
func (c Certificate) base() string { return strings.TrimSuffix(c.Path, ".crt") }

// List returns the certificates that Init and Extend wrote to dir: the authority, those of the nodes, those of the
// clients.
func List(dir string) ([]Certificate, error) {
	d, err := readDirectory(dir)
	if err != nil {
		return nil, err
	}
	return append([]Certificate{{Kind: KindAuthority, Path: filepath.Join(dir, "ca.crt"), Cert: d.authority, Serial: serial(d.authority)}}, d.certs...), nil
}

// directory is the contents of a directory, without keys.
type directory struct {
	path      string
	authority *x509.Certificate
	list      *x509.RevocationList // nil: there is none
	certs     []Certificate
}

func readDirectory(dir string) (*directory, error) {
	authority, err := readCert(filepath.Join(dir, "ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w directory %q: it has no ca.crt: give the directory that qlock tls init wrote", ErrInvalid, dir)
	}
	if err != nil {
		return nil, err
	}
	d := &directory{path: dir, authority: authority}
	if d.list, err = readList(CRLPath(dir), authority); err != nil {
		return nil, err
	}
	for _, files := range []struct {
		kind        Kind
		under, name string
	}{{KindPeer, "nodes", "peer.crt"}, {KindServer, "nodes", "server.crt"}, {KindClient, "clients", "client.crt"}} {
		if err := d.add(files.kind, files.under, files.name); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// add adds the certificates of one kind, one in each directory below under.
func (d *directory) add(kind Kind, under, name string) error {
	owners, err := os.ReadDir(filepath.Join(d.path, under))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, owner := range owners {
		path := filepath.Join(d.path, under, owner.Name(), name)
		cert, err := readCert(path)
		switch {
		case err == nil:
			d.certs = append(d.certs, d.describe(kind, owner.Name(), path, cert))
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return nil
}

func (d *directory) describe(kind Kind, name, path string, cert *x509.Certificate) Certificate {
	return Certificate{Kind: kind, Name: name, Path: path, Cert: cert, Serial: serial(cert), Revoked: revokedAt(d.list, cert.SerialNumber)}
}

// find returns the certificates that a text names: a node, a client, a path within the directory such as nodes/n1 or
// nodes/n1/peer.crt, or any file with a certificate of this authority.
func (d *directory) find(text string) (found []Certificate, err error) {
	var node, client bool
	for _, c := range d.certs {
		switch {
		case c.Name == text:
			found = append(found, c)
			node, client = node || c.Kind != KindClient, client || c.Kind == KindClient
		case d.within(c.Path, text):
			found = append(found, c)
		case sameFile(c.Path, text):
			return []Certificate{c}, nil
		}
	}
	switch {
	case node && client:
		return nil, fmt.Errorf("%w: %q is a node and a client: give nodes/%s or clients/%s", ErrInvalid, text, text, text)
	case len(found) > 0:
		return found, nil
	}
	cert, err := readCert(text)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %q is neither a node or client in %s nor a certificate file", ErrInvalid, text, d.path)
	}
	if err != nil {
		return nil, err
	}
	if sameFile(filepath.Join(d.path, "ca.crt"), text) {
		return nil, fmt.Errorf("%w: %s is the authority itself: replace it with qlock tls init in another directory", ErrInvalid, text)
	}
	if err := cert.CheckSignatureFrom(d.authority); err != nil {
		return nil, fmt.Errorf("%w: the authority in %s did not sign %s: %w", ErrInvalid, d.path, text, err)
	}
	return []Certificate{d.describe(KindFile, "", text, cert)}, nil
}

// within reports whether text names the file, relative to the directory: nodes/n1, nodes/n1/peer or nodes/n1/peer.crt.
func (d *directory) within(path, text string) bool {
	relative, err := filepath.Rel(d.path, path)
	relative, text = filepath.ToSlash(relative), strings.TrimSuffix(filepath.ToSlash(text), "/")
	return err == nil && strings.Contains(text, "/") &&
		(relative == text || relative == text+".crt" || strings.HasPrefix(relative, text+"/"))
}

func sameFile(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(x, y)
}

func readCert(path string) (*x509.Certificate, error) {
	der, err := readPEM(path, "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
	}
	return cert, nil
}
