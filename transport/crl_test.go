package transport_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
)

// withCRL adds the revocation list of an authority to files.
func withCRL(f transport.TLSFiles, dir string) transport.TLSFiles {
	f.CRL = pki.CRLPath(dir)
	return f
}

func revoke(t *testing.T, dir string, names ...string) {
	t.Helper()
	if _, err := pki.Revoke(dir, names, nil); err != nil {
		t.Fatal(err)
	}
}

// chainOf returns what a peer with this certificate presents.
func chainOf(t *testing.T, f transport.TLSFiles) []*x509.Certificate {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	return []*x509.Certificate{cert.Leaf}
}

// TestRevokedCertificateIsRefused checks the handshake in both directions, for configurations that existed before the
// revocation.
func TestRevokedCertificateIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		revoked []string
		ok      bool
	}{
		"the client's":            {[]string{"clients/app"}, false},
		"the server's":            {[]string{"nodes/n1/server"}, false},
		"others of the same CA":   {[]string{"clients/other", "nodes/n1/peer"}, true},
		"none":                    {nil, true},
		"the client's and others": {[]string{"clients/app", "clients/other"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				dir := authority(t)
				if _, err := pki.Extend(dir, "c1", nil, []string{"other"}); err != nil {
					t.Fatal(err)
				}
				server := mustServer(t, withCRL(serverFiles(dir), dir))
				client := mustClient(t, withCRL(clientFiles(dir), dir))
				if clientErr, serverErr := connect(server, client, "localhost:1"); clientErr != nil || serverErr != nil {
					t.Fatalf("at first: client %v, server %v", clientErr, serverErr)
				}
				revoke(t, dir, c.revoked...)
				elapse(time.Second)
				clientErr, serverErr := connect(server, client, "localhost:1")
				if c.ok != (clientErr == nil && serverErr == nil) || !c.ok && !errors.Is(errors.Join(clientErr, serverErr), transport.ErrRevoked) {
					t.Errorf("client %v, server %v", clientErr, serverErr)
				}
			})
		})
	}
}

// TestClientWithoutCertificate checks that a CRL does not change what is required of clients.
func TestClientWithoutCertificate(t *testing.T) {
	dir := authority(t)
	server, err := withCRL(serverFiles(dir), dir).ServerConfig(tls.VerifyClientCertIfGiven)
	if err != nil {
		t.Fatal(err)
	}
	if clientErr, serverErr := connect(server, mustClient(t, transport.TLSFiles{CA: clientFiles(dir).CA}), "localhost:1"); clientErr != nil || serverErr != nil {
		t.Errorf("client %v, server %v", clientErr, serverErr)
	}
}

// watched runs Watch and counts its calls.
type watched struct {
	calls chan struct{}
	stop  func()
}

func watch(t *testing.T, c *transport.Credentials) *watched {
	ctx, cancel := context.WithCancel(t.Context())
	w, done := &watched{calls: make(chan struct{}, 100)}, make(chan struct{})
	go func() {
		defer close(done)
		c.Watch(ctx, func() { w.calls <- struct{}{} })
	}()
	w.stop = func() {
		cancel()
		<-done
	}
	return w
}

func (w *watched) count() (n int) {
	for len(w.calls) > 0 {
		<-w.calls
		n++
	}
	return n
}

// TestEstablishedConnectionsAreVerifiedAgain checks that within a second after a revocation, Watch has asked for the
// connections to be verified, and Verify refuses the revoked one, without any handshake.
func TestEstablishedConnectionsAreVerifiedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := authority(t)
		reports := []error{}
		c, err := withCRL(serverFiles(dir), dir).Open(transport.OnReload(func(err error) { reports = append(reports, err) }))
		if err != nil {
			t.Fatal(err)
		}
		client, peer := chainOf(t, clientFiles(dir)), chainOf(t, serverFiles(dir))
		w := watch(t, c)
		defer w.stop()
		elapse(20*time.Second + 200*time.Millisecond)
		if n := w.count(); n != 0 || c.Verify(client) != nil || c.Verify(nil) != nil {
			t.Errorf("without a change: %d calls, %v", n, c.Verify(client))
		}
		revoke(t, dir, "app")
		elapse(time.Second)
		if n := w.count(); n != 1 || !errors.Is(c.Verify(client), transport.ErrRevoked) || c.Verify(peer) != nil {
			t.Errorf("after the revocation: %d calls, %v, another certificate: %v", n, c.Verify(client), c.Verify(peer))
		}
		if len(reports) != 1 || reports[0] != nil {
			t.Errorf("reports %v", reports)
		}

		// A list that cannot be used changes nothing.
		if err := os.WriteFile(pki.CRLPath(dir), []byte("half a lis"), 0o644); err != nil {
			t.Fatal(err)
		}
		elapse(5 * time.Second)
		if n := w.count(); n != 0 || !errors.Is(c.Verify(client), transport.ErrRevoked) || len(reports) != 2 || !errors.Is(reports[1], transport.ErrTLSFiles) {
			t.Errorf("after a bad list: %d calls, %v, reports %v", n, c.Verify(client), reports)
		}
	})
}

// TestWatchNoticesAChangeThatAHandshakeLoaded checks that Watch calls back for a change that was already in use when
// it looked, or that came before it was started.
func TestWatchNoticesAChangeThatAHandshakeLoaded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := authority(t)
		c, err := withCRL(serverFiles(dir), dir).Open()
		if err != nil {
			t.Fatal(err)
		}
		revoke(t, dir, "app")
		elapse(time.Second)
		c.Expires() // like a handshake, reads the files
		w := watch(t, c)
		defer w.stop()
		elapse(600 * time.Millisecond)
		if n := w.count(); n != 1 {
			t.Errorf("%d calls, want 1", n)
		}
	})
}

// TestExpiredCertificateEndsConnections checks that a certificate whose end has passed is noticed within a minute.
func TestExpiredCertificateEndsConnections(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		life := 3 * time.Hour
		if _, err := pki.Init(dir, "c1", []pki.Node{{ID: "n1"}}, []string{"app"}, pki.ValidFor(life)); err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(life).Truncate(time.Second)
		c, err := serverFiles(dir).Open()
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Expires(); !got.Equal(end) {
			t.Errorf("expires at %v, want %v", got, end)
		}
		client := chainOf(t, clientFiles(dir))
		w := watch(t, c)
		defer w.stop()
		elapse(time.Until(end))
		w.count()
		if err := c.Verify(client); err != nil {
			t.Errorf("at its end: %v", err)
		}
		elapse(time.Minute + time.Second)
		if n := w.count(); n == 0 || n > 2 || !errors.Is(c.Verify(client), transport.ErrExpired) {
			t.Errorf("after its end: %d calls, %v", n, c.Verify(client))
		}
	})
}

func TestExpiresWithoutACertificate(t *testing.T) {
	c, err := transport.TLSFiles{CA: clientFiles(authority(t)).CA}.Open()
	if err != nil || !c.Expires().IsZero() {
		t.Errorf("%v, %v", c.Expires(), err)
	}
}

// signedList returns a revocation list of an authority made by pki, in PEM, after change.
func signedList(t *testing.T, dir string, change func(*x509.RevocationList)) []byte {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	list := &x509.RevocationList{
		Number: big.NewInt(7), ThisUpdate: time.Now().Add(-2 * time.Hour), NextUpdate: time.Now().Add(time.Hour),
		RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: big.NewInt(5), RevocationTime: time.Now()}},
	}
	change(list)
	der, err := x509.CreateRevocationList(rand.Reader, list, pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

// TestListsThatCannotBeUsed checks that a port does not open with a list that it cannot trust, and keeps the last good
// one when the file becomes such a list.
func TestListsThatCannotBeUsed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir, other := authority(t), authority(t)
		good := signedList(t, dir, func(*x509.RevocationList) {})
		critical := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 28}, Critical: true, Value: []byte{0x30, 0}}
		foreign, err := os.ReadFile(pki.CRLPath(other))
		if err != nil {
			t.Fatal(err)
		}
		forged := slices.Clone(good)
		block, _ := pem.Decode(forged)
		block.Bytes[len(block.Bytes)-1] ^= 1
		for name, c := range map[string]struct {
			content []byte
			want    string
		}{
			"empty":                        {nil, "malformed"},
			"text":                         {[]byte("none"), "malformed"},
			"a certificate":                {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), `type "CERTIFICATE"`},
			"no list in PEM":               {pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: []byte("x")}), "malformed"},
			"truncated":                    {slices.Concat(good, good[:len(good)-10]), "truncated"},
			"too large":                    {make([]byte, 16<<20+1), "larger than"},
			"another authority's":          {foreign, "no authority"},
			"ours and another authority's": {slices.Concat(good, foreign), "no authority"},
			"forged":                       {pem.EncodeToMemory(block), "no authority"},
			"stale":                        {signedList(t, dir, func(l *x509.RevocationList) { l.NextUpdate = time.Now().Add(-time.Minute) }), "should have been replaced by"},
			"incomplete":                   {signedList(t, dir, func(l *x509.RevocationList) { l.ExtraExtensions = []pkix.Extension{critical} }), "critical extension"},
			"with entries of another issuer": {signedList(t, dir, func(l *x509.RevocationList) {
				l.RevokedCertificateEntries[0].ExtraExtensions = []pkix.Extension{critical}
			}), "critical extension"},
		} {
			files := serverFiles(dir)
			files.CRL = filepath.Join(t.TempDir(), "crl.pem")
			write := func(content []byte) {
				if err := os.WriteFile(files.CRL, content, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			write(c.content)
			_, err := files.Open()
			if !errors.Is(err, transport.ErrTLSFiles) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), files.CRL) {
				t.Errorf("%s, at the start: %v, want %q", name, err, c.want)
			}
			write(good)
			var reports []error
			opened, err := files.Open(transport.OnReload(func(err error) { reports = append(reports, err) }))
			if err != nil {
				t.Fatal(err)
			}
			write(c.content)
			for range 3 {
				elapse(time.Second)
				opened.Expires()
			}
			if len(reports) != 1 || reports[0] == nil || !strings.Contains(reports[0].Error(), c.want) {
				t.Errorf("%s, later: %v, want %q", name, reports, c.want)
			}
		}
	})
}

func TestListWithoutAuthority(t *testing.T) {
	dir := authority(t)
	if _, err := (transport.TLSFiles{CRL: pki.CRLPath(dir)}).Open(); !errors.Is(err, transport.ErrTLSFiles) || !strings.Contains(err.Error(), "needs the CA") {
		t.Errorf("got %v", err)
	}
	if _, err := (transport.TLSFiles{CA: clientFiles(dir).CA, CRL: filepath.Join(dir, "none")}).Open(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing list: %v", err)
	}
}

// TestListBecomesStale checks that a list that passes its next update while it is in use stays in use, and that this is
// reported once.
func TestListBecomesStale(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := authority(t)
		revoke(t, dir, "app")
		if _, err := pki.Revoke(dir, nil, nil, pki.ValidFor(time.Hour)); err != nil {
			t.Fatal(err)
		}
		var reports []error
		c, err := withCRL(serverFiles(dir), dir).Open(transport.OnReload(func(err error) { reports = append(reports, err) }))
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{59 * time.Minute, 0}, {2 * time.Minute, 1}, {time.Hour, 1}} {
			elapse(step.after)
			c.Expires()
			if len(reports) != step.want || !errors.Is(c.Verify(chainOf(t, clientFiles(dir))), transport.ErrRevoked) {
				t.Errorf("%v later: reports %v, %v", step.after, reports, c.Verify(chainOf(t, clientFiles(dir))))
			}
		}
		if !strings.Contains(reports[0].Error(), "should have been replaced by") {
			t.Errorf("reported %v", reports[0])
		}
		if _, err := pki.Revoke(dir, nil, nil, pki.ValidFor(time.Hour)); err != nil {
			t.Fatal(err)
		}
		elapse(2 * time.Hour)
		c.Expires()
		if len(reports) != 2 || !strings.Contains(reports[1].Error(), "should have been replaced by") {
			t.Errorf("after a new list that was read too late: %v", reports)
		}
	})
}

// TestListsOfSeveralAuthorities checks that each list counts for the certificates of its own authority, in DER as well.
func TestListsOfSeveralAuthorities(t *testing.T) {
	dir, next := authority(t), authority(t) // both have the same name
	merged := t.TempDir()
	join := func(name string, files ...string) string {
		var all []byte
		for _, path := range files {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b...)
		}
		path := filepath.Join(merged, name)
		if err := os.WriteFile(path, all, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	revoke(t, dir, "app")
	files := serverFiles(dir)
	files.CA = join("ca.crt", filepath.Join(next, "ca.crt"), filepath.Join(dir, "ca.crt"))
	block, _ := pem.Decode(must(t, os.ReadFile, pki.CRLPath(dir)))
	der := filepath.Join(merged, "crl.der")
	if err := os.WriteFile(der, block.Bytes, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, list := range map[string]string{
		"both": join("crl.pem", pki.CRLPath(next), pki.CRLPath(dir)), "one in DER": der,
	} {
		files.CRL = list
		c, err := files.Open()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Verify(chainOf(t, clientFiles(dir))); !errors.Is(err, transport.ErrRevoked) {
			t.Errorf("%s: the revoked certificate: %v", name, err)
		}
		if err := c.Verify(chainOf(t, clientFiles(next))); err != nil {
			t.Errorf("%s: the other authority's: %v", name, err)
		}
	}

	// The same serial number under another authority of that name.
	cert := chainOf(t, clientFiles(dir))[0]
	twin := &x509.Certificate{RawIssuer: cert.RawIssuer, AuthorityKeyId: chainOf(t, clientFiles(next))[0].AuthorityKeyId, SerialNumber: cert.SerialNumber, NotAfter: cert.NotAfter}
	c, err := files.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Verify([]*x509.Certificate{twin}); err != nil {
		t.Errorf("the other authority's with the same serial number: %v", err)
	}
	twin.AuthorityKeyId = nil
	if err := c.Verify([]*x509.Certificate{twin}); !errors.Is(err, transport.ErrRevoked) {
		t.Errorf("without a key id: %v", err)
	}
	if err := c.Verify([]*x509.Certificate{{SerialNumber: cert.SerialNumber, NotAfter: cert.NotAfter}}); err != nil {
		t.Errorf("another issuer's with the same serial number: %v", err)
	}
}

func must[A, R any](t *testing.T, f func(A) (R, error), arg A) R {
	t.Helper()
	r, err := f(arg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRevokedIntermediate checks that a certificate is refused if the authority revoked its issuer.
func TestRevokedIntermediate(t *testing.T) {
	dir := authority(t)
	ca, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	key := must(t, func(c elliptic.Curve) (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(c, rand.Reader) }, elliptic.P256())
	issue := func(template, parent *x509.Certificate, signer any) *x509.Certificate {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		return must(t, x509.ParseCertificate, must(t, func(s any) ([]byte, error) {
			return x509.CreateCertificate(rand.Reader, template, parent, key.Public(), s)
		}, signer))
	}
	issuer := issue(&x509.Certificate{Subject: pkix.Name{CommonName: "i"}, IsCA: true, BasicConstraintsValid: true}, ca.Leaf, ca.PrivateKey)
	leaf := issue(&x509.Certificate{Subject: pkix.Name{CommonName: "l"}}, issuer, key)
	files := withCRL(serverFiles(dir), dir)
	before := must(t, func(o transport.TLSFiles) (*transport.Credentials, error) { return o.Open() }, files)
	if _, err := pki.Revoke(dir, nil, []string{issuer.SerialNumber.Text(16)}); err != nil {
		t.Fatal(err)
	}
	after := must(t, func(o transport.TLSFiles) (*transport.Credentials, error) { return o.Open() }, files)
	chain := []*x509.Certificate{leaf, issuer}
	if errBefore, errAfter := before.Verify(chain), after.Verify(chain); errBefore != nil || !errors.Is(errAfter, transport.ErrRevoked) {
		t.Errorf("before: %v, after: %v", errBefore, errAfter)
	}
}
