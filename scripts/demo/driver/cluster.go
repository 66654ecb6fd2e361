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
	"github.com/quorumlock/quorumlock/transport/wire"
)

// node is one qlockd.
type node struct {
	id                 string
	peer, client, http string // addresses
	dir                string // its data
	log                string
}

// command is the node's command line. It is the same at every start: --cluster only
// counts at the first.
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

// threeNodes lays out n1 to n3 below dir. port gives the addresses of node i from 0:
// client, peer and HTTP.
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

// freePorts finds nine ports of loopback that nobody listens on.
func freePorts() (func(i int) (client, peer, http string), error) {
	var addrs []string
	for range 9 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() // all at once, so that no port comes twice
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
	running map[string]*process // by node id
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

// start starts one node, with its log behind that of earlier starts.
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

// await asks for the status until it is as wanted. A node that ended by itself ends
// the waiting.
func (c *cluster) await(ctx context.Context, wanted func(*wire.StatusResponse) bool) (*wire.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		status, err := c.client.Status(attempt, &wire.StatusRequest{})
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

// allReachable tells whether the leader reaches every node.
func allReachable(status *wire.StatusResponse) bool {
	for _, n := range status.GetNodes() {
		if !n.GetReachable() {
			return false
		}
	}
	return status.GetLeaderId() != ""
}

// ended says which node has ended by itself, with the end of its log.
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

// close ends every node, followers first: so that leadership is handed over at most once.
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

// tail is the last lines of a file, for an error's text.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
