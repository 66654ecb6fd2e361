package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// certificates creates certificates for node n1 of cluster c1.
func certificates(t *testing.T) (dir string, server, peer transport.TLSFiles) {
	t.Helper()
	dir = t.TempDir()
	if _, err := pki.Init(dir, "c1", []pki.Node{{ID: "n1"}}, nil); err != nil {
		t.Fatal(err)
	}
	files := func(name string) transport.TLSFiles {
		at := filepath.Join(dir, "nodes", "n1", name)
		return transport.TLSFiles{Cert: at + ".crt", Key: at + ".key", CA: filepath.Join(dir, "ca.crt")}
	}
	return dir, files("server"), files("peer")
}

// taken registers a foreign metric under the name of one of the node's.
func taken(metric string) func(*Config) {
	return func(c *Config) {
		c.Registry = prometheus.NewRegistry()
		c.Registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: metric, Help: "another's"}))
	}
}

// TestStartThatFailsLeavesNothing makes each part of a node fail to start. TestMain detects what keeps
// running. The next start shows that the directory is free.
func TestStartThatFailsLeavesNothing(t *testing.T) {
	dir, server, peer := certificates(t)
	foreign, _, _ := certificates(t)
	for _, c := range []fault{
		{"configuration", func(c *Config) { c.ID = "" }, "--id is missing"},
		{"certificate of the peer port", func(c *Config) { c.PeerTLS = server }, "--peer-tls-cert: " + server.Cert},
		{"certificate of the client port", func(c *Config) {
			c.TLS, c.Listen.HTTP = transport.TLSFiles{Cert: "missing.crt", Key: "missing.key", CA: "ca.crt"}, ""
		}, "missing.crt"},
		{"another authority's list", func(c *Config) { c.TLS, c.TLS.CRL = server, pki.CRLPath(foreign) }, "--tls-crl: "},
		{"list of the peer port", func(c *Config) { c.PeerTLS, c.PeerTLS.CRL = peer, filepath.Join(dir, "none.pem") }, "--peer-tls-crl " + filepath.Join(dir, "none.pem") + ": no such file"},
		{"metrics of the certificates", func(c *Config) {
			taken("quorumlock_certificate_expiry_seconds")(c)
			c.TLS, c.PeerTLS = server, peer
		}, "quorumlock_certificate_expiry_seconds"},
		{"HTTP port", func(c *Config) { c.HTTPLimits.MaxRequests = -1 }, "MaxRequests is negative"},
		{"metrics of the buffers", taken("quorumlock_buffer_bytes"), "quorumlock_buffer_bytes"},
		{"metrics of the client port", taken("quorumlock_client_connections"), "rpc: metrics"},
	} {
		t.Run(c.name, func(t *testing.T) {
			good := quick(t)
			bad := good
			c.change(&bad)
			node, err := Open(bounded(t), bad)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("error %v, want %q", err, c.says)
			}
			if node != nil {
				t.Error("a node was returned, too")
			}
			serving(t, open(t, good))
		})
	}
}

// metrics returns the response of /metrics.
func metrics(t *testing.T, node *Node) string {
	t.Helper()
	resp, err := http.Get("http://" + node.Addrs().HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("/metrics: %d %v", resp.StatusCode, err)
	}
	return string(text)
}

func TestBufferLimitIsTheNodes(t *testing.T) {
	cfg := quick(t)
	cfg.MaxBufferBytes = 8 << 20
	if text := metrics(t, open(t, cfg)); !strings.Contains(text, "\nquorumlock_buffer_limit_bytes 8.388608e+06\n") {
		t.Errorf("metrics:\n%s", text)
	}
}

func TestHangUp(t *testing.T) {
	for name, address := range map[string]string{"with HTTP": "127.0.0.1:0", "without HTTP": ""} {
		t.Run(name, func(t *testing.T) {
			cfg := quick(t)
			cfg.Listen.HTTP = address
			node := open(t, cfg)
			c := dial(t, node)
			node.HangUp(bounded(t))
			if bye := c.goodbye(); bye.GetCode() != wire.Goodbye_SHUTDOWN {
				t.Errorf("goodbye %v", bye)
			}
			for _, port := range []string{node.Addrs().Client, node.Addrs().HTTP} {
				if conn, err := net.Dial("tcp", port); port != "" && err == nil {
					_ = conn.Close()
					t.Errorf("%s takes connections after the node has hung up", port)
				}
			}
		})
	}
}

// upload starts a request whose body never arrives, and returns once its handler waits for the body.
func upload(t *testing.T, node *Node) {
	t.Helper()
	conn, err := net.Dial("tcp", node.Addrs().HTTP)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	_, _ = io.WriteString(conn, "POST /quorumlock.v1.SessionService/Open HTTP/1.1\r\nHost: n1\r\nContent-Type: application/json\r\n"+
		"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q, %v", line, err)
	}
}

func TestShutdownTimeoutBoundsCloseWithoutDeadline(t *testing.T) {
	cfg := quick(t)
	cfg.ShutdownTimeout = 20 * time.Millisecond
	cfg.HTTPLimits.BodyTimeout = testTimeout
	node, err := Open(bounded(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	upload(t, node)
	for range 2 { // every caller gets the error
		if err := node.Close(context.Background()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "http port") {
			t.Errorf("close: %v, want that the request was cut off", err)
		}
	}
}

// TestDeadlineOfCloseGoesBeforeShutdownTimeout verifies that the caller's deadline counts rather than a
// shorter configured one.
func TestDeadlineOfCloseGoesBeforeShutdownTimeout(t *testing.T) {
	cfg := quick(t)
	cfg.ShutdownTimeout = time.Nanosecond
	cfg.HTTPLimits.BodyTimeout = 50 * time.Millisecond
	node := open(t, cfg)
	upload(t, node)
	shut(t, node)
}

// TestCertificatesThatChangeAreLogged removes the file of a certificate and restores it. Handshakes check the
// file once a second.
func TestCertificatesThatChangeAreLogged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir, server, _ := certificates(t)
		var log bytes.Buffer
		certs := nodeCertificatesOf(t, Config{TLS: server, Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
		config, err := Config{TLS: server}.rpcTLS(certs)
		if err != nil {
			t.Fatal(err)
		}
		away := filepath.Join(dir, "away")
		for _, step := range []struct{ from, to, says string }{
			{server.Cert, away, "[ERROR] changed certificate files cannot be used"},
			{away, server.Cert, "[INFO]  changed certificate files are in use"},
		} {
			if err := os.Rename(step.from, step.to); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			log.Reset()
			if _, err := config.GetConfigForClient(&tls.ClientHelloInfo{}); err != nil || !strings.Contains(log.String(), step.says) {
				t.Errorf("log %q, error %v, want %q", log.String(), err, step.says)
			}
		}
	})
}

// TestNodeAloneStopsInOrder verifies that a single node does not hand over, and that the end of its HTTP port
// is no reason to halt.
func TestNodeAloneStopsInOrder(t *testing.T) {
	cfg, log := quick(t), &transcript{}
	cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Info})
	node := open(t, cfg)
	serving(t, node)
	shut(t, node)
	for _, unwanted := range []string{"leadership was not handed over", "the node must stop"} {
		if found := log.find(unwanted); found != "" {
			t.Errorf("log: %s", found)
		}
	}
}
