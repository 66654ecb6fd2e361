package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

// WaitTimeout is the usual timeout for anything that must happen. It is long enough for a machine with a dozen
// other tasks.
const WaitTimeout = 15 * time.Second

// Options configure a cluster.
type Options struct {
	// Nodes is the initial number of nodes.
	Nodes int
	// Flags are passed to every node, followed by the NodeFlags for its ID.
	Flags     []string
	NodeFlags map[string][]string
	// Env are variables for the nodes, as NAME=VALUE.
	Env []string
	// Apart puts each node into its own network namespace, and clients into two others: Clients and Frail.
	// The test is skipped if the machine does not allow that.
	Apart bool
	// Redis gives each node a Redis port.
	Redis bool
	// Proxied puts a proxy in front of each node's peer and client port, and of its Redis port.
	Proxied bool
	// Found makes the initial nodes find each other by their addresses, instead of giving each the list of all.
	Found bool
	// Secure are the names of clients that get a certificate. If there are any, all ports use TLS, and the cluster's own
	// client has the first certificate. Such a cluster has its initial nodes only.
	Secure []string
	// Storms raises the nodes' limits for 10,000 connections.
	Storms bool
	// Level is the highest feature level of the programs; 0 means that of the tests.
	Level uint32
	// Walls is set if the programs were built by BuildWithWalls.
	Walls bool
	// Lean makes all nodes except Chronicler discard most of their log with each snapshot. Otherwise nodes
	// keep all of it, so that it can be checked.
	Lean bool
	// Stderr are the standard errors of nodes whose log must not go to a file.
	Stderr map[string]*os.File
	// Dir is the directory for the nodes' files, which are kept after the test; empty means a temporary
	// directory.
	Dir string
}

// flagsOf returns the flags that follow from the options. A node that keeps its log also takes snapshots.
func (o Options) flagsOf(id string) []string {
	trailing := "1000000000"
	if o.Lean && id != Chronicler {
		trailing = "128"
	}
	flags := []string{"--snapshot-threshold", "64", "--trailing-logs", trailing}
	if o.Storms {
		flags = append(flags, "--max-connections", "15000")
	}
	return flags
}

// Chronicler is the node that keeps its whole log in a cluster that is Lean.
const Chronicler = "n1"

// Hosts of clients in a cluster that is Apart. The test's own client is on the first; the second is for
// clients that are partitioned.
const (
	Clients = "clients"
	Frail   = "frail"
)

// Cluster is the cluster of one test. Its methods fail the test instead of returning an error, so they must
// be called from the test's own goroutine.
type Cluster struct {
	t        testing.TB
	programs Programs
	opts     Options
	kept     bool // whether files are kept after the test
	site     *site
	frail    *fragile
	nodes    []*node
	cluster  string // the list of all nodes, for --cluster
	// endpoints and bases are the client addresses and HTTP URLs of the initial nodes. They do not change, so
	// that a load may read them.
	endpoints, bases []string
	client           *client.Client
}

// Start starts nodes n1 to n<count> on loopback, each with the given flags, and waits until one of them leads
// and reaches all others. Everything ends with the test. If the test fails, the nodes' logs are shown.
func Start(t testing.TB, programs Programs, count int, flags ...string) *Cluster {
	t.Helper()
	return StartWith(t, programs, Options{Nodes: count, Flags: flags})
}

// StartWith starts nodes n1 to n<opts.Nodes> as Start does.
func StartWith(t testing.TB, programs Programs, opts Options) *Cluster {
	t.Helper()
	kept := opts.Dir != ""
	if !kept {
		opts.Dir = t.TempDir()
	}
	c := &Cluster{t: t, programs: programs, opts: opts, kept: kept, site: newSite(t, opts.Apart)}
	c.frail = newFragile(c.site)
	t.Cleanup(c.end)
	var peers []string
	for i := range opts.Nodes {
		n := c.layOut(fmt.Sprintf("n%d", i+1))
		peers = append(peers, n.id+"="+n.peer)
	}
	for _, n := range c.nodes {
		c.endpoints, c.bases = append(c.endpoints, n.client), append(c.bases, c.HTTP(n.id))
	}
	c.secure()
	c.client = c.NewClient()
	c.cluster = strings.Join(peers, ",")
	for _, n := range c.nodes {
		if n.others = []string{"--cluster", c.cluster}; opts.Found {
			n.others = []string{"--join", c.peerAddrs(), "--bootstrap-expect", strconv.Itoa(opts.Nodes)}
		}
		c.start(n)
	}
	c.AwaitAll()
	return c
}

// Add starts one more node, which knows the others. The caller must add it to the cluster. Add returns its
// peer address.
func (c *Cluster) Add(id string) (peerAddr string) {
	c.t.Helper()
	n := c.layOut(id)
	c.cluster += "," + id + "=" + n.peer
	n.others = []string{"--cluster", c.cluster}
	c.start(n)
	return n.peer
}

// Join starts one more node, which asks to be added, with the address of one node.
func (c *Cluster) Join(id, via string) {
	c.t.Helper()
	seed := c.node(via).peer
	n := c.layOut(id)
	n.others = []string{"--join", seed}
	c.start(n)
}

func (c *Cluster) peerAddrs() string {
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.peer)
	}
	return strings.Join(addrs, ",")
}

// layOut gives a node its addresses, files and proxies, which outlive its processes.
func (c *Cluster) layOut(id string) *node {
	c.t.Helper()
	n := &node{id: id, site: c.site, dir: filepath.Join(c.opts.Dir, id), log: filepath.Join(c.opts.Dir, id+".log"), env: c.opts.Env, stderr: c.opts.Stderr[id]}
	if err := n.assignAddresses(c.opts); err != nil {
		c.t.Fatal(err)
	}
	c.nodes = append(c.nodes, n)
	return n
}

// Client returns the test's own client, for reading and changing the cluster.
func (c *Cluster) Client() *client.Client { return c.client }

// NewClient returns another client, which is closed when the test ends, at the latest. at are the nodes that it
// connects to first; none means all.
func (c *Cluster) NewClient(at ...string) *client.Client {
	c.t.Helper()
	cl, err := client.New(client.Config{
		Endpoints: c.endpointsOf(at), Agent: "process-test", RequestTimeout: WaitTimeout, Dial: c.Dialer(), TLS: c.operator(),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = cl.Close() })
	return cl
}

// Dialer connects as a client that is not partitioned.
func (c *Cluster) Dialer() func(context.Context, string) (net.Conn, error) {
	return c.site.dialer(Clients)
}

// FrailDialer connects as a client that may be partitioned.
func (c *Cluster) FrailDialer(client string) func(context.Context, string) (net.Conn, error) {
	return c.frail.dialer(client)
}

// Stall blocks a frail client while it is stalled.
func (c *Cluster) Stall(client string) { c.frail.stall(client) }

// Endpoints returns the client addresses of all nodes.
func (c *Cluster) Endpoints() []string {
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.client)
	}
	return addrs
}

// endpointsOf returns the client addresses of these nodes; none means all.
func (c *Cluster) endpointsOf(ids []string) (addrs []string) {
	if len(ids) == 0 {
		return c.Endpoints()
	}
	for _, id := range ids {
		addrs = append(addrs, c.Endpoint(id))
	}
	return addrs
}

// HTTP returns the base of a node's URLs.
func (c *Cluster) HTTP(id string) string {
	c.t.Helper()
	if len(c.opts.Secure) > 0 {
		return "https://" + c.node(id).http
	}
	return "http://" + c.node(id).http
}

// Endpoint returns the client address of a node.
func (c *Cluster) Endpoint(id string) string { c.t.Helper(); return c.node(id).client }

// PeerAddr returns the address of a node for other nodes.
func (c *Cluster) PeerAddr(id string) string { c.t.Helper(); return c.node(id).peer }

// Redis returns the address of a node's Redis port, empty if it has none.
func (c *Cluster) Redis(id string) string { c.t.Helper(); return c.node(id).redis }

// IDs returns the IDs of all nodes, in order.
func (c *Cluster) IDs() []string {
	var ids []string
	for _, n := range c.nodes {
		ids = append(ids, n.id)
	}
	return ids
}

// Others returns the IDs of all other nodes.
func (c *Cluster) Others(id string) []string {
	return slices.DeleteFunc(c.IDs(), func(other string) bool { return other == id })
}

// Kill9 kills processes with SIGKILL, all of them before it waits for the first.
func (c *Cluster) Kill9(ids ...string) {
	c.t.Helper()
	c.Signal(syscall.SIGKILL, ids...)
	for _, id := range ids {
		c.Ended(id)
	}
}

// Perish kills processes as Kill9 does, but some of them may have ended on their own, for example because
// their disk is gone.
func (c *Cluster) Perish(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		if err := c.node(id).signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			c.t.Fatalf("kill %s: %v", id, err)
		}
	}
	for _, id := range ids {
		c.Ended(id)
	}
}

// Stop stops a node's process. Continue resumes it. On a loaded machine, some of its threads may still run for
// milliseconds, and even answer a request.
func (c *Cluster) Stop(id string) { c.t.Helper(); c.Signal(syscall.SIGSTOP, id) }

// Freeze stops a node's process and waits until all of its threads have stopped.
func (c *Cluster) Freeze(id string) {
	c.t.Helper()
	c.Stop(id)
	c.Await(id+" is frozen", WaitTimeout, func(context.Context) error { return frozen(c.Pid(id)) })
}

// Continue resumes a stopped process.
func (c *Cluster) Continue(id string) { c.t.Helper(); c.Signal(syscall.SIGCONT, id) }

// Terminate sends SIGTERM to processes, to all of them before it waits for the first, and expects exit code
// 0.
func (c *Cluster) Terminate(ids ...string) {
	c.t.Helper()
	c.Signal(syscall.SIGTERM, ids...)
	for _, id := range ids {
		if code := c.Ended(id); code != 0 {
			c.t.Errorf("%s: exit code %d after SIGTERM", id, code)
		}
	}
}

// Signal sends a signal to the processes of nodes.
func (c *Cluster) Signal(sig syscall.Signal, ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		if err := c.node(id).signal(sig); err != nil {
			c.t.Fatalf("%v to %s: %v", sig, id, err)
		}
	}
}

// Ended waits for the end of a node's process and returns its exit code, or -1 after a signal.
func (c *Cluster) Ended(id string) (code int) {
	c.t.Helper()
	code, err := c.node(id).wait(WaitTimeout)
	if err != nil {
		c.t.Fatal(err)
	}
	return code
}

// Running reports whether a node has a running process.
func (c *Cluster) Running(id string) bool { c.t.Helper(); return c.node(id).alive() }

// EndedItself reports whether the last process of a node has ended, and not because of a signal.
func (c *Cluster) EndedItself(id string) bool {
	c.t.Helper()
	n := c.node(id)
	return n.running != nil && !n.alive() && n.running.cmd.ProcessState.ExitCode() >= 0
}

// Restart restarts nodes whose processes have ended, with their initial command line.
func (c *Cluster) Restart(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		n := c.node(id)
		if n.alive() {
			c.t.Fatalf("%s runs still", id)
		}
		c.start(n)
	}
}

// Replace ends the process of a node with SIGTERM unless it has ended, and starts it again from other programs, with
// flags that follow those of the cluster.
func (c *Cluster) Replace(id string, programs Programs, flags ...string) {
	c.t.Helper()
	n := c.node(id)
	if n.alive() {
		c.Terminate(id)
	}
	n.programs = programs
	if c.opts.NodeFlags == nil {
		c.opts.NodeFlags = map[string][]string{}
	}
	c.opts.NodeFlags[id] = flags
	c.start(n)
}

// Wipe removes the data directory of nodes whose process has ended.
func (c *Cluster) Wipe(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		n := c.node(id)
		if n.alive() {
			c.t.Fatalf("%s runs still", id)
		}
		if err := os.RemoveAll(n.dir); err != nil {
			c.t.Fatal(err)
		}
	}
}

// Retire removes a node whose process has ended, with all its files.
func (c *Cluster) Retire(id string) {
	c.t.Helper()
	c.Wipe(id)
	c.node(id).closeProxies()
	c.nodes = slices.DeleteFunc(c.nodes, func(n *node) bool { return n.id == id })
}

func (c *Cluster) start(n *node) {
	c.t.Helper()
	flags := slices.Concat(c.opts.flagsOf(n.id), c.tlsFlags(n.id), c.opts.Flags, c.opts.NodeFlags[n.id])
	if err := n.start(cmp.Or(n.programs, c.programs).qlockd(), flags, c.opts.Walls); err != nil {
		c.t.Fatalf("start %s: %v", n.id, err)
	}
}

func (c *Cluster) node(id string) *node {
	c.t.Helper()
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.id == id })
	if i < 0 {
		c.t.Fatalf("no node %q", id)
	}
	return c.nodes[i]
}

// end kills the running processes and shows the logs if the test failed.
func (c *Cluster) end() {
	c.frail.close()
	for _, n := range c.nodes {
		n.closeProxies()
		if !n.alive() {
			continue
		}
		_ = n.signal(syscall.SIGKILL) // it may just have ended on its own
		if _, err := n.wait(WaitTimeout); err != nil {
			c.t.Error(err)
		}
	}
	if !c.t.Failed() || c.kept {
		return
	}
	for _, n := range c.nodes {
		c.t.Logf("log of %s:\n%s", n.id, c.Log(n.id))
	}
}
