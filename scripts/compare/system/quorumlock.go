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
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// quorumlock is three nodes built from this tree, with or without TLS on every port. Clients cache their locks or not.
type quorumlock struct {
	bin    string
	tls    bool
	cached bool
}

func (q quorumlock) Name() string {
	switch {
	case q.tls:
		return QuorumlockTLS
	case q.cached:
		return QuorumlockCached
	}
	return Quorumlock
}

func (q quorumlock) Title() string {
	switch {
	case q.tls:
		return "Quorumlock, TLS"
	case q.cached:
		return "Quorumlock, cached"
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
	id                        string
	client, peer, http, redis string // addresses
}

// freeNodes returns three nodes with free ports.
func freeNodes() ([]node, error) {
	const each = 4
	ports, err := freePorts(3 * each)
	if err != nil {
		return nil, err
	}
	var nodes []node
	for own := range slices.Chunk(ports, each) {
		id := fmt.Sprintf("n%d", len(nodes)+1)
		nodes = append(nodes, node{id, loopback(own[0]), loopback(own[1]), loopback(own[2]), loopback(own[3])})
	}
	return nodes, nil
}

// sdkConfig returns the configuration of a client that knows all nodes.
func sdkConfig(nodes []node) client.Config {
	cfg := client.Config{Agent: "compare"}
	for _, n := range nodes {
		cfg.Endpoints = append(cfg.Endpoints, n.client)
	}
	return cfg
}

func (q quorumlock) Start(ctx context.Context, dir string) (*Cluster, error) {
	nodes, err := freeNodes()
	if err != nil {
		return nil, err
	}
	cfg := sdkConfig(nodes)
	if q.tls {
		if cfg.TLS, err = q.certify(ctx, dir); err != nil {
			return nil, err
		}
	}
	var options []client.LockOption
	if q.cached {
		options = append(options, client.WithCached(cachedIdle))
	}
	dial := func() (Client, error) { return dialQuorumlock(cfg, options...) }
	c, err := launch(ctx, dir, q.commands(nodes, dir), dial, func(ctx context.Context) error {
		_, err := quorumlockReady(ctx, cfg)
		return err
	})
	if err == nil {
		c.Endpoints = cfg.Endpoints
	}
	return c, err
}

// commands returns the command line of each node.
func (q quorumlock) commands(nodes []node, dir string) []*exec.Cmd {
	var peers []string
	for _, n := range nodes {
		peers = append(peers, n.id+"="+n.peer)
	}
	var commands []*exec.Cmd
	for _, n := range nodes {
		commands = append(commands, q.command(n, dir, strings.Join(peers, ",")))
	}
	return commands
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

// quorumlockReady requires a leader that reaches every node, and returns its status.
func quorumlockReady(ctx context.Context, cfg client.Config) (*wire.StatusResponse, error) {
	status, err := quorumlockStatus(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if status.GetLeaderId() == "" || len(status.GetNodes()) != 3 {
		return nil, errors.New("there is no leader")
	}
	for _, n := range status.GetNodes() {
		if !n.GetReachable() {
			return nil, fmt.Errorf("the leader does not reach %s", n.GetId())
		}
	}
	return status, nil
}

// quorumlockStatus returns the leader's status.
func quorumlockStatus(ctx context.Context, cfg client.Config) (*wire.StatusResponse, error) {
	c, err := client.New(cfg)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return wirecall.Of(c).Status(ctx, &wire.StatusRequest{})
}

type quorumlockClient struct {
	*client.Client
	options []client.LockOption
}

// cachedIdle is how long a session keeps a cached lock that it does not use.
const cachedIdle = time.Minute

// dialQuorumlock returns a client whose locks are acquired with options.
func dialQuorumlock(cfg client.Config, options ...client.LockOption) (Client, error) {
	c, err := client.New(cfg)
	if err != nil {
		return nil, err // not a typed nil
	}
	return quorumlockClient{c, options}, nil
}

func (c quorumlockClient) Open(ctx context.Context, ttl time.Duration) (Session, error) {
	s, err := c.NewSession(ctx, client.SessionOptions{TTL: ttl, Name: "compare"})
	if err != nil {
		return nil, err
	}
	return quorumlockSession{s, c.options}, nil
}

type quorumlockSession struct {
	*client.Session
	options []client.LockOption
}

func (s quorumlockSession) Lock(ctx context.Context, name string) (Hold, error) {
	h, err := s.Session.Lock(ctx, name, s.options...)
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
