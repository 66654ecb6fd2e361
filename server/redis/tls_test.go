package redis

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
)

func filesOf(dir, name string) transport.TLSFiles {
	return transport.TLSFiles{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key"), CA: filepath.Join(dir, "ca.crt")}
}

// secured serves a cluster with TLS, and returns the directory of its certificates.
func secured(t *testing.T, change func(*Config)) (*port, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tls")
	if _, err := pki.Init(dir, "c1", []pki.Node{{ID: "n1", Hosts: []string{"127.0.0.1"}}}, []string{"ops", "lost"}); err != nil {
		t.Fatal(err)
	}
	if _, err := pki.Revoke(dir, []string{"lost"}, nil); err != nil {
		t.Fatal(err)
	}
	files := filesOf(dir, "nodes/n1/server")
	files.CRL = pki.CRLPath(dir)
	certificates, err := files.Open()
	if err != nil {
		t.Fatal(err)
	}
	config, err := certificates.ServerConfig(tls.VerifyClientCertIfGiven)
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, func(c *Config) {
		c.TLS, c.Certificates, c.RequireIdentity = config, certificates, true
		change(c)
	}), dir
}

// dialTLS connects with the certificate of a client, or without one.
func dialTLS(t *testing.T, p *port, dir, name string) *peer {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}
	config.RootCAs.AppendCertsFromPEM(pem)
	if name != "" {
		files := filesOf(dir, name)
		cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	c := dial(t, p)
	c.Conn = tls.Client(c.Conn, config)
	c.r = bufio.NewReader(c.Conn)
	return c
}

// TestTLS checks that a certificate proves an identity, that others are refused, and that a wait works over TLS.
func TestTLS(t *testing.T) {
	refused := make(chan access.Denial, 10)
	p, dir := secured(t, func(c *Config) { c.Denials = func(d access.Denial) { refused <- d } })
	ops := dialTLS(t, p, dir, "clients/ops/client")
	dialogue{{"PING", "+PONG\r\n"}, {"SET k v NX PX 50", ok}, {"QL.LOCK k w PX 50 WAIT 1", null}, {"PING", "+PONG\r\n"}}.run(t, ops)
	if got := ops.do("CLIENT INFO"); !strings.Contains(got, "user=ops ") {
		t.Errorf("the identity is not that of the certificate: %s", got)
	}
	dialogue{{"PING", "-NOAUTH …"}, {"GET k", "-NOAUTH …"}, {"AUTH ql_x", "-WRONGPASS …"}}.run(t, dialTLS(t, p, dir, ""))
	for len(refused) > 0 {
		<-refused
	}
	lost := dialTLS(t, p, dir, "clients/lost/client")
	_, _ = lost.Write([]byte(encoded("PING")))
	if got, err := readReply(lost.r); err == nil {
		t.Errorf("a revoked certificate: %q", got)
	}
	select {
	case denial := <-refused:
		if !strings.Contains(denial.Message, "revoked") {
			t.Errorf("the refusal is reported as %v", denial)
		}
	case <-time.After(deadline):
		t.Error("the refusal is not reported")
	}
	plain := dial(t, p)
	plain.send(encoded("PING"))
	if got := plain.ended(); strings.Contains(got, "PONG") {
		t.Errorf("without TLS: %q", got)
	}
}
