package server

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/test/scrape"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func nodeCertificatesOf(t *testing.T, cfg Config) *nodeCertificates {
	t.Helper()
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	certs, err := openCertificates(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(certs.close)
	return certs
}

// syncedLog is a log that may be read while it is written.
type syncedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *syncedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *syncedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestExpiryIsAnnounced follows the certificates of a node from 31 days before the first one expires, until both have
// been renewed: the log has a line a day from 30 days on, and the metrics and the status know the time.
func TestExpiryIsAnnounced(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		dir := t.TempDir()
		if _, err := pki.Init(dir, "c1", []pki.Node{{ID: "n1"}}, nil, pki.ValidFor(100*day)); err != nil {
			t.Fatal(err)
		}
		if _, err := pki.Renew(dir, []string{"nodes/n1/server"}, 0, pki.ValidFor(31*day)); err != nil {
			t.Fatal(err)
		}
		files := func(name string) transport.TLSFiles {
			at := filepath.Join(dir, "nodes", "n1", name)
			return transport.TLSFiles{Cert: at + ".crt", Key: at + ".key", CA: filepath.Join(dir, "ca.crt")}
		}
		var log syncedLog
		registry := prometheus.NewRegistry()
		certs := nodeCertificatesOf(t, Config{
			TLS: files("server"), PeerTLS: files("peer"), Registry: registry, Logger: hclog.New(&hclog.LoggerOptions{Output: &log}),
		})
		time.Sleep(time.Hour)
		began, logged := time.Now().Add(-time.Hour), func(what string) int { return strings.Count(log.String(), what) }
		for _, step := range []struct {
			day          int // since the start
			renew        bool
			warned       int
			failed       int
			client, peer int // days until the expiry
		}{
			{day: 0, client: 31, peer: 100},
			{day: 2, warned: 1, client: 29, peer: 98},
			{day: 30, warned: 29, client: 1, peer: 70},
			{day: 32, warned: 30, failed: 1, client: -1, peer: 68},
			{day: 33, renew: true, warned: 30, failed: 2, client: 300, peer: 67},
			{day: 71, warned: 30 + 1, failed: 2, client: 262, peer: 29},
		} {
			time.Sleep(time.Until(began.Add(time.Duration(step.day)*day + time.Hour)))
			if step.renew {
				if _, err := pki.Renew(dir, []string{"nodes/n1/server"}, 0, pki.ValidFor(300*day)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
			}
			if w, f := logged("a certificate expires soon"), logged("a certificate has expired"); w != step.warned || f != step.failed {
				t.Errorf("day %d: %d warnings and %d errors, want %d and %d:\n%s", step.day, w, f, step.warned, step.failed, log.String())
			}
			metrics := scrape.Values(t, registry)
			for port, want := range map[string]int{"client": step.client, "peer": step.peer} {
				if got := metrics["certificate_expiry_seconds "+port] / day.Seconds(); math.Abs(got-float64(want)) > 0.1 {
					t.Errorf("day %d: the certificate of the %s port lasts %.2f days, want %d", step.day, port, got, want)
				}
			}
			if got, want := time.Until(certs.expires()).Hours()/24, float64(min(step.client, step.peer)); math.Abs(got-want) > 0.1 {
				t.Errorf("day %d: the first expires in %.2f days, want %v", step.day, got, want)
			}
		}
		for _, part := range []string{"port=client", "port=peer", "days=28", "expires=20", "expired=20"} {
			if logged(part) == 0 {
				t.Errorf("no line has %s:\n%s", part, log.String())
			}
		}
	})
}

// TestNodeWithoutCertificates checks that it announces nothing.
func TestNodeWithoutCertificates(t *testing.T) {
	registry := prometheus.NewRegistry()
	certs := nodeCertificatesOf(t, Config{Registry: registry})
	if values := scrape.Values(t, registry); len(values) != 0 || !certs.expires().IsZero() {
		t.Errorf("%v, %v", values, certs.expires())
	}
}

// TestRevokedClient checks that the client port refuses certificates that were revoked before its start or later.
func TestRevokedClient(t *testing.T) {
	dir := t.TempDir()
	if _, err := pki.Init(dir, "c1", []pki.Node{{ID: "n1"}}, []string{"app", "lost", "later"}); err != nil {
		t.Fatal(err)
	}
	revoke := func(name string) {
		if _, err := pki.Revoke(dir, []string{name}, nil); err != nil {
			t.Fatal(err)
		}
	}
	files := func(pair string) transport.TLSFiles {
		at := filepath.Join(dir, pair)
		return transport.TLSFiles{Cert: at + ".crt", Key: at + ".key", CA: filepath.Join(dir, "ca.crt")}
	}
	revoke("lost")
	cfg := quick(t)
	cfg.TLS, cfg.PeerTLS = files("nodes/n1/server"), files("nodes/n1/peer")
	cfg.TLS.CRL, cfg.PeerTLS.CRL = pki.CRLPath(dir), pki.CRLPath(dir)
	cfg.AuditLog = filepath.Join(t.TempDir(), "audit.log")
	node := open(t, cfg)
	serving(t, node)
	connects := func(name string) bool {
		config, err := files("clients/" + name + "/client").ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		conn, err := transport.Dial(bounded(t), nil, node.Addrs().Client, config)
		if err == nil {
			_, _, err = transport.ClientHandshake(bounded(t), conn, &wire.Hello{})
			transport.Cut(conn)
		}
		return err == nil
	}
	if connects("lost") || !connects("app") || !connects("later") {
		t.Error("the port does not refuse the revoked certificate, or others")
	}
	eventually(t, "the denial in the audit log", func() bool {
		text, err := os.ReadFile(cfg.AuditLog)
		return err == nil && strings.Contains(string(text), `"status":"UNAUTHENTICATED",`) && strings.Contains(string(text), `the certificate is revoked`)
	})
	revoke("later")
	eventually(t, "the certificate that was revoked later is refused", func() bool { return !connects("later") })
	if !connects("app") {
		t.Error("another one is refused")
	}
	status, err := node.Replica().Status(bounded(t), &wire.StatusRequest{})
	if err != nil || len(status.Nodes) != 1 || status.Nodes[0].CertificateExpiresUnixMs != node.certs.expires().UnixMilli() {
		t.Errorf("%v, %v, want the expiry %v", status, err, node.certs.expires())
	}
}
