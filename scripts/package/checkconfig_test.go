package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// tlsDir is where the pods have their certificates.
const tlsDir = "/etc/quorumlock/tls"

// TestPodsHaveAGoodConfiguration has qlockd check the command line of each pod, with certificates as cert-manager would
// issue them, where the volume puts them.
func TestPodsHaveAGoodConfiguration(t *testing.T) {
	artifact(t, "SHA256SUMS")
	qlockd := filepath.Join(built.dir, "build", host.dir(), "qlockd")
	m := decode(t)
	dir := t.TempDir()
	m.issue(t, dir)
	for i := range *m.set.Spec.Replicas {
		pod := fmt.Sprintf("%s-%d", m.set.Name, i)
		// The ports of this machine may be in use, and its directories belong to others.
		replace := strings.NewReplacer("$(POD_NAME)", pod, "$(POD_NAMESPACE)", m.set.Namespace, tlsDir, dir, stateDir, t.TempDir())
		var args []string
		for _, arg := range m.set.Spec.Template.Spec.Containers[0].Args {
			args = append(args, regexp.MustCompile(`^(--\w+-addr=0\.0\.0\.0):\d+$`).ReplaceAllString(replace.Replace(arg), "$1:0"))
		}
		out, err := exec.Command(qlockd, append(args, "--check-config")...).CombinedOutput()
		if err != nil || !strings.HasSuffix(string(out), "configuration ok\n") {
			t.Errorf("%s: qlockd %s: %v\n%s", pod, strings.Join(args, " "), err, out)
		}
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "warning:") && !strings.Contains(line, ".svc.cluster.local") && !strings.Contains(line, "--backup-dir") && !strings.Contains(line, "files may be open") {
				t.Errorf("%s: %s", pod, line)
			}
		}
		if own := m.certificates[pod+"-server"].Spec.DNSNames; len(own) == 0 || !strings.Contains(strings.Join(args, " "), "--advertise-client-addr="+own[0]+":") {
			t.Errorf("%s: its certificate has the names %v, which are not the advertised one", pod, own)
		}
		if own := m.certificates[pod+"-peer"].Spec.URIs; len(own) != 1 || own[0] != "quorumlock://prod/"+pod {
			t.Errorf("%s: its peer certificate has %v", pod, own)
		}
	}
}

// issue writes the files of the volume with the certificates.
func (m *manifests) issue(t *testing.T, dir string) {
	t.Helper()
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: m.certificates["quorumlock-ca"].Spec.CommonName},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	authority, _ := sign(t, ca, ca, key, "87600h", key)
	for _, volume := range m.set.Spec.Template.Spec.Volumes {
		for _, source := range volume.Projected.Sources {
			c, ok := m.certificates[source.Secret.Name]
			if !ok {
				t.Fatalf("the volume uses the secret %s, which no certificate makes", source.Secret.Name)
			}
			own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			certificate, private := sign(t, c.template(t), ca, own, c.Spec.Duration, key)
			secret := map[string][]byte{"ca.crt": authority, "tls.crt": certificate, "tls.key": private}
			for _, item := range source.Secret.Items {
				path := filepath.Join(dir, item.Path)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, secret[item.Key], 0o600)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// template is what cert-manager makes of a certificate.
func (c certificate) template(t *testing.T) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: c.Spec.DNSNames}
	for _, text := range c.Spec.URIs {
		uri, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, uri)
	}
	for _, usage := range c.Spec.Usages {
		switch usage {
		case "digital signature":
			template.KeyUsage |= x509.KeyUsageDigitalSignature
		case "server auth":
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		case "client auth":
			template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		default:
			t.Fatalf("%s: unknown usage %q", c.Name, usage)
		}
	}
	return template
}

// sign returns a certificate and its key as PEM.
func sign(t *testing.T, template, parent *x509.Certificate, own *ecdsa.PrivateKey, duration string, by *ecdsa.PrivateKey) (certificate, key []byte) {
	t.Helper()
	life, err := time.ParseDuration(duration)
	if err != nil {
		t.Fatal(err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(life)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &own.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}
