package hostile

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/client/admin"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	free "github.com/quorumlock/quorumlock/test/ports"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// port is one of a node's ports.
type port string

const (
	clientPort port = "client"
	peerPort   port = "peer"
	httpPort   port = "http"
	redisPort  port = "redis"
)

var ports = []port{clientPort, peerPort, httpPort, redisPort}

// Deadlines of the nodes under attack. Those that have flags are short, to keep the tests short; the others
// are the product's.
const (
	handshakeTime = 3 * time.Second // client port, --handshake-timeout; the same on the peer port
	frameTime     = 4 * time.Second // --frame-timeout
	idleTime      = 6 * time.Second // --idle-timeout
	headerTime    = 10 * time.Second
	bodyTime      = 10 * time.Second
)

// slack allows for a busy machine.
var slack = aloneOrShared(5*time.Second, 30*time.Second)

// clusterName is the cluster in the certificates.
const clusterName = "c1"

// protection is how a cluster is protected.
type protection int

const (
	plaintext protection = iota
	// withTLS requires certificates on all ports.
	withTLS
	// withPolicy has a policy as well: honest callers may do everything, attackers only use locks.
	withPolicy
)

func (p protection) String() string { return []string{"plaintext", "tls", "policy"}[p] }

// honestIdentity and attackingIdentity are the names in the certificates of clients.
const honestIdentity, attackingIdentity = "app", "attacker"

// cluster is a cluster under attack.
type cluster struct {
	t         testing.TB
	protected protection
	nodes     []*node
	certs     string // directory of an authority; empty means plaintext
	leader    *node
}

// startCluster starts nodes n1 to n<count> and waits for a leader.
func startCluster(t testing.TB, count int, protected protection, flags ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, protected: protected}
	var peers []string
	var members []pki.Node
	for i := range count {
		id := fmt.Sprintf("n%d", i+1)
		n := &node{t: t, id: id, addr: addresses(t), healthAddr: free.For(t, 1)[0], scheme: "http"}
		c.nodes = append(c.nodes, n)
		peers = append(peers, id+"="+n.addr[peerPort])
		members = append(members, pki.Node{ID: id})
	}
	if protected != plaintext {
		c.certs = t.TempDir()
		members = append(members, pki.Node{ID: "n8"}, pki.Node{ID: "n9"}) // two that may join
		if _, err := pki.Init(c.certs, clusterName, members, []string{honestIdentity, attackingIdentity}); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range c.nodes {
		n.caller = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: c.clientTLS()}}
		n.regular = &http.Client{Transport: &http.Transport{TLSClientConfig: c.clientTLS(), MaxIdleConnsPerHost: 4}}
		n.start(slices.Concat(c.flags(n, strings.Join(peers, ",")), flags)...)
	}
	c.awaitLeader()
	if protected == withPolicy {
		c.setPolicy()
	}
	return c
}

// setPolicy gives honest callers all rights and attackers those of users, and sets quotas.
func (c *cluster) setPolicy(quotas ...admin.Quota) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	operator := admin.New(c.client())
	_, revision, err := operator.Policy(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	policy := &admin.Policy{Quotas: quotas, Bindings: []admin.Binding{
		{Identity: honestIdentity, Roles: []string{"admin"}}, {Identity: attackingIdentity, Roles: []string{"user"}},
	}}
	if err := operator.SetPolicy(ctx, policy, revision, false, admin.By{Reason: "tests"}); err != nil {
		c.t.Fatal(err)
	}
	for _, n := range c.nodes { // wait until all of them have applied it
		await(c.t, "the policy on "+n.id, timeout, func(ctx context.Context) error {
			text, err := n.get(ctx, "/metrics")
			if err == nil && !strings.Contains(text, "\nquorumlock_policy_in_force 1\n") {
				err = errors.New("none yet")
			}
			return err
		})
	}
}

func (c *cluster) flags(n *node, peers string) []string {
	all := []string{
		"--id", n.id, "--data-dir", filepath.Join(c.t.TempDir(), n.id), "--cluster", peers,
		"--client-addr", n.addr[clientPort], "--peer-addr", n.addr[peerPort], "--http-addr", n.addr[httpPort], "--redis-addr", n.addr[redisPort],
		"--health-addr", n.healthAddr,
		"--handshake-timeout", handshakeTime.String(), "--frame-timeout", frameTime.String(), "--idle-timeout", idleTime.String(),
		// Long timeouts, so that a busy machine is not mistaken for a dead leader.
		"--heartbeat-timeout", "2s", "--election-timeout", "2s", "--leader-lease-timeout", "2s",
		"--log-format", "json",
	}
	if len(c.nodes) == 1 {
		all = append(all, "--heartbeat-timeout", "100ms", "--election-timeout", "100ms", "--leader-lease-timeout", "100ms")
	}
	if c.certs != "" {
		n.scheme = "https"
		own := filepath.Join(c.certs, "nodes", n.id)
		all = append(all, "--tls-cert", filepath.Join(own, "server.crt"), "--tls-key", filepath.Join(own, "server.key"),
			"--tls-ca", filepath.Join(c.certs, "ca.crt"),
			"--peer-tls-cert", filepath.Join(own, "peer.crt"), "--peer-tls-key", filepath.Join(own, "peer.key"),
			"--peer-tls-ca", filepath.Join(c.certs, "ca.crt"))
	}
	return all
}

// addresses returns a free address on loopback for each port of a node.
func addresses(t testing.TB) map[port]string {
	t.Helper()
	addrs := map[port]string{}
	for i, addr := range free.For(t, len(ports)) {
		addrs[ports[i]] = addr
	}
	return addrs
}

func (c *cluster) awaitLeader() {
	c.t.Helper()
	cl := c.client()
	await(c.t, "a leader that reaches all", timeout, func(ctx context.Context) error {
		status, err := wirecall.Of(cl).Status(ctx, &wire.StatusRequest{})
		if err != nil {
			return err
		}
		for _, n := range status.GetNodes() {
			if !n.GetReachable() {
				return fmt.Errorf("%s is not reachable", n.GetId())
			}
		}
		i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.id == status.GetLeaderId() })
		if i < 0 || len(status.GetNodes()) != len(c.nodes) {
			return errors.New("no leader")
		}
		c.leader = c.nodes[i]
		return nil
	})
}

// client creates an SDK client, which is closed when the test ends, at the latest.
func (c *cluster) client() *client.Client {
	c.t.Helper()
	cl, err := client.New(client.Config{Endpoints: c.clientAddrs(), TLS: c.clientTLS(), Agent: "hostile-test", RequestTimeout: timeout})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = cl.Close() })
	return cl
}

// clientAddrs returns the client addresses of all nodes.
func (c *cluster) clientAddrs() (addrs []string) {
	for _, n := range c.nodes {
		addrs = append(addrs, n.addr[clientPort])
	}
	return addrs
}

// clientTLS returns the configuration of an honest client; nil means plaintext.
func (c *cluster) clientTLS() *tls.Config {
	c.t.Helper()
	if c.certs == "" {
		return nil
	}
	return c.identity("clients/" + honestIdentity + "/client")
}

// identity returns a configuration with one of the certificates of the cluster's authority.
func (c *cluster) identity(name string) *tls.Config {
	c.t.Helper()
	return identityOf(c.t, filepath.Join(c.certs, name), filepath.Join(c.certs, "ca.crt"))
}

func identityOf(t testing.TB, pair, ca string) *tls.Config {
	t.Helper()
	config, err := transport.TLSFiles{Cert: pair + ".crt", Key: pair + ".key", CA: ca}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// insider returns the identity that a port accepts: a client's, or on the peer port that of a node that may
// join.
func (c *cluster) insider(p port) *tls.Config {
	if c.certs == "" {
		return nil
	}
	if p == peerPort {
		config := c.identity("nodes/n9/peer")
		config.InsecureSkipVerify = true // it dials addresses, but certificates contain node names
		return config
	}
	return c.clientTLS()
}

// dial opens a connection to a port of the leader, up to the start of its protocol.
func (c *cluster) dial(t testing.TB, p port) net.Conn {
	t.Helper()
	return dial(t, c.leader.addr[p], c.insider(p))
}

// raw opens a TCP connection and nothing more.
func (c *cluster) raw(t testing.TB, p port) net.Conn {
	t.Helper()
	return dial(t, c.leader.addr[p], nil)
}

func dial(t testing.TB, addr string, config *tls.Config) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := transport.Dial(ctx, nil, addr, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { transport.Cut(conn) })
	return conn
}

// sizes returns the sizes of all nodes, by ID.
func (c *cluster) sizes() map[string]size {
	c.t.Helper()
	all := map[string]size{}
	for _, n := range c.nodes {
		all[n.id] = n.size()
	}
	return all
}

// How much a node may have grown after all attacks, including what Go's runtime keeps for a while after a
// peak.
const (
	memoryBound    = 64 << 10 // KiB
	goroutineBound = 30
	fileBound      = 30
)

// waitForSize waits until every node is about as large as before.
func (c *cluster) waitForSize(before map[string]size) {
	c.t.Helper()
	await(c.t, "nodes as large as before", timeout, func(context.Context) error {
		for id, now := range c.sizes() {
			then := before[id]
			if now.goroutines > then.goroutines+goroutineBound || now.files > then.files+fileBound || now.rss > then.rss+memoryBound {
				return fmt.Errorf("%s: %+v, before %+v", id, now, then)
			}
		}
		return nil
	})
	after := c.sizes()
	for _, id := range slices.Sorted(maps.Keys(before)) {
		c.t.Logf("%s (leader %s): before %+v, after %+v", id, c.leader.id, before[id], after[id])
	}
}

// honest fails the test if a log contains a line that an attacker forged.
func (c *cluster) honest() {
	c.t.Helper()
	for _, n := range c.nodes {
		if lines := n.log.forged(); len(lines) > 0 {
			c.t.Errorf("%s logged what is no JSON: %q", n.id, lines)
		}
	}
}
