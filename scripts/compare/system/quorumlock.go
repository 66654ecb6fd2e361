package system

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// quorumlock is three nodes built from this tree, with or without TLS on every port.
type quorumlock struct {
	bin string
	tls bool
}

func (q quorumlock) Name() string {
	if q.tls {
		return QuorumlockTLS
	}
	return Quorumlock
}

func (q quorumlock) Title() string {
	if q.tls {
		return "Quorumlock, TLS"
	}
	return "Quorumlock"
}

func (q quorumlock) Needs() []Need {
	return []Need{{File: q.program("qlockd")}, {File: q.program("qlock")}}
}

func (q quorumlock) program(name string) string { return filepath.Join(q.bin, name) }

func (q quorumlock) Version(ctx context.Context) (string, error) {
	return firstLine(exec.CommandContext(ctx, q.program("qlockd"), "--version"))
}

// node is one qlockd.
type node struct {
	id                 string
	client, peer, http string // addresses
}

func (q quorumlock) Start(ctx context.Context, dir string) (*Cluster, error) {
	ports, err := freePorts(9)
	if err != nil {
		return nil, err
	}
	var nodes []node
	var endpoints, peers []string
	for i := range 3 {
		n := node{id: fmt.Sprintf("n%d", i+1), client: loopback(ports[3*i]), peer: loopback(ports[3*i+1]), http: loopback(ports[3*i+2])}
		nodes, endpoints, peers = append(nodes, n), append(endpoints, n.client), append(peers, n.id+"="+n.peer)
	}
	cfg := client.Config{Endpoints: endpoints, Agent: "compare"}
	if q.tls {
		if cfg.TLS, err = q.certify(ctx, dir); err != nil {
			return nil, err
		}
	}
	var commands []*exec.Cmd
	for _, n := range nodes {
		commands = append(commands, q.command(n, dir, strings.Join(peers, ",")))
	}
	dial := func() (Client, error) { return dialQuorumlock(cfg) }
	return launch(ctx, dir, commands, dial, func(ctx context.Context) error { return quorumlockReady(ctx, cfg) })
}

// command uses the default settings, except for the limits that one workload exceeds.
func (q quorumlock) command(n node, dir, cluster string) *exec.Cmd {
	args := []string{"--id", n.id, "--data-dir", filepath.Join(dir, n.id), "--cluster", cluster,
		"--client-addr", n.client, "--peer-addr", n.peer, "--http-addr", n.http, "--max-locks", "4000000", "--memory-limit", "17179869184", "--max-state-bytes", "8589934592"}
	if q.tls {
		own := filepath.Join(dir, "certs", "nodes", n.id)
		ca := filepath.Join(dir, "certs", "ca.crt")
		args = append(args,
			"--tls-cert", filepath.Join(own, "server.crt"), "--tls-key", filepath.Join(own, "server.key"), "--tls-ca", ca,
			"--peer-tls-cert", filepath.Join(own, "peer.crt"), "--peer-tls-key", filepath.Join(own, "peer.key"), "--peer-tls-ca", ca)
	}
	return exec.Command(q.program("qlockd"), args...)
}

// certify creates the certificates of a cluster, and returns a client's configuration.
func (q quorumlock) certify(ctx context.Context, dir string) (*tls.Config, error) {
	certs := filepath.Join(dir, "certs")
	cmd := exec.CommandContext(ctx, q.program("qlock"), "tls", "init", "--cluster", "compare", "--dir", certs,
		"--node", "n1=127.0.0.1", "--node", "n2=127.0.0.1", "--node", "n3=127.0.0.1", "--client", "compare")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("qlock tls init: %w\n%s", err, out)
	}
	own := filepath.Join(certs, "clients", "compare")
	pair, err := tls.LoadX509KeyPair(filepath.Join(own, "client.crt"), filepath.Join(own, "client.key"))
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(certs, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("qlock tls init made no authority")
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{pair}}, nil
}

// quorumlockReady requires a leader that reaches every node.
func quorumlockReady(ctx context.Context, cfg client.Config) error {
	c, err := client.New(cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	status, err := wirecall.Of(c).Status(ctx, &wire.StatusRequest{})
	if err != nil {
		return err
	}
	if status.GetLeaderId() == "" || len(status.GetNodes()) != 3 {
		return errors.New("there is no leader")
	}
	for _, n := range status.GetNodes() {
		if !n.GetReachable() {
			return fmt.Errorf("the leader does not reach %s", n.GetId())
		}
	}
	return nil
}

type quorumlockClient struct{ *client.Client }

func dialQuorumlock(cfg client.Config) (Client, error) {
	c, err := client.New(cfg)
	if err != nil {
		return nil, err // not a typed nil
	}
	return quorumlockClient{c}, nil
}

func (c quorumlockClient) Open(ctx context.Context, ttl time.Duration) (Session, error) {
	s, err := c.NewSession(ctx, client.SessionOptions{TTL: ttl, Name: "compare"})
	if err != nil {
		return nil, err
	}
	return quorumlockSession{s}, nil
}

type quorumlockSession struct{ *client.Session }

func (s quorumlockSession) Lock(ctx context.Context, name string) (Hold, error) {
	h, err := s.Session.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	return quorumlockHold{h}, nil
}

type quorumlockHold struct{ *client.Hold }

// Arrived returns the revision of the acquire, which is the hold's ID.
func (h quorumlockHold) Arrived() uint64 { return h.ID() }

// Granted returns the fencing token.
func (h quorumlockHold) Granted() uint64 { return h.Token() }
