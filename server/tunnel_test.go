package server

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// partialNetwork is the network of a client for which one address refuses connections.
type partialNetwork struct {
	refuses string

	mu      sync.Mutex
	refused int
	own     []string // the client's local addresses
}

func (d *partialNetwork) dial(ctx context.Context, addr string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if addr == d.refuses {
		d.refused++
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err == nil {
		d.own = append(d.own, conn.LocalAddr().String())
	}
	return conn, err
}

// TestTunnelOverTLS connects a client with a certificate to the leader through a follower. The client's TLS
// ends at the follower; from there the nodes' own TLS is used.
func TestTunnelOverTLS(t *testing.T) {
	dir := t.TempDir()
	ids := []string{"n1", "n2", "n3"}
	if _, err := pki.Init(dir, "c1", []pki.Node{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}}, []string{"app"}); err != nil {
		t.Fatal(err)
	}
	files := func(of, name string) transport.TLSFiles {
		return transport.TLSFiles{Cert: filepath.Join(dir, of, name+".crt"), Key: filepath.Join(dir, of, name+".key"), CA: filepath.Join(dir, "ca.crt")}
	}
	network := &reserved{ports: map[string]net.Listener{}}
	var cluster []Peer
	for _, id := range ids {
		cluster = append(cluster, Peer{ID: id, Addr: network.reserve(t)})
	}
	var nodes []*Node
	var endpoints []string
	for _, p := range cluster {
		cfg := quick(t)
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = time.Second, time.Second, time.Second
		cfg.ID, cfg.Cluster, cfg.Network, cfg.Listen.Peer = p.ID, cluster, network, p.Addr
		cfg.TLS, cfg.PeerTLS = files("nodes/"+p.ID, "server"), files("nodes/"+p.ID, "peer")
		nodes = append(nodes, open(t, cfg))
		endpoints = append(endpoints, nodes[len(nodes)-1].Addrs().Client)
	}
	leader := serving(t, nodes...)
	config, err := files("clients/app", "client").ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	way := &partialNetwork{refuses: leader.Addrs().Client}
	c, err := client.New(client.Config{Endpoints: endpoints, TLS: config, Dial: way.dial})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.NewSession(bounded(t), client.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	hold, err := s.Lock(bounded(t), "chair")
	if err != nil {
		t.Fatal(err)
	}
	way.mu.Lock()
	defer way.mu.Unlock()
	sessions := leader.Replica().Fork().ListSessions(&wire.ListSessionsRequest{}).GetSessions()
	if len(sessions) != 1 || !slices.Contains(way.own, sessions[0].GetClient().GetAddress()) {
		t.Errorf("sessions %v, want one at one of %v", sessions, way.own)
	}
	if way.refused == 0 {
		t.Error("the leader itself was not tried")
	}
	if err := hold.Context().Err(); err != nil {
		t.Error(err)
	}
}
