package pki_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/pki"
)

func load(t *testing.T, dir, pair string) *x509.Certificate {
	t.Helper()
	at := filepath.Join(dir, filepath.FromSlash(pair))
	cert, err := tls.LoadX509KeyPair(at+".crt", at+".key")
	if err != nil {
		t.Fatal(err)
	}
	return cert.Leaf
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestInit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	written, err := pki.Init(dir, "prod", []pki.Node{{ID: "n1", Hosts: []string{"lock1.example", "10.0.0.1"}}, {ID: "n2"}}, []string{"ops"})
	if err != nil {
		t.Fatal(err)
	}
	if found := files(t, dir); len(written) != 13 || !slices.Equal(found, slices.Sorted(slices.Values(written))) {
		t.Errorf("reported %v, found %v", written, found)
	}
	for _, path := range written {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, ".key") && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(load(t, dir, "ca"))
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for pair, c := range map[string]struct {
		names  string
		usages []x509.ExtKeyUsage
	}{
		"nodes/n1/peer":      {"quorumlock://prod/n1", both},
		"nodes/n2/peer":      {"quorumlock://prod/n2", both},
		"nodes/n1/server":    {"lock1.example 10.0.0.1", both},
		"nodes/n2/server":    {"localhost 127.0.0.1 ::1", both},
		"clients/ops/client": {"quorumlock://prod/client/ops", both[1:]},
	} {
		cert := load(t, dir, pair)
		if got := names(cert); got != c.names {
			t.Errorf("%s names %q, want %q", pair, got, c.names)
		}
		if !slices.Equal(cert.ExtKeyUsage, c.usages) || cert.IsCA {
			t.Errorf("%s is for %v", pair, cert.ExtKeyUsage)
		}
		key, ok := cert.PublicKey.(*ecdsa.PublicKey)
		if !ok || key.Curve != elliptic.P256() {
			t.Errorf("%s has a key of type %T", pair, cert.PublicKey)
		}
		if life := time.Until(cert.NotAfter); life < 365*24*time.Hour || life > 3*365*24*time.Hour || time.Until(cert.NotBefore) > 0 {
			t.Errorf("%s is valid from %v to %v", pair, cert.NotBefore, cert.NotAfter)
		}
		for _, usage := range c.usages {
			if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
				t.Errorf("%s: %v", pair, err)
			}
		}
	}
	if caller, err := identity.FromCertificate(load(t, dir, "clients/ops/client"), "prod"); err != nil || caller.Identity != "ops" {
		t.Errorf("the client certificate identifies %v, %v", caller, err)
	}
	for _, pair := range []string{"nodes/n1/peer", "nodes/n1/server"} {
		if caller, err := identity.FromCertificate(load(t, dir, pair), "prod"); !errors.Is(err, identity.ErrNone) {
			t.Errorf("%s identifies the client %v, %v", pair, caller, err)
		}
	}
	if cluster, id, err := transport.PeerFromCert(load(t, dir, "nodes/n1/peer")); cluster != "prod" || id != "n1" || err != nil {
		t.Errorf("the peer certificate names %q %q %v", cluster, id, err)
	}
}

// names returns a certificate's subject alternative names.
func names(cert *x509.Certificate) string {
	all := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		all = append(all, ip.String())
	}
	for _, u := range cert.URIs {
		all = append(all, u.String())
	}
	return strings.Join(all, " ")
}

func TestNothingIsOverwritten(t *testing.T) {
	dir := t.TempDir()
	nodes := []pki.Node{{ID: "n1"}}
	if _, err := pki.Init(dir, "prod", nodes, nil); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	if _, err := pki.Init(dir, "prod", nodes, nil); !errors.Is(err, pki.ErrExists) {
		t.Errorf("a second Init: %v, want ErrExists", err)
	}
	// n0 could be created but n1 could not, so neither is.
	if _, err := pki.Extend(dir, "prod", []pki.Node{{ID: "n0"}, {ID: "n1"}}, nil); !errors.Is(err, pki.ErrExists) {
		t.Errorf("extending by what is there: %v, want ErrExists", err)
	}
	if after := contents(t, dir); after != before {
		t.Errorf("the files changed from\n%s\nto\n%s", before, after)
	}
}

func contents(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	for _, path := range files(t, dir) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(path + "\n" + string(b))
	}
	return all.String()
}

func TestExtend(t *testing.T) {
	dir := t.TempDir()
	if _, err := pki.Extend(dir, "prod", nil, []string{"app"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without an authority: %v, want ErrNotExist", err)
	}
	if _, err := pki.Init(dir, "prod", nil, nil); err != nil {
		t.Fatal(err)
	}
	written, err := pki.Extend(dir, "prod", []pki.Node{{ID: "n4"}}, []string{"app"})
	if err != nil || len(written) != 6 {
		t.Fatalf("wrote %v, %v", written, err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(load(t, dir, "ca"))
	if _, err := load(t, dir, "nodes/n4/peer").Verify(x509.VerifyOptions{Roots: roots}); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func() error{
		"a client's key as the authority's": func() error {
			return os.Rename(filepath.Join(dir, "clients/app/client.key"), filepath.Join(dir, "ca.key"))
		},
		"no PEM": func() error { return os.WriteFile(filepath.Join(dir, "ca.key"), []byte("key"), 0o600) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if _, err := pki.Extend(dir, "prod", nil, []string{"new"}); !errors.Is(err, pki.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

func TestExtendOfNoAuthority(t *testing.T) {
	if written, err := pki.Extend(t.TempDir(), "c", []pki.Node{{ID: "n4"}}, nil); err == nil || len(written) > 0 {
		t.Errorf("wrote %v, %v", written, err)
	}
}

func TestNamesThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		cluster string
		nodes   []pki.Node
		clients []string
	}{
		"an empty cluster":     {"", nil, nil},
		"a cluster with space": {"my cluster", nil, nil},
		"a way out":            {"prod", []pki.Node{{ID: ".."}}, nil},
		"a path":               {"prod", []pki.Node{{ID: "a/b"}}, nil},
		"an empty part":        {"a..b", nil, nil},
		"an open end":          {"prod.", nil, nil},
		"the reserved client":  {"prod", nil, []string{"anonymous"}},
		"an address":           {"prod", []pki.Node{{ID: "n1@host"}}, nil},
		"twice":                {"prod", []pki.Node{{ID: "n1"}, {ID: "n1"}}, nil},
		"client twice":         {"prod", nil, []string{"a", "a"}},
		"client path":          {"prod", nil, []string{"../a"}},
		"a host with a port":   {"prod", []pki.Node{{ID: "n1", Hosts: []string{"host:7400"}}}, nil},
		"an empty host":        {"prod", []pki.Node{{ID: "n1", Hosts: []string{""}}}, nil},
	} {
		dir := t.TempDir()
		if _, err := pki.Init(dir, c.cluster, c.nodes, c.clients); !errors.Is(err, pki.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
		if found := files(t, dir); len(found) != 0 {
			t.Errorf("%s: wrote %v", name, found)
		}
	}
}
