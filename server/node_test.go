package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/pki"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestOneNodeServesAndRemembers(t *testing.T) {
	cfg := quick(t)
	node := open(t, cfg)
	serving(t, node)
	c := dial(t, node)
	holder, waiter := c.open("the holder's secret"), c.open("the waiter's secret")
	held := c.expect(wire.Status_GRANTED, acquire(holder, 1, "orders/1"))
	c.expect(wire.Status_QUEUED, acquire(waiter, 1, "orders/1"))
	c.expect(wire.Status_OK, heartbeat(holder))
	c.expect(wire.Status_OK, release(holder, 2, held.Result))
	granted := c.push().GetOutcome()
	if granted.GetStatus() != wire.Status_GRANTED || granted.GetToken() <= held.Result.GetToken() {
		t.Errorf("push %v after %v", granted, held)
	}

	shut(t, node)
	if bye := c.goodbye(); bye.GetCode() != wire.Goodbye_SHUTDOWN {
		t.Errorf("goodbye %v", bye)
	}
	again := open(t, cfg)
	serving(t, again)
	c = dial(t, again)
	c.expect(wire.Status_NOT_ATTACHED, heartbeat(waiter))
	state := c.expect(wire.Status_OK, attach(waiter, "the waiter's secret")).GetResult().GetSession()
	if len(state.GetHolds()) != 1 || state.GetHolds()[0].GetToken() != granted.GetToken() {
		t.Errorf("after a restart: %v", state)
	}
	lock := c.expect(wire.Status_OK, &wire.Request{Body: &wire.Request_GetLock{GetLock: &wire.GetLockRequest{Name: "orders/1"}}}).GetGetLock()
	if len(lock.GetHolders()) != 1 || lock.GetHolders()[0].HeartbeatAgeMs == nil {
		t.Errorf("lock %v", lock)
	}
}

func TestNewerAttachSupersedesOnTheRealNode(t *testing.T) {
	node := open(t, quick(t))
	serving(t, node)
	old, fresh := dial(t, node), dial(t, node)
	session, other := old.open("a secret of some length"), old.open("another secret, as long")
	fresh.expect(wire.Status_NOT_ATTACHED, heartbeat(session))
	fresh.expect(wire.Status_OK, attach(session, "a secret of some length"))
	if push := old.push(); push.GetSessionId() != session || push.GetLost().GetReason() != wire.SessionLost_SUPERSEDED {
		t.Errorf("push %v", push)
	}
	old.expect(wire.Status_NOT_ATTACHED, heartbeat(session))
	old.expect(wire.Status_OK, heartbeat(other))
	fresh.expect(wire.Status_OK, heartbeat(session))
}

func TestAddressesOfAllPorts(t *testing.T) {
	node := open(t, quick(t))
	at := node.Addrs()
	if at != node.Bound() || strings.HasSuffix(at.Peer, ":0") || at.HTTP == "" {
		t.Errorf("addresses %+v, bound %+v", at, node.Bound())
	}
	if reply := dial(t, node).reply; reply.GetNodeId() != "n1" {
		t.Errorf("hello %v", reply)
	}
	eventually(t, "readiness", func() bool {
		resp, err := http.Get("http://" + at.HTTP + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode == http.StatusOK
	})
	http.DefaultClient.CloseIdleConnections()
	status, err := node.Replica().Status(bounded(t), &wire.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if n := status.GetNodes(); len(n) != 1 || n[0].GetClientAddr() != at.Client || n[0].GetHttpAddr() != at.HTTP || n[0].GetPeerAddr() != at.Peer {
		t.Errorf("status %v, want the addresses %+v", status, at)
	}
}

func TestHealthListener(t *testing.T) {
	cfg := quick(t)
	cfg.HealthAddr, cfg.Listen.HTTP = "127.0.0.1:0", ""
	node := open(t, cfg)
	serving(t, node)
	resp, err := http.Get("http://" + node.HealthAddr() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Errorf("/readyz: %d %s", resp.StatusCode, text)
	}
	shut(t, node)
	if _, err := net.Dial("tcp", node.HealthAddr()); err == nil {
		t.Error("it listens after the node has stopped")
	}
}

func TestHTTPAndLogCanBeOff(t *testing.T) {
	cfg := quick(t)
	cfg.Listen.HTTP, cfg.Logger = "", nil
	node := open(t, cfg)
	if at := node.Addrs(); at.HTTP != "" {
		t.Errorf("addresses %+v", at)
	}
	serving(t, node)
}

func TestPortInUseIsNamedAndNothingRemains(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	cfg := quick(t)
	cfg.Listen.HTTP = taken.Addr().String()
	_, err = Open(bounded(t), cfg)
	if !errors.Is(err, ErrListen) || !strings.Contains(err.Error(), "--http-addr "+taken.Addr().String()) {
		t.Errorf("error %v", err)
	}
	cfg.Listen.HTTP = "127.0.0.1:0"
	serving(t, open(t, cfg)) // the other ports and the directory are free again
}

func TestDataDirectoryOfAnotherNode(t *testing.T) {
	cfg := quick(t)
	first := open(t, cfg)
	if _, err := Open(bounded(t), cfg); !errors.Is(err, ErrInUse) {
		t.Errorf("a second node on the same directory: %v", err)
	}
	shut(t, first)
	cfg.ID = "n2"
	if _, err := Open(bounded(t), cfg); !errors.Is(err, ErrOtherNode) {
		t.Errorf("another node on the same directory: %v", err)
	}
}

func TestCloseBeforeAnybodyLeads(t *testing.T) {
	cfg := quick(t)
	cfg.Cluster = []Peer{{"n1", "127.0.0.1:1"}, {"n2", "127.0.0.1:2"}, {"n3", "127.0.0.1:3"}}
	node := open(t, cfg)
	c := dial(t, node)
	c.expect(wire.Status_NOT_LEADER, heartbeat(1))
	shut(t, node)
	c.goodbye()
	shut(t, node) // a second Close has no effect
}

func TestHaltIsCalledOnce(t *testing.T) {
	node := open(t, quick(t))
	reason := errors.New("the disk is gone")
	node.halt(reason)
	node.halt(errors.New("an echo of it"))
	if got := <-node.Halted(); got != reason {
		t.Errorf("halted: %v", got)
	}
	select {
	case got := <-node.Halted():
		t.Errorf("halted again: %v", got)
	default:
	}
}

func TestTLSOnEveryPort(t *testing.T) {
	dir := t.TempDir()
	if _, err := pki.Init(dir, "c1", []pki.Node{{ID: "n1"}, {ID: "n2"}}, []string{"app"}); err != nil {
		t.Fatal(err)
	}
	files := func(of, name string) transport.TLSFiles {
		return transport.TLSFiles{
			Cert: filepath.Join(dir, of, name+".crt"), Key: filepath.Join(dir, of, name+".key"), CA: filepath.Join(dir, "ca.crt"),
		}
	}
	cfg := quick(t)
	cfg.TLS, cfg.PeerTLS = files("nodes/n1", "server"), files("nodes/n1", "peer")
	node := open(t, cfg)
	serving(t, node)

	peer, err := tls.Dial("tcp", node.Addrs().Peer, &tls.Config{InsecureSkipVerify: true}) // the test checks the certificate itself
	if err != nil {
		t.Fatal("peer port:", err)
	}
	defer peer.Close()
	if cluster, id, err := transport.PeerFromCert(peer.ConnectionState().PeerCertificates[0]); err != nil || cluster != "c1" || id != "n1" {
		t.Errorf("the peer port shows a certificate of %s in %s, %v", id, cluster, err)
	}

	config, err := files("clients/app", "client").ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := transport.Dial(bounded(t), nil, node.Addrs().Client, config)
	if err != nil {
		t.Fatal(err)
	}
	c := speak(t, conn)
	if c.reply.GetClusterId() != "c1" {
		t.Errorf("hello %v", c.reply)
	}
	c.expect(wire.Status_OK, heartbeat(c.open("a secret of some length")))

	nameless, err := transport.TLSFiles{CA: filepath.Join(dir, "ca.crt")}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	// With TLS 1.3, a client learns of its missing certificate with the first read.
	if conn, err = transport.Dial(bounded(t), nil, node.Addrs().Client, nameless); err == nil {
		_, _, err = transport.ClientHandshake(bounded(t), conn, &wire.Hello{})
		transport.Cut(conn)
	}
	if err == nil {
		t.Error("a client without a certificate was let in")
	}

	cfg.PeerTLS = files("nodes/n2", "peer")
	if _, err := Open(bounded(t), cfg); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "belongs to node n2") {
		t.Errorf("with another node's certificate: %v", err)
	}
}

// reserved is TCP with ports that were bound beforehand, so that the addresses of all nodes are known before
// the nodes start.
type reserved struct {
	transport.TCP
	ports map[string]net.Listener
}

func (r *reserved) reserve(t *testing.T) string {
	t.Helper()
	l, err := r.TCP.Listen(bounded(t), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	r.ports[l.Addr().String()] = l
	return l.Addr().String()
}

func (r *reserved) Listen(ctx context.Context, addr string) (net.Listener, error) {
	if l := r.ports[addr]; l != nil {
		return l, nil
	}
	return r.TCP.Listen(ctx, addr)
}

// cluster opens nodes that know each other. Their log messages also go to log.
func cluster(t *testing.T, log io.Writer, ids ...string) (nodes []*Node) {
	t.Helper()
	network := &reserved{ports: map[string]net.Listener{}}
	var peers []Peer
	for _, id := range ids {
		peers = append(peers, Peer{ID: id, Addr: network.reserve(t)})
	}
	for _, p := range peers {
		cfg := quick(t)
		// Long timeouts, because an unexpected election on a busy machine would spoil the test.
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = time.Second, time.Second, time.Second
		cfg.ID, cfg.Cluster, cfg.Network = p.ID, peers, network
		cfg.Listen.Peer = p.Addr
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: io.MultiWriter(testLog{t}, log), Level: hclog.Info})
		nodes = append(nodes, open(t, cfg))
	}
	return nodes
}

// toldOfNext reports whether the client was notified of a leader other than the given node.
func (s *speaker) toldOfNext(node *Node) bool {
	return slices.ContainsFunc(s.pushes, func(push *wire.Push) bool {
		return push.GetLeader().GetId() != "" && push.GetLeader().GetId() != node.cfg.ID
	})
}

// TestTwoNodesHandLeadershipOver verifies that a cluster of two hands over like a larger one: a single voter
// is no majority, but either node may come back.
func TestTwoNodesHandLeadershipOver(t *testing.T) {
	nodes := cluster(t, io.Discard, "n1", "n2")
	leader := serving(t, nodes...)
	eventually(t, "both members", func() (both bool) {
		leader.Replica().View(func(m *fsm.Machine) { both = len(m.Members()) == 2 })
		return both
	})
	c := dial(t, leader)
	shut(t, leader)
	c.goodbye()
	if !c.toldOfNext(leader) {
		t.Errorf("the client was not told of the next leader before the goodbye: %v", c.pushes)
	}
}

func TestThreeNodesHandLeadershipOver(t *testing.T) {
	log := &transcript{}
	nodes := cluster(t, log, "n1", "n2", "n3")
	leader := serving(t, nodes...)
	c := dial(t, leader)
	session := c.open("a secret of some length")
	held := c.expect(wire.Status_GRANTED, acquire(session, 1, "chair"))

	followers := others(nodes, leader)
	lost := dial(t, followers[0])
	eventually(t, "the follower's hint", func() bool {
		return followers[0].Replica().Leader().GetClientAddr() == leader.Addrs().Client
	})
	if hint := lost.expect(wire.Status_NOT_LEADER, attach(session, "a secret of some length")).GetLeader(); hint.GetClientAddr() != leader.Addrs().Client {
		t.Errorf("hint %v, the leader is at %+v", hint, leader.Addrs())
	}

	shut(t, leader)
	if bye := c.goodbye(); bye.GetCode() != wire.Goodbye_SHUTDOWN {
		t.Errorf("goodbye %v", bye)
	}
	if !c.toldOfNext(leader) {
		t.Errorf("the client was not told of the next leader before the goodbye: %v", c.pushes)
	}
	next := serving(t, followers...)
	state := dial(t, next).expect(wire.Status_OK, attach(session, "a secret of some length")).GetResult().GetSession()
	if len(state.GetHolds()) != 1 || state.GetHolds()[0].GetToken() != held.Result.GetToken() {
		t.Errorf("after the hand-over: %v", state)
	}
	shut(t, others(followers, next)[0])
	if failed := log.find("leadership was not handed over"); failed != "" {
		t.Errorf("a node that does not lead tried to hand over: %s", failed)
	}
}

func others(nodes []*Node, but *Node) (rest []*Node) {
	for _, n := range nodes {
		if n != but {
			rest = append(rest, n)
		}
	}
	return rest
}
