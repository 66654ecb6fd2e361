package transport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
)

// authority creates certificates for the node n1 with these hosts and for the client "app".
func authority(t *testing.T, hosts ...string) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := pki.Init(dir, "c1", []pki.Node{{ID: "n1", Hosts: hosts}}, []string{"app"}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func serverFiles(dir string) transport.TLSFiles {
	at := filepath.Join(dir, "nodes", "n1", "server")
	return transport.TLSFiles{Cert: at + ".crt", Key: at + ".key", CA: filepath.Join(dir, "ca.crt")}
}

func clientFiles(dir string) transport.TLSFiles {
	at := filepath.Join(dir, "clients", "app", "client")
	return transport.TLSFiles{Cert: at + ".crt", Key: at + ".key", CA: filepath.Join(dir, "ca.crt")}
}

func mustServer(t *testing.T, f transport.TLSFiles, opts ...transport.Option) *tls.Config {
	t.Helper()
	c, err := f.ServerConfig(tls.RequireAndVerifyClientCert, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustClient(t *testing.T, f transport.TLSFiles) *tls.Config {
	t.Helper()
	c, err := f.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// piped is a Network whose only server speaks TLS at the other end of a pipe.
type piped struct {
	server *tls.Config
	result chan error // error of the server's side of each connection
}

func (p *piped) Listen(context.Context, string) (net.Listener, error) {
	return nil, errors.ErrUnsupported
}

func (p *piped) Dial(context.Context, string) (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		conn := tls.Server(server, p.server)
		// Exchange a byte: with TLS 1.3, a client learns only from its first read that its
		// certificate was refused.
		b := make([]byte, 1)
		_, err := io.ReadFull(conn, b)
		if err == nil {
			_, err = conn.Write(b)
		}
		p.result <- err
	}()
	return client, nil
}

// connect returns the client's and the server's error.
func connect(server, client *tls.Config, addr string) (clientErr, serverErr error) {
	p := &piped{server, make(chan error, 1)}
	conn, err := transport.Dial(context.Background(), p, addr, client)
	if err == nil {
		go conn.Write([]byte{1})
		_, err = io.ReadFull(conn, make([]byte, 1))
		_ = conn.(*tls.Conn).NetConn().Close()
	}
	return err, <-p.result
}

func TestMutualTLS(t *testing.T) {
	ours, other := authority(t, "lock.example", "127.0.0.1"), authority(t, "lock.example")
	caOnly := clientFiles(ours)
	caOnly.Cert, caOnly.Key = "", ""
	strayClient := clientFiles(other)
	strayClient.CA = clientFiles(ours).CA
	old := mustClient(t, clientFiles(ours))
	old.MinVersion, old.MaxVersion = 0, tls.VersionTLS12
	for name, c := range map[string]struct {
		client *tls.Config
		addr   string
		ok     bool
	}{
		"both certificates":             {mustClient(t, clientFiles(ours)), "lock.example:7400", true},
		"by IP address":                 {mustClient(t, clientFiles(ours)), "127.0.0.1:7400", true},
		"another host's name":           {mustClient(t, clientFiles(ours)), "other.example:7400", false},
		"another IP address":            {mustClient(t, clientFiles(ours)), "127.0.0.2:7400", false},
		"no client certificate":         {mustClient(t, caOnly), "lock.example:7400", false},
		"client of another authority":   {mustClient(t, strayClient), "lock.example:7400", false},
		"client that trusts another CA": {mustClient(t, clientFiles(other)), "lock.example:7400", false},
		"TLS 1.2":                       {old, "lock.example:7400", false},
	} {
		t.Run(name, func(t *testing.T) {
			clientErr, serverErr := connect(mustServer(t, serverFiles(ours)), c.client, c.addr)
			if c.ok && (clientErr != nil || serverErr != nil) {
				t.Errorf("client: %v, server: %v", clientErr, serverErr)
			}
			if !c.ok && (clientErr == nil || serverErr == nil) {
				t.Errorf("it went through (client: %v, server: %v)", clientErr, serverErr)
			}
		})
	}
}

// replace replaces the files in a directory by those of another authority, each by renaming, like a
// certificate tool.
func replace(t *testing.T, dir, from string) {
	t.Helper()
	for _, name := range []string{
		"ca.crt", "nodes/n1/server.crt", "nodes/n1/server.key", "clients/app/client.crt", "clients/app/client.key",
	} {
		if err := os.Rename(filepath.Join(from, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReload(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir, next := authority(t), authority(t)
		reports := []error{}
		server := mustServer(t, serverFiles(dir), transport.OnReload(func(err error) { reports = append(reports, err) }))
		before := mustClient(t, clientFiles(dir))
		stale := &tls.Config{RootCAs: before.RootCAs, GetClientCertificate: before.GetClientCertificate}
		wantConnect := func(when string, client *tls.Config, ok bool) {
			t.Helper()
			if clientErr, serverErr := connect(server, client, "localhost:1"); (clientErr == nil && serverErr == nil) != ok {
				t.Errorf("%s: client %v, server %v", when, clientErr, serverErr)
			}
		}
		wantConnect("at first", before, true)

		replace(t, dir, next)
		wantConnect("within the second after a check, a client that keeps the old CA", stale, true)
		elapse(2 * time.Second)
		wantConnect("after new files, a client made before", before, true)
		wantConnect("after new files, a client that keeps the old CA", stale, false)
		if len(reports) != 1 || reports[0] != nil {
			t.Fatalf("reports after new files: %v", reports)
		}

		if err := os.WriteFile(serverFiles(dir).Cert, []byte("half a certif"), 0o644); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			elapse(2 * time.Second)
			wantConnect("after a bad file", before, true)
		}
		if len(reports) != 2 || !errors.Is(reports[1], transport.ErrTLSFiles) {
			t.Fatalf("reports after a bad file: %v", reports)
		}
		if err := os.Remove(serverFiles(dir).CA); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			elapse(2 * time.Second)
			wantConnect("after a file went missing", before, true)
		}
		if len(reports) != 3 || !errors.Is(reports[2], os.ErrNotExist) {
			t.Fatalf("reports after a file went missing: %v", reports)
		}

		replace(t, dir, authority(t))
		elapse(2 * time.Second)
		wantConnect("after good files again", before, true)
		if len(reports) != 4 || reports[3] != nil {
			t.Fatalf("reports after good files again: %v", reports)
		}
	})
}

func TestTLSFilesThatCannotWork(t *testing.T) {
	dir := authority(t)
	good, other := serverFiles(dir), serverFiles(authority(t))
	for name, f := range map[string]transport.TLSFiles{
		"no certificate":      {CA: good.CA},
		"no key":              {Cert: good.Cert, CA: good.CA},
		"no CA":               {Cert: good.Cert, Key: good.Key},
		"missing":             {Cert: good.Cert, Key: good.Key, CA: filepath.Join(dir, "none.crt")},
		"another's key":       {Cert: good.Cert, Key: other.Key, CA: good.CA},
		"a CA that is no PEM": {Cert: good.Cert, Key: good.Key, CA: os.DevNull},
	} {
		if _, err := f.ServerConfig(tls.RequireAndVerifyClientCert); !errors.Is(err, transport.ErrTLSFiles) {
			t.Errorf("%s: %v, want ErrTLSFiles", name, err)
		}
	}
	if _, _, err := good.Peer(); !errors.Is(err, transport.ErrPeerName) {
		t.Errorf("a server's certificate as a peer's: %v, want ErrPeerName", err)
	}
	at := filepath.Join(dir, "nodes", "n1", "peer")
	cluster, id, err := transport.TLSFiles{Cert: at + ".crt", Key: at + ".key"}.Peer()
	if err != nil || cluster != "c1" || id != "n1" {
		t.Errorf("a peer's certificate: %q %q %v", cluster, id, err)
	}
}

// TestServerConfigWithHTTP checks that the configuration also works with net/http, including HTTP/2,
// which gRPC requires.
func TestServerConfigWithHTTP(t *testing.T) {
	dir := authority(t)
	listener, err := transport.TCP{}.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		TLSConfig: mustServer(t, serverFiles(dir)),
		ErrorLog:  log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s %s %d", r.Proto, r.TLS.PeerCertificates[0].Subject.CommonName, len(r.TLS.VerifiedChains))
		}),
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	for want, http2 := range map[string]bool{"HTTP/1.1 app 1": false, "HTTP/2.0 app 1": true} {
		rt := &http.Transport{TLSClientConfig: mustClient(t, clientFiles(dir)), ForceAttemptHTTP2: http2}
		resp, err := (&http.Client{Transport: rt}).Get("https://" + listener.Addr().String())
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(body) != want {
			t.Errorf("got %q, want %q", body, want)
		}
		rt.CloseIdleConnections()
	}
	_ = server.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

func TestHangupLetsTheReasonArrive(t *testing.T) {
	for _, secured := range []bool{false, true} {
		dir := authority(t)
		listener, err := transport.TCP{}.Listen(t.Context(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var client *tls.Config
		if secured {
			listener = tls.NewListener(listener, mustServer(t, serverFiles(dir)))
			client = mustClient(t, clientFiles(dir))
		}
		done := make(chan error, 1)
		go func() {
			conn, err := listener.Accept()
			if err == nil {
				_, _, err = transport.ServerHandshake(context.Background(), conn, welcome)
				transport.Hangup(conn, 5*time.Second)
			}
			done <- err
		}()
		conn, err := transport.Dial(t.Context(), nil, listener.Addr().String(), client)
		if err != nil {
			t.Fatal(err)
		}
		// A hello that is too large, followed by much that the node does not read.
		_, _ = io.WriteString(conn, transport.Preface+"\x00\x0f\xff\xff"+strings.Repeat("x", 1<<20))
		got, err := io.ReadAll(conn)
		if err != nil || !strings.Contains(string(got), "frame too large") {
			t.Errorf("TLS %v: read %q, %v", secured, got, err)
		}
		_ = conn.Close()
		if err := <-done; !errors.Is(err, transport.ErrFrameTooLarge) {
			t.Errorf("TLS %v: the node's side: %v", secured, err)
		}
		_ = listener.Close()
	}
}
