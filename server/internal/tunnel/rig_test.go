package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/test/simnet"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const writeTimeout = 15 * time.Second

// rig is a node with a relay on an in-memory network, and a passive leader.
type rig struct {
	*Relay
	t     *testing.T
	net   *simnet.Net
	taken chan net.Conn // connections accepted by the leader
	port  net.Listener  // the node's listener for clients

	mu      sync.Mutex // guards the fields below
	leader  *wire.LeaderHint
	told    []string // identities of clients that the leader received
	dialled func()   // called before the leader is dialled
}

var errNoWay = errors.New("no way to the leader")

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, net: simnet.New(1), taken: make(chan net.Conn, 64), leader: &wire.LeaderHint{Id: "n1", Term: 7}}
	cfg := Config{NodeID: "n2", Leader: r.hint, Dial: r.dial, Max: 100, DialTimeout: time.Second, WriteTimeout: writeTimeout}
	if change != nil {
		change(&cfg)
	}
	var err error
	if r.Relay, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	at, err := r.net.Host("n1").Listen(t.Context(), "n1:1")
	if err != nil {
		t.Fatal(err)
	}
	if r.port, err = r.net.Host("n2").Listen(t.Context(), "n2:1"); err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := at.Accept()
			if err != nil {
				return
			}
			r.taken <- conn
		}
	})
	t.Cleanup(func() {
		r.Close()
		_, _ = at.Close(), r.port.Close()
		accepting.Wait()
		if n := r.Len(); n != 0 {
			t.Errorf("%d tunnels are left", n)
		}
	})
	return r
}

func (r *rig) hint() *wire.LeaderHint {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leader
}

func (r *rig) dial(ctx context.Context, leader *wire.LeaderHint, caller *wire.Caller) (net.Conn, error) {
	r.mu.Lock()
	r.told = append(r.told, caller.GetIdentity())
	before := r.dialled
	r.mu.Unlock()
	if before != nil {
		before()
	}
	if leader.GetId() != "n1" {
		return nil, errNoWay
	}
	return r.net.Host("n2").Dial(ctx, "n1:1")
}

// elect makes the node follow another leader.
func (r *rig) elect(hint *wire.LeaderHint) {
	r.mu.Lock()
	r.leader = hint
	r.mu.Unlock()
	r.LeaderMoved(hint)
}

// from returns the address of a client.
func from(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 4711} }

// ends holds both ends of a tunnel.
type ends struct {
	client, leader net.Conn
	done           chan struct{} // closed once Run has returned
}

// connect opens a tunnel for a client at the address and runs it.
func (r *rig) connect(ip string) *ends {
	r.t.Helper()
	client, err := r.net.Host("shop").Dial(r.t.Context(), "n2:1")
	if err != nil {
		r.t.Fatal(err)
	}
	near, err := r.port.Accept()
	if err != nil {
		r.t.Fatal(err)
	}
	tunnel, err := r.Open(r.t.Context(), from(ip), &wire.Caller{Identity: "ann"}, "n1")
	if err != nil {
		r.t.Fatal(err)
	}
	e := &ends{client: client, leader: <-r.taken, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		tunnel.Run(near)
	}()
	r.t.Cleanup(func() {
		_, _ = e.client.Close(), e.leader.Close()
		<-e.done
	})
	return e
}

// carries sends bytes into one end and checks that they arrive at the other one.
func carries(t *testing.T, from, to net.Conn, bytes string) {
	t.Helper()
	go func() { _, _ = from.Write([]byte(bytes)) }()
	got := make([]byte, len(bytes))
	if _, err := io.ReadFull(to, got); err != nil || string(got) != bytes {
		t.Errorf("%q arrived, %v; want %q", got, err, bytes)
	}
}

// frame returns a frame of the leader with a message of at least the given number of bytes.
func frame(t *testing.T, bytes int) []byte {
	t.Helper()
	f, err := transport.AppendFrame(nil, transport.GoodbyeFrame(wire.Goodbye_IDLE, string(make([]byte, bytes))), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// lastWord reads a client's connection to its end. It returns the code of the last frame and the number of
// frames.
func lastWord(t *testing.T, client net.Conn) (code wire.Goodbye_Code, frames int) {
	t.Helper()
	in := transport.NewFrameReader(client, 1<<20)
	for {
		var f wire.ServerFrame
		if err := in.Read(&f); err != nil {
			return code, frames
		}
		code = f.GetGoodbye().GetCode()
		frames++
	}
}

// isOver requires that the tunnel has ended.
func (e *ends) isOver(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case <-e.done:
	default:
		t.Error("the tunnel goes on")
	}
}
