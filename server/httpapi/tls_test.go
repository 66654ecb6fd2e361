package httpapi

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// authority creates the certificates of two nodes and a client.
func authority(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "tls")
	nodes := []pki.Node{{ID: "n1", Hosts: []string{"127.0.0.1"}}, {ID: "n2", Hosts: []string{"127.0.0.1"}}}
	if _, err := pki.Init(dir, "c1", nodes, []string{"ops"}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func filesOf(dir, name string) transport.TLSFiles {
	return transport.TLSFiles{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(dir, "ca.crt")}
}

func secured(dir, id string, auth ClientAuth) func(*Config) {
	return func(c *Config) {
		c.TLS, c.ClientAuth = filesOf(dir, "nodes/"+id+"/server"), auth
	}
}

// caller returns an HTTPS client, with a certificate if name is not empty.
func caller(t *testing.T, dir, name string) *http.Client {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if name != "" {
		files := filesOf(dir, name)
		cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// fetch returns the status and the body of a response. The status is 0 if the handshake failed.
func fetch(t *testing.T, client *http.Client, p *port, path string) (int, string) {
	t.Helper()
	method, body := http.MethodGet, ""
	if strings.HasPrefix(path, "/quorumlock") {
		method, body = http.MethodPost, "{}"
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "https://"+p.addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	if resp.ProtoMajor != 2 {
		t.Errorf("%s was answered with %s", path, resp.Proto)
	}
	return resp.StatusCode, string(text)
}

func TestClientAuth(t *testing.T) {
	dir, strangers := authority(t), authority(t)
	const list = "/quorumlock.v1.LockService/List"
	for _, test := range []struct {
		auth                     ClientAuth
		without, with, ofAnother int
		metrics, metricsOfNobody int
	}{
		{AuthRequire, 401, 200, 0, 200, 401},
		{AuthOptional, 200, 200, 0, 200, 200},
		{AuthNone, 200, 200, 200, 200, 200},
	} {
		t.Run(string(test.auth), func(t *testing.T) {
			p := start(t, newCluster(t), "n1", secured(dir, "n1", test.auth))
			nobody, ops := caller(t, dir, ""), caller(t, dir, "clients/ops/client")
			stranger := caller(t, dir, "")
			files := filesOf(strangers, "clients/ops/client")
			cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
			if err != nil {
				t.Fatal(err)
			}
			stranger.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &cert, nil
			}
			for _, c := range []struct {
				who    string
				client *http.Client
				path   string
				want   int
			}{
				{"nobody", nobody, list, test.without}, {"ops", ops, list, test.with}, {"a stranger", stranger, list, test.ofAnother},
				{"ops", ops, "/metrics", test.metrics}, {"nobody", nobody, "/metrics", test.metricsOfNobody},
				{"nobody", nobody, "/healthz", 200}, {"nobody", nobody, "/readyz", 200},
			} {
				if got, text := fetch(t, c.client, p, c.path); got != c.want {
					t.Errorf("%s for %s: status %d, want %d: %s", c.path, c.who, got, c.want, text)
				}
			}
			if got, text := fetch(t, nobody, p, list); got == 401 && !strings.Contains(text, "certificate") {
				t.Errorf("the refusal says %s", text)
			}
		})
	}
}

// TestRevokedCallerIsRefused checks that the handshake refuses a revoked certificate, also where none is required.
func TestRevokedCallerIsRefused(t *testing.T) {
	dir := authority(t)
	if _, err := pki.Extend(dir, "c1", nil, []string{"lost"}); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.Revoke(dir, []string{"lost"}, nil); err != nil {
		t.Fatal(err)
	}
	for _, auth := range []ClientAuth{AuthRequire, AuthOptional} {
		var denied atomic.Pointer[access.Denial]
		p := start(t, newCluster(t), "n1", secured(dir, "n1", auth), func(c *Config) {
			c.TLS.CRL, c.Denials = pki.CRLPath(dir), func(d access.Denial) { denied.Store(&d) }
		})
		for name, want := range map[string]int{"clients/ops/client": 200, "clients/lost/client": 0} {
			if got, text := fetch(t, caller(t, dir, name), p, "/quorumlock.v1.LockService/List"); got != want {
				t.Errorf("%s, with client auth %s: status %d, want %d: %s", name, auth, got, want, text)
			}
		}
		eventually(t, "the log says why", func() bool { return strings.Contains(p.log.String(), "the certificate is revoked") })
		if d := denied.Load(); d == nil || d.Status != wire.Status_UNAUTHENTICATED || !strings.Contains(d.Message, "lost") || d.Caller.GetAddress() == "" {
			t.Errorf("with client auth %s: denied %v", auth, d)
		}
	}
}

func TestFollowerShowsItsOwnCertificateToTheLeader(t *testing.T) {
	dir := authority(t)
	c := newCluster(t)
	start(t, c, "n1", secured(dir, "n1", AuthRequire))
	follower := start(t, c, "n2", secured(dir, "n2", AuthRequire))
	if got, text := fetch(t, caller(t, dir, "clients/ops/client"), follower, "/quorumlock.v1.LockService/List"); got != http.StatusOK {
		t.Errorf("through a follower: %d %s", got, text)
	}
	locks := wireconnect.NewLockServiceClient(caller(t, dir, "clients/ops/client"), "https://"+follower.addr, connect.WithGRPC())
	if _, err := locks.Get(t.Context(), connect.NewRequest(&wire.GetLockRequest{Name: "a"})); apierror.Status(err) != wire.Status_NOT_FOUND {
		t.Errorf("over gRPC: %v", err)
	}
}

func TestPlainTextOnATLSPortIsClosedWithAReason(t *testing.T) {
	dir := authority(t)
	p := start(t, newCluster(t), "n1", secured(dir, "n1", AuthNone))
	conn := p.raw("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	_, _ = io.Copy(io.Discard, conn)
	eventually(t, "the log says why", func() bool { return strings.Contains(p.log.String(), "TLS handshake error") })
	old := tls.Client(mustDial(t, p.addr), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}) //nolint:gosec // it must fail anyway
	if err := old.HandshakeContext(t.Context()); err == nil {
		t.Error("TLS 1.2 was accepted")
	}
	_ = old.Close()
}

func mustDial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
