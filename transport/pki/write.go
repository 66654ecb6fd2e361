package pki

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
)

// writer records which files it has written, to report or to remove them.
type writer struct {
	written []string
}

// finish returns the files written, or removes them if there was an error.
func (w *writer) finish(err error) ([]string, error) {
	if err == nil {
		return w.written, nil
	}
	for _, path := range w.written {
		err = errors.Join(err, os.Remove(path))
	}
	return nil, err
}

// sign writes a new certificate.
func (s settings) sign(w *writer, ca *pair, path string, template *x509.Certificate) error {
	p, err := sign(template, ca, s.life)
	if err != nil {
		return err
	}
	return w.pair(path, p)
}

// pair writes <path>.crt and <path>.key.
func (w *writer) pair(path string, p *pair) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return err
	}
	if err := w.file(path+".crt", "CERTIFICATE", p.cert.Raw, 0o644); err != nil {
		return err
	}
	return w.file(path+".key", "PRIVATE KEY", der, 0o600)
}

func (w *writer) emptyList(ca *pair, path string) error {
	der, err := newList(ca, nil, big.NewInt(1), 0)
	if err != nil {
		return err
	}
	return w.file(path, crlType, der, 0o644)
}

func (w *writer) file(path, kind string, der []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %s; certificates are never overwritten: move it away or choose another directory", ErrExists, path)
	}
	if err != nil {
		return err
	}
	w.written = append(w.written, path)
	err = pem.Encode(f, &pem.Block{Type: kind, Bytes: der})
	return errors.Join(err, f.Sync(), f.Close())
}
