package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/cmd/qlock/golden"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
)

// wrong is a configuration that qlockd refuses.
type wrong struct {
	name string
	// args is the command line, words separated by blanks. DIR stands for the directory of surroundings.
	args string
	// file is the content of a file for --config, env a variable.
	file, env string
}

// The beginnings of the command lines of nodes.
const (
	node    = "--id n1 --data-dir DIR/new --peer-addr 127.0.0.1:0 --client-addr 127.0.0.1:0 --http-addr 127.0.0.1:0 "
	tlsNode = node + "--tls-cert DIR/prod/nodes/n1/server.crt --tls-key DIR/prod/nodes/n1/server.key --tls-ca DIR/prod/ca.crt "
	peerTLS = node + "--peer-tls-key DIR/prod/nodes/n1/peer.key --peer-tls-ca DIR/prod/ca.crt "
)

var wrongConfigurations = []wrong{
	{name: "nothing"},
	{name: "no id", args: "--data-dir DIR/new"},
	{name: "bad id", args: "--id n/1 --data-dir DIR/new"},
	{name: "no data directory", args: "--id n1"},
	{name: "two faults", args: node + "--commit-timeout 1h --cluster n1=a:1,n1=b:2"},
	{name: "unknown flag", args: node + "--max-conections 5"},
	{name: "flag without a value", args: "--dev --id"},
	{name: "argument", args: node + "start"},
	{name: "bad duration", args: node + "--min-ttl 5"},
	{name: "bad duration in the environment", args: node, env: "QLOCKD_MIN_TTL=soon"},
	{name: "bad number", args: node + "--max-locks many"},
	{name: "negative limit", args: node + "--max-connections -1"},
	{name: "bad switch", args: node + "--no-console=perhaps"},
	{name: "bad log level", args: node + "--log-level loud"},

	{name: "missing file", args: "--config DIR/nowhere.yaml"},
	{name: "unknown key", file: "id: n1\ndata_dir: d\n"},
	{name: "bad duration in the file", file: "id: n1\nmin-ttl: soon\n"},
	{name: "key twice", file: "id: n1\nid: n2\n"},
	{name: "no YAML", file: "{\n"},

	{name: "no address", args: node + "--client-addr 127.0.0.1"},
	{name: "bad port", args: node + "--client-addr 127.0.0.1:74000"},
	{name: "two ports at one address", args: node + "--client-addr 127.0.0.1:7499 --http-addr 127.0.0.1:7499"},
	{name: "port in use", args: node + "--client-addr 127.0.0.1:PORT"},
	{name: "address of another machine", args: node + "--insecure --client-addr 192.0.2.1:7400"},
	{name: "address that does not resolve", args: node + "--insecure --client-addr no..such..host:7400"},
	{name: "wildcard without an advertised address", args: node + "--insecure --client-addr 0.0.0.0:7400"},
	{name: "advertised wildcard", args: node + "--insecure --client-addr 0.0.0.0:7400 --advertise-client-addr 0.0.0.0:7400"},
	{name: "plaintext", args: node + "--client-addr 192.0.2.1:7400"},

	{name: "no address in the cluster", args: node + "--cluster n1"},
	{name: "bad id in the cluster", args: node + "--cluster n1=a:7401,n/2=b:7401"},
	{name: "node twice in the cluster", args: node + "--cluster n1=a:7401,n2=b:7401,n2=c:7401"},
	{name: "address twice in the cluster", args: node + "--cluster n1=a:7401,n2=a:7401,n3=c:7401"},
	{name: "node not in the cluster", args: node + "--cluster n2=b:7401,n3=c:7401"},
	{name: "cluster with a wildcard", args: node + "--cluster n1=0.0.0.0:7401"},
	{name: "cluster says another address", args: node + "--cluster n1=a:7401 --advertise-peer-addr b:7401"},
	{name: "cluster too large", args: node + "--cluster n1=a:1,n2=a:2,n3=a:3,n4=a:4,n5=a:5,n6=a:6,n7=a:7,n8=a:8"},
	{name: "join and cluster", args: node + "--cluster n1=a:7401 --join b:7401"},
	{name: "join without a port", args: node + "--join locks.example.org"},
	{name: "expected without join", args: node + "--bootstrap-expect 3"},
	{name: "two nodes expected", args: node + "--join b:7401 --bootstrap-expect 2"},
	{name: "four nodes expected", args: node + "--join b:7401 --bootstrap-expect 4"},
	{name: "dev with a cluster", args: "--dev --cluster n1=a:7401"},

	{name: "certificate without a key", args: node + "--tls-cert DIR/prod/nodes/n1/server.crt"},
	{name: "authority without a certificate", args: node + "--tls-ca DIR/prod/ca.crt"},
	{name: "certificate without an authority", args: node + "--tls-cert DIR/prod/nodes/n1/server.crt --tls-key DIR/prod/nodes/n1/server.key"},
	{name: "missing certificate", args: tlsNode + "--tls-cert DIR/nowhere.crt"},
	{name: "key of another certificate", args: tlsNode + "--tls-key DIR/prod/nodes/n2/server.key"},
	{name: "no authority in the file", args: tlsNode + "--tls-ca DIR/prod/nodes/n1/server.key"},
	{name: "expired certificate", args: tlsNode + "--tls-cert DIR/expired.crt --tls-key DIR/expired.key"},
	{name: "certificate of the future", args: tlsNode + "--tls-cert DIR/future.crt --tls-key DIR/future.key"},
	{name: "certificate of a client", args: tlsNode + "--tls-cert DIR/prod/clients/app/client.crt --tls-key DIR/prod/clients/app/client.key"},
	{name: "revocation list of another authority", args: tlsNode + "--tls-crl DIR/other/crl.pem"},
	{name: "clients unchecked", args: tlsNode + "--http-client-auth none"},
	{name: "peer certificate without clientAuth", args: peerTLS + "--peer-tls-cert DIR/server-only.crt --peer-tls-key DIR/server-only.key --peer-tls-ca DIR/server-only.crt"},
	{name: "peer certificate of another authority", args: peerTLS + "--peer-tls-cert DIR/prod/nodes/n1/peer.crt --peer-tls-ca DIR/other/ca.crt"},
	{name: "peer certificate of another node", args: peerTLS + "--peer-tls-cert DIR/prod/nodes/n2/peer.crt --peer-tls-key DIR/prod/nodes/n2/peer.key"},
	{name: "peer certificate that names no node", args: peerTLS + "--peer-tls-cert DIR/nameless.crt --peer-tls-key DIR/nameless.key --peer-tls-ca DIR/nameless.crt"},

	{name: "data directory is a file", args: node + "--data-dir DIR/file"},
	{name: "data directory below a file", args: node + "--data-dir DIR/file/data"},
	{name: "data directory of another node", args: node + "--data-dir DIR/n2"},
	{name: "data directory of another cluster", args: peerTLS + "--data-dir DIR/others --peer-tls-cert DIR/prod/nodes/n1/peer.crt"},
	{name: "audit log in a missing directory", args: node + "--audit-log DIR/nowhere/audit.log"},

	{name: "heartbeat beyond the election", args: node + "--heartbeat-timeout 2s"},
	{name: "lease beyond the heartbeat", args: node + "--leader-lease-timeout 2s"},
	{name: "TTLs reversed", args: node + "--min-ttl 1m --max-ttl 30s"},
	{name: "default TTL too long", args: node + "--default-ttl 1h"},
	{name: "sessions shorter than a fail-over", args: node + "--min-ttl 500ms"},
	{name: "state beyond the memory", args: node + "--memory-limit 1073741824 --max-state-bytes 1073741824"},
	{name: "frames without room for values", args: node + "--max-frame-bytes 65536 --max-value-bytes 65536"},

	{name: "missing directory for backups", args: node + "--backup-dir DIR/nowhere"},
	{name: "bad schedule", args: node + "--backup-dir DIR --backup-schedule nightly"},
	{name: "bucket without a directory", args: node + "--backup-s3 s3://locks"},
	{name: "bad bucket", args: node + "--backup-dir DIR --backup-s3 https://locks"},
	{name: "client auth unknown", args: node + "--http-client-auth maybe"},
}

// TestWrongConfigurations tries each configuration with a start and with --check-config. Both must end with the same
// line and exit code, and leave nothing behind. testdata/wrong.txt has the lines, to be read as users read them.
func TestWrongConfigurations(t *testing.T) {
	dir, port := surroundings(t)
	var out strings.Builder
	for _, w := range wrongConfigurations {
		args := strings.Fields(strings.NewReplacer("DIR", dir, "PORT", port).Replace(w.args))
		if w.file != "" {
			args = append(args, "--config", configFile(t, w.file))
		}
		var env []string
		if w.env != "" {
			env = []string{w.env}
		}
		code, stdout, stderr := runToEnd(t, env, append([]string{"--check-config"}, args...)...)
		if code == 0 {
			t.Errorf("%s: --check-config accepts it", w.name)
			continue
		}
		if strings.Contains(stdout, "configuration ok") || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: --check-config writes not exactly one line:\n%s%s", w.name, stdout, stderr)
		}
		started, stdout, log := runToEnd(t, env, append([]string{"--log-level", "error"}, args...)...)
		if started != code || log != stderr || stdout != "" {
			t.Errorf("%s: a start ends with %d and %q, --check-config with %d and %q", w.name, started, log, code, stderr)
		}
		if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
			t.Errorf("%s: a data directory was made", w.name)
		}
		fmt.Fprintf(&out, "%s\n%s  exit %d: %s\n", w.name, w.given(), code, strings.NewReplacer(dir, "DIR", ":"+port, ":PORT").Replace(stderr))
	}
	golden.Compare(t, "wrong.txt", hideNames(out.String()))
}

// given is what the user wrote.
func (w wrong) given() (text string) {
	if w.env != "" {
		text += "  " + w.env + "\n"
	}
	for line := range strings.Lines(w.file) {
		text += "  FILE: " + line
	}
	if args := strings.TrimPrefix(w.args, node); args != "" {
		text += "  qlockd " + args + "\n"
	}
	return text
}

var varying = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|/\S+/qlockd\.yaml`)

// hideNames replaces times and the name of the configuration file.
func hideNames(text string) string {
	return varying.ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasPrefix(found, "/") {
			return "FILE"
		}
		return "TIME"
	})
}

// surroundings makes a directory with certificates, data of other nodes and clusters, and a port in use.
func surroundings(t *testing.T) (dir, port string) {
	t.Helper()
	dir = t.TempDir()
	for _, cluster := range []string{"prod", "other"} {
		at := filepath.Join(dir, cluster)
		if _, err := pki.Init(at, cluster, []pki.Node{{ID: "n1"}, {ID: "n2"}}, []string{"app"}); err != nil {
			t.Fatal(err)
		}
		if _, err := pki.Revoke(at, []string{"app"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	now, day := time.Now(), 24*time.Hour
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	selfSigned(t, filepath.Join(dir, "expired"), now.Add(-2*day), now.Add(-day), both, nil)
	selfSigned(t, filepath.Join(dir, "future"), now.Add(day), now.Add(2*day), both, nil)
	selfSigned(t, filepath.Join(dir, "nameless"), now.Add(-day), now.Add(day), both, nil)
	selfSigned(t, filepath.Join(dir, "server-only"), now.Add(-day), now.Add(day), both[:1], transport.PeerURI("prod", "n1"))
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	peer := filepath.Join(dir, "other", "nodes", "n1", "peer")
	for _, args := range [][]string{
		{"--id", "n2", "--data-dir", filepath.Join(dir, "n2")},
		{"--id", "n1", "--data-dir", filepath.Join(dir, "others"), "--peer-tls-cert", peer + ".crt", "--peer-tls-key", peer + ".key", "--peer-tls-ca", filepath.Join(dir, "other", "ca.crt")},
	} {
		d := start(t, nil, freePorts(args...)...)
		waitForLeader(t, d)
		if code := d.signal(syscall.SIGTERM); code != 0 {
			t.Fatalf("exit code %d", code)
		}
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	_, port, _ = net.SplitHostPort(taken.Addr().String())
	return dir, port
}

// waitForLeader returns when the node has a cluster.
func waitForLeader(t *testing.T, d *daemon) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); <-tick.C {
		if reply, conn, _ := hello(t, d.addr("client")); reply.GetClusterId() != "" && reply.GetLeader() != nil {
			_ = conn.Close()
			return
		}
	}
	t.Fatalf("no leader:\n%s", d.text())
}

// selfSigned writes a certificate that is its own authority, and its key.
func selfSigned(t *testing.T, base string, from, to time.Time, usages []x509.ExtKeyUsage, uri *url.URL) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "n1"}, NotBefore: from, NotAfter: to, ExtKeyUsage: usages,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if uri != nil {
		template.URIs = []*url.URL{uri}
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: cert}, ".key": {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(base+name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
