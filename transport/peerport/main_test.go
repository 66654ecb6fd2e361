package peerport_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/pki"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a network of pipes, for virtual time.
type memory struct {
	mu        sync.Mutex
	listeners map[string]*memoryListener
}

func newMemory() *memory { return &memory{listeners: map[string]*memoryListener{}} }

func (m *memory) Listen(_ context.Context, addr string) (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := &memoryListener{memory: m, addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
	m.listeners[addr] = l
	return l, nil
}

func (m *memory) Dial(ctx context.Context, addr string) (net.Conn, error) {
	m.mu.Lock()
	l := m.listeners[addr]
	m.mu.Unlock()
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type memoryListener struct {
	memory *memory
	addr   string
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.memory.mu.Lock()
		defer l.memory.mu.Unlock()
		if l.memory.listeners[l.addr] == l {
			delete(l.memory.listeners, l.addr)
		}
	})
	return nil
}

func (l *memoryListener) Addr() net.Addr { return memoryAddr(l.addr) }

type memoryAddr string

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return string(a) }

// identity is a node's knowledge, as set by the test.
type identity struct {
	id string

	mu       sync.Mutex
	cluster  string
	recorded map[string]string
	removed  map[string]bool // incarnations
	// strict makes every node without a record a stranger, unless answer is set.
	strict bool
	// answer is the members' answer; said is set to it once they are asked.
	answer, said wire.Standing
	observed     []*wire.PeerHello
	met          []met
	foreign      map[string]error // error of CheckState, by id
	incompatible func(id string)  // may be nil
}

// met is a state that a node sent.
type met struct {
	id, incarnation string
	state           *wire.PeerState
}

// knows returns the identity of node id in cluster c1. Its incarnation is its id with the suffix -1. It
// has records of the others, with incarnations of the same form.
func knows(id string, others ...string) *identity {
	k := &identity{id: id, cluster: "c1", recorded: map[string]string{id: id + "-1"}}
	for _, other := range others {
		k.recorded[other] = other + "-1"
	}
	return k
}

func (k *identity) ClusterID() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cluster
}

func (k *identity) Self() (string, string) { return k.id, k.id + "-1" }

func (k *identity) Incarnation(id string) (string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.recorded[id]
	return s, ok
}

func (k *identity) Standing(id, incarnation string) wire.Standing {
	k.mu.Lock()
	defer k.mu.Unlock()
	known, ok := k.recorded[id]
	switch {
	case k.removed[incarnation]:
		return wire.Standing_REMOVED
	case ok && known == incarnation:
		return wire.Standing_MEMBER
	case ok:
		return wire.Standing_REPLACED
	case k.strict:
		return k.said
	}
	return wire.Standing_EXPECTED
}

func (k *identity) AskMembers(_ context.Context, caller *wire.PeerHello, _ string) wire.Standing {
	k.mu.Lock()
	k.said = k.answer
	k.mu.Unlock()
	return k.Standing(caller.Id, caller.Incarnation)
}

// remove deletes a node's record and remembers it as removed.
func (k *identity) remove(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.removed = map[string]bool{k.recorded[id]: true}
	delete(k.recorded, id)
}

func (k *identity) record(id, incarnation string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recorded[id] = incarnation
}

func (k *identity) Observe(h *wire.PeerHello) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.observed = append(k.observed, h)
}

func (k *identity) State(incarnation string) *wire.PeerState {
	return &wire.PeerState{Known: &wire.KnownState{Incarnation: incarnation}, ClockUnixMs: 7}
}

func (k *identity) Incompatible(id string, _ error) {
	if k.incompatible != nil {
		k.incompatible(id)
	}
}

func (k *identity) CheckState(id, incarnation string, state *wire.PeerState) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.met = append(k.met, met{id, incarnation, state})
	return k.foreign[id]
}

func (k *identity) seen() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.observed)
}

// start opens a layer, which is closed at the end of the test. Without a network it listens on loopback.
func start(t *testing.T, who *identity, change ...func(*peerport.Config)) *peerport.Layer {
	t.Helper()
	cfg := peerport.Config{Identity: who, HandshakeTimeout: 5 * time.Second, Network: transport.TCP{}}
	for _, f := range change {
		f(&cfg)
	}
	addr := "127.0.0.1:0"
	if _, ok := cfg.Network.(transport.TCP); !ok {
		addr = who.id
	}
	var err error
	if cfg.Listener, err = cfg.Network.Listen(t.Context(), addr); err != nil {
		t.Fatal(err)
	}
	l, err := peerport.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.Start()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func on(n transport.Network) func(*peerport.Config) {
	return func(c *peerport.Config) { c.Network = n }
}

func with(f *transport.TLSFiles) func(*peerport.Config) {
	return func(c *peerport.Config) { c.TLS = f }
}

// journal is a log that tests can search.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

func (j *journal) count(s string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.buf.String(), s)
}

func (j *journal) config(c *peerport.Config) {
	c.Logger = hclog.New(&hclog.LoggerOptions{Output: j, Level: hclog.Debug})
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("never came: %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// certificates creates an authority for a cluster with nodes n1 and n2 and a client.
func certificates(t *testing.T, cluster string) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := pki.Init(dir, cluster, []pki.Node{{ID: "n1"}, {ID: "n2"}}, []string{"app"}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// extend adds nodes to the result of certificates.
func extend(t *testing.T, dir string, ids ...string) {
	t.Helper()
	var nodes []pki.Node
	for _, id := range ids {
		nodes = append(nodes, pki.Node{ID: id})
	}
	if _, err := pki.Extend(dir, "c1", nodes, nil); err != nil {
		t.Fatal(err)
	}
}

// files returns the paths of a pair in dir, such as nodes/n1/peer.
func files(dir, pair string) *transport.TLSFiles {
	at := filepath.Join(dir, filepath.FromSlash(pair))
	return &transport.TLSFiles{Cert: at + ".crt", Key: at + ".key", CA: filepath.Join(dir, "ca.crt")}
}

// greet sends a hello directly on a connection and returns the answer.
func greet(conn net.Conn, hello *wire.PeerHello) (*wire.PeerHelloReply, error) {
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return nil, err
	}
	if err := transport.NewFrameWriter(conn, 64<<10).WriteFirst(hello); err != nil {
		return nil, err
	}
	reply := &wire.PeerHelloReply{}
	return reply, transport.NewFrameReader(conn, 64<<10).Read(reply)
}

// wantClosed reads until the other side closes.
func wantClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection was not closed")
	}
	_ = conn.Close()
}

func tlsServer(conn net.Conn, config *tls.Config) net.Conn { return tls.Server(conn, config) }

func raftAddr(l net.Listener) raft.ServerAddress { return raft.ServerAddress(l.Addr().String()) }

// failing is a network whose listeners fail three times before they accept.
type failing struct{ *memory }

func (f failing) Listen(ctx context.Context, addr string) (net.Listener, error) {
	l, err := f.memory.Listen(ctx, addr)
	return &failingListener{Listener: l}, err
}

type failingListener struct {
	net.Listener
	failed int
}

func (l *failingListener) Accept() (net.Conn, error) {
	if l.failed < 3 {
		l.failed++
		return nil, errors.New("too many open files")
	}
	return l.Listener.Accept()
}
