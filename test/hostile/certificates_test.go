package hostile

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
)

// TestCertificates tests single, otherwise unused nodes with TLS, one for each setting of client certificates
// over HTTP.
func TestCertificates(t *testing.T) {
	t.Parallel()
	for _, auth := range []string{"require", "optional", "none"} {
		t.Run(auth, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, 1, withTLS, "--http-client-auth", auth, "--insecure")
			testCallers(t, c, auth)
			switch auth {
			case "require":
				testIntruders(t, c)
			case "optional":
				testRotation(t, c)
			case "none":
				testCallerNeverReads(t, c)
			}
		})
	}
}

// testCallers requests public and protected resources with every certificate.
func testCallers(t *testing.T, c *cluster, auth string) {
	foreign := t.TempDir()
	if _, err := pki.Init(foreign, clusterName, []pki.Node{{ID: "n1"}}, []string{"app"}); err != nil {
		t.Fatal(err)
	}
	none, err := transport.TLSFiles{CA: filepath.Join(c.certs, "ca.crt")}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	const no = 0 // the handshake fails
	open, closed := 200, 200
	stranger := no
	switch auth {
	case "require":
		closed = 401
	case "none":
		stranger = 200
	}
	for _, caller := range []struct {
		name         string
		config       *tls.Config
		health, rest int
	}{
		{"without a certificate", none, open, closed},
		{"with a client's certificate", c.clientTLS(), open, 200},
		{"with a certificate of another authority", identityOf(t, filepath.Join(foreign, "clients/app/client"), filepath.Join(c.certs, "ca.crt")), stranger, stranger},
	} {
		for path, want := range map[string]int{"/healthz": caller.health, "/readyz": caller.health, "/metrics": caller.rest} {
			if got := c.status(caller.config, path); got != want {
				t.Errorf("%s, %s: status %d, want %d", caller.name, path, got, want)
			}
		}
	}
}

// status returns 0 if there was no answer.
func (c *cluster) status(config *tls.Config, path string) int {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}, Timeout: timeout}
	resp, err := client.Get("https://" + c.leader.addr[httpPort] + path)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// testRotation replaces a node's certificates by others of the same authority: new connections see them, on
// every port, without a restart.
func testRotation(t *testing.T, c *cluster) {
	fresh := t.TempDir()
	for _, name := range []string{"ca.crt", "ca.key"} {
		copyFile(t, filepath.Join(c.certs, name), filepath.Join(fresh, name))
	}
	if _, err := pki.Extend(fresh, clusterName, []pki.Node{{ID: "n1"}}, nil); err != nil {
		t.Fatal(err)
	}
	old := c.serials(t)
	cl := c.client() // connected before, and not disturbed
	session, err := cl.NewSession(t.Context(), sessionOptions)
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(c.certs, "nodes", c.leader.id)
	for _, name := range []string{"server.key", "server.crt", "peer.key", "peer.crt"} {
		staged := filepath.Join(own, "staged")
		copyFile(t, filepath.Join(fresh, "nodes", "n1", name), staged)
		if err := os.Rename(staged, filepath.Join(own, name)); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the new certificates on all ports", timeout, func(context.Context) error {
		for p, serial := range c.serials(t) {
			if serial == old[p] {
				return fmt.Errorf("the %s port still shows the old certificate", p)
			}
		}
		return nil
	})
	if err := once(session, "rotated"); err != nil {
		t.Error("a client that was connected before: ", err)
	}
	if logs := c.leader.log.find("in use"); len(logs) == 0 {
		t.Error("the log does not say that there are new certificates")
	}

	good := c.serials(t)
	if err := os.WriteFile(filepath.Join(own, "server.crt"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	await(t, "a word about certificates that cannot be used", timeout, func(context.Context) error {
		now := c.serials(t)
		for p, serial := range now {
			if serial != good[p] {
				t.Fatalf("the %s port shows certificate %s after a bad one was put there, before %s", p, serial, good[p])
			}
		}
		if len(c.leader.log.find("changed certificate files cannot be used")) == 0 {
			return fmt.Errorf("none yet")
		}
		return nil
	})
	select {
	case <-c.leader.done:
		t.Error("the node ended")
	default:
	}
}

// serials returns the serial numbers of the certificates that the ports present to a new connection.
func (c *cluster) serials(t *testing.T) map[port]string {
	t.Helper()
	all := map[port]string{}
	for _, p := range ports {
		conn := c.dial(t, p)
		all[p] = conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
		transport.Cut(conn)
	}
	return all
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
