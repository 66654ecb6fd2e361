package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// node is one qlockd.
type node struct {
	id                 string
	peer, client, http string // addresses
	dir                string // data directory
	log                string
}

// command returns the node's command line. It is the same at every start, since --cluster only matters at the
// first one.
func (n *node) command(bin string, cluster []*node) *exec.Cmd {
	var peers []string
	for _, peer := range cluster {
		peers = append(peers, peer.id+"="+peer.peer)
	}
	return exec.Command(filepath.Join(bin, "qlockd"),
		"--id", n.id,
		"--data-dir", n.dir,
		"--peer-addr", n.peer,
		"--client-addr", n.client,
		"--http-addr", n.http,
		"--cluster", strings.Join(peers, ","),
	)
}

// threeNodes lays out n1 to n3 below dir. ports returns the addresses of node i, counted from 0.
func threeNodes(dir string, ports func(i int) (client, peer, http string)) []*node {
	var nodes []*node
	for i := range 3 {
		id := fmt.Sprintf("n%d", i+1)
		n := &node{id: id, dir: filepath.Join(dir, id), log: filepath.Join(dir, id+".log")}
		n.client, n.peer, n.http = ports(i)
		nodes = append(nodes, n)
	}
	return nodes
}

// freePorts returns nine free addresses on loopback.
func freePorts() (func(i int) (client, peer, http string), error) {
	var addrs []string
	for range 9 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() // after the loop, so that the ports are distinct
		addrs = append(addrs, listener.Addr().String())
	}
	return func(i int) (client, peer, http string) { return addrs[3*i], addrs[3*i+1], addrs[3*i+2] }, nil
}

func endpoints(nodes []*node) []string {
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.client)
	}
	return addrs
}

// cluster is three running nodes.
type cluster struct {
	bin     string
	nodes   []*node
	running map[string]*process // by node ID
	client  *client.Client
}

func newCluster(bin, dir string) (*cluster, error) {
	ports, err := freePorts()
	if err != nil {
		return nil, err
	}
	nodes := threeNodes(dir, ports)
	c, err := client.New(client.Config{Endpoints: endpoints(nodes), Agent: "demo"})
	if err != nil {
		return nil, err
	}
	return &cluster{bin: bin, nodes: nodes, running: map[string]*process{}, client: c}, nil
}

// start starts one node. Its log is appended to that of earlier starts.
func (c *cluster) start(id string) error {
	for _, n := range c.nodes {
		if n.id != id {
			continue
		}
		p, err := start(id, n.command(c.bin, c.nodes), n.log)
		if err != nil {
			return err
		}
		c.running[id] = p
		return nil
	}
	return fmt.Errorf("no node %q", id)
}

// open starts all nodes and waits for a leader that serves.
func (c *cluster) open(ctx context.Context) (*wire.StatusResponse, error) {
	for _, n := range c.nodes {
		if err := c.start(n.id); err != nil {
			return nil, err
		}
	}
	return c.await(ctx, func(s *wire.StatusResponse) bool { return s.GetLeaderId() != "" })
}

// await polls the status until it is as wanted. It returns an error if a node ends on its own.
func (c *cluster) await(ctx context.Context, wanted func(*wire.StatusResponse) bool) (*wire.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		status, err := wirecall.Of(c.client).Status(attempt, &wire.StatusRequest{})
		cancel()
		if err == nil && wanted(status) {
			return status, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(errors.New("the cluster did not come up in time"), err, c.ended())
		case <-time.After(100 * time.Millisecond):
			if err := c.ended(); err != nil {
				return nil, err
			}
		}
	}
}

// allReachable reports whether the leader reaches every node.
func allReachable(status *wire.StatusResponse) bool {
	for _, n := range status.GetNodes() {
		if !n.GetReachable() {
			return false
		}
	}
	return status.GetLeaderId() != ""
}

// ended returns an error if a node has ended on its own, with the end of its log.
func (c *cluster) ended() error {
	for _, n := range c.nodes {
		p := c.running[n.id]
		if p == nil {
			continue
		}
		select {
		case <-p.done:
			return fmt.Errorf("node %s ended: %v\n%s", n.id, p.err, tail(n.log, 5))
		default:
		}
	}
	return nil
}

func (c *cluster) kill(id string) {
	c.running[id].kill()
	delete(c.running, id)
}

// close ends every node, followers first, so that leadership is transferred at most once.
func (c *cluster) close(leader string) {
	_ = c.client.Close()
	for id, p := range c.running {
		if id != leader {
			p.end(5 * time.Second)
		}
	}
	if p := c.running[leader]; p != nil {
		p.end(5 * time.Second)
	}
}

// tail returns the last lines of a file, for error messages.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
