package pki

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCertificatesThatAreSigned(t *testing.T) {
	ca, err := newAuthority("c1")
	if err != nil {
		t.Fatal(err)
	}
	if ca.cert.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageCRLSign || !ca.cert.IsCA {
		t.Errorf("the authority is for %v", ca.cert.KeyUsage)
	}
	one, err := sign(clientCert("c1", "a"), ca, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if one.cert.KeyUsage != x509.KeyUsageDigitalSignature || one.cert.SerialNumber.Sign() <= 0 || one.cert.SerialNumber.BitLen() < 64 ||
		one.cert.SerialNumber.Cmp(ca.cert.SerialNumber) == 0 || !one.cert.NotAfter.Before(ca.cert.NotAfter) {
		t.Errorf("for %v, serial %v, until %v", one.cert.KeyUsage, one.cert.SerialNumber, one.cert.NotAfter)
	}
	if one, err = sign(clientCert("c1", "a"), ca, 2*authorityLife); err != nil || !one.cert.NotAfter.Equal(ca.cert.NotAfter) {
		t.Errorf("%v, it outlives its authority", err)
	}
	if _, err := sign(&x509.Certificate{DNSNames: []string{"\u00e9"}}, ca, time.Hour); err == nil {
		t.Error("a name that cannot be in a certificate is in one")
	}
}

// TestAuthoritiesThatAreNone checks that each file of an authority must have the contents that its name
// promises, and that both must match.
func TestAuthoritiesThatAreNone(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(edwards)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	for name, c := range map[string]struct {
		files map[string]string // name to content, or to the file that is moved there
		want  string
	}{
		"a certificate that is none":   {map[string]string{"ca.crt": block("CERTIFICATE", []byte("no"))}, "ca.crt: "},
		"a certificate that is a key":  {map[string]string{"ca.crt": "<ca.key"}, "holds no CERTIFICATE"},
		"a key that is none":           {map[string]string{"ca.key": block("PRIVATE KEY", []byte("no"))}, "ca.key: "},
		"a key of another kind":        {map[string]string{"ca.key": block("PRIVATE KEY", der)}, "are not an authority"},
		"a key of another kind of PEM": {map[string]string{"ca.key": block("EC PRIVATE KEY", der)}, "holds no PRIVATE KEY"},
		"another's key":                {map[string]string{"ca.key": "<clients/app/client.key"}, "are not an authority"},
		"a client with its key":        {map[string]string{"ca.key": "<clients/app/client.key", "ca.crt": "<clients/app/client.crt"}, "are not an authority"},
		"no PEM":                       {map[string]string{"ca.key": "key"}, "holds no PRIVATE KEY"},
	} {
		dir := t.TempDir()
		if _, err := Init(dir, "c1", nil, []string{"app"}); err != nil {
			t.Fatal(err)
		}
		for file, content := range c.files {
			if from, ok := strings.CutPrefix(content, "<"); ok {
				b, err := os.ReadFile(filepath.Join(dir, from))
				if err != nil {
					t.Fatal(err)
				}
				content = string(b)
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if p, err := readAuthority(filepath.Join(dir, "ca")); p != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if _, err := Extend(dir, "c1", nil, []string{"other"}); err == nil {
			t.Errorf("%s: it signs", name)
		}
	}
}

// TestFilesThatCannotBeWritten checks that a failed write is an error and leaves no files behind.
func TestFilesThatCannotBeWritten(t *testing.T) {
	nodes, clients := []Node{{ID: "n1"}}, []string{"app"}
	for _, blocked := range []string{
		"ca.crt", "ca.key", "crl.pem", "nodes", "nodes/n1/peer.crt", "nodes/n1/peer.key", "nodes/n1/server.crt", "nodes/n1/server.key",
		"clients", "clients/app/client.crt", "clients/app/client.key",
	} {
		dir := t.TempDir()
		at := filepath.Join(dir, blocked)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte("mine"), 0o600)); err != nil {
			t.Fatal(err)
		}
		written, err := Init(dir, "c1", nodes, clients)
		if err == nil || written != nil || strings.Contains(blocked, ".") != errors.Is(err, ErrExists) {
			t.Errorf("%s is there: wrote %v, %v", blocked, written, err)
		}
		var left []string
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, _ error) error {
			if !d.IsDir() {
				left = append(left, path)
			}
			return nil
		})
		if len(left) != 1 || left[0] != at {
			t.Errorf("%s is there: %v are left", blocked, left)
		}
	}
	if err := (&writer{}).file(filepath.Join(t.TempDir(), "none", "a"), "KEY", nil, 0o600); err == nil || errors.Is(err, ErrExists) {
		t.Errorf("a file in no directory: %v", err)
	}
}

func TestHosts(t *testing.T) {
	for host, want := range map[string]string{
		"host": "", "a.example": "", "*.example": "", "10.0.0.1": "", "::1": "", "fe80::1": "",
		"host:1": "without the port, as \"host\"", "[::1]:1": "without the port, as \"::1\"",
		"": "give a host name", "a b": "give a host name", "-a": "give a host name", "*": "give a host name",
	} {
		err := checkHost(host)
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", host, err, want)
		}
	}
}
