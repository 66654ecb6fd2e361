//go:build linux

package main_test

import (
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/ports"
	"github.com/quorumlock/quorumlock/transport/identity"
)

var updateMistakes = flag.Bool("update-mistakes", false, "rewrite testdata/mistakes.golden")

// banner is a server that greets its callers, as SSH does.
func banner(t *testing.T, text string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(conn, text)
			time.AfterFunc(time.Second, func() { _ = conn.Close() })
		}
	}()
	return l.Addr().String()
}

// TestMistakes compares what qlock says to wrong invocations with testdata/mistakes.golden. Each is answered
// in one line that says what to do.
func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	free := ports.For(t, 6)
	certs := filepath.Join(dir, "certs")
	if got := qlock(t, "x:1", "tls", "init", "--cluster", "c", "--node", "n1=127.0.0.1", "--client", "me", "--dir", certs); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	other := filepath.Join(dir, "other")
	if got := qlock(t, "x:1", "tls", "init", "--cluster", "d", "--client", "me", "--dir", other); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	plain, http, secure, nobody := free[0], free[1], free[2], free[3]
	n := startNode(t, plain, "--id", "n1", "--peer-addr", free[4], "--data-dir", filepath.Join(dir, "n"), "--http-addr", http)
	defer n.stop()
	at := filepath.Join(certs, "nodes", "n1")
	s := startNode(t, secure, "--id", "n1", "--peer-addr", free[5], "--data-dir", filepath.Join(dir, "s"), "--tls-ca", filepath.Join(certs, "ca.crt"),
		"--tls-cert", filepath.Join(at, "server.crt"), "--tls-key", filepath.Join(at, "server.key"))
	defer s.stop()
	ssh := banner(t, "SSH-2.0-OpenSSH_9.6\r\n")
	ca, cert, key := filepath.Join(certs, "ca.crt"), filepath.Join(certs, "clients/me/client.crt"), filepath.Join(certs, "clients/me/client.key")
	await(t, plain)
	awaitTLS(t, secure, ca, cert, key)

	config, err := os.UserConfigDir()
	if err != nil {
		t.Fatal(err)
	}
	token := identity.NewToken()
	sum, _ := identity.HashToken(token)
	replace := strings.NewReplacer(token, "TOKEN", identity.TokenID(sum), "ID", config, "CONFIG", plain, "PLAIN", http, "HTTP", secure, "SECURE", nobody, "NOBODY", ssh, "SSH", dir, "DIR")
	var all strings.Builder
	for _, words := range append(accessMistakes(dir, ca, token), [][]string{
		{"status", "--endpoints", nobody},
		{"status", "--endpoints", nobody + "," + http},
		{"locks", "--endpoints", nobody},
		{"status", "--endpoints", "no-such-host.invalid:7400"},
		{"status", "--endpoints", http},
		{"status", "--endpoints", ssh},
		{"status", "--endpoints", secure},
		{"status", "--endpoints", plain, "--cacert", ca},
		{"status", "--endpoints", http, "--cacert", ca},
		{"status", "--endpoints", secure, "--cacert", filepath.Join(other, "ca.crt")},
		{"status", "--endpoints", secure, "--cacert", ca},
		{"status", "--endpoints", secure, "--cacert", ca, "--cert", filepath.Join(other, "clients/me/client.crt"), "--key", filepath.Join(other, "clients/me/client.key")},
		{"status", "--endpoints", secure, "--cacert", ca, "--cert", cert},
		{"status", "--endpoints", secure, "--cacert", filepath.Join(dir, "no.crt")},
		{"status", "--endpoints", ""},
		{"status", "--context", "prod"},
		{"satus"},
		{"show", "a", "--wiat", "3"},
		{"run", "a"},
		{"run", "a", "--wait", "soon", "--", "true"},
		{"run", "a", "--wiat", "3", "--", "true"},
		{"resize", "a", "--reason", "r", "many"},
		{"run", "a//b", "--", "true"},
		{"run", "a", "--", "no-such-command"},
		{"show", "a", "-o", "xml"},
		{"show"},
		{},
	}...) {
		got := mistake(t, plain, words)
		fmt.Fprintf(&all, "qlock %s\n%d %s\n", replace.Replace(strings.Join(words, " ")), got.code, replace.Replace(got.err))
	}
	path := filepath.Join("testdata", "mistakes.golden")
	compareMistakes(t, path, all.String())
}

// accessMistakes are wrong invocations about identities and rights. The golden file shows
// whether an answer contains the token.
func accessMistakes(dir, ca, token string) [][]string {
	return [][]string{
		{"status", "--endpoints", "10.0.0.1:7400", "--auth-token", token},
		{"status", "--auth-token", "secret"},
		{"status", "--auth-token-file", filepath.Join(dir, "no-token")},
		{"status", "--auth-token-file", ca},
		{"status", "--auth-token", token, "--auth-token-file", ca},
		{"status", "--auth-tokn=" + token},
		{"token", "revoke", token, "--reason", "r"},
		{"policy", "apply", ca, "--reason", "r"},
		{"policy", "can", "alice", "lock"},
	}
}

// compareMistakes compares what all mistakes yield with the golden file, or rewrites that.
func compareMistakes(t *testing.T, path, got string) {
	t.Helper()
	if *updateMistakes {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%v: it says\n%s", err, got)
	}
}

// mistake runs a command that must fail soon, with one line.
func mistake(t *testing.T, addr string, words []string) outcome {
	t.Helper()
	started := time.Now()
	got := qlock(t, addr, words...)
	if got.code == 0 || strings.Count(got.err, "\n") != 1 || !strings.HasPrefix(got.err, "qlock: ") || got.out != "" {
		t.Errorf("qlock %q: %+v", words, got)
	}
	if took := time.Since(started); took > 10*time.Second { // on a busy machine; 2 s otherwise
		t.Errorf("qlock %q took %v", words, took)
	}
	return got
}

// await waits until the node at a plaintext port serves.
func await(t *testing.T, addr string) {
	t.Helper()
	if got := qlock(t, addr, "status", "--timeout", "20s"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
}

func awaitTLS(t *testing.T, addr, ca, cert, key string) {
	t.Helper()
	if got := qlock(t, addr, "status", "--timeout", "20s", "--cacert", ca, "--cert", cert, "--key", key); got.code != 0 {
		t.Fatalf("%+v", got)
	}
}
