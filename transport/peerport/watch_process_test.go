package peerport_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/peerport"
)

// line is a watched connection that is held during the test.
type line struct {
	open  chan struct{}
	ended chan error
}

func hold(ctx context.Context, l *peerport.Layer, addr, id string) *line {
	held := &line{open: make(chan struct{}), ended: make(chan error, 1)}
	go func() { held.ended <- l.WatchProcess(ctx, addr, id, func() { close(held.open) }) }()
	return held
}

func (held *line) isOpen(t *testing.T) {
	t.Helper()
	select {
	case <-held.open:
	case <-time.After(20 * time.Second):
		t.Fatal("the watched connection was not opened")
	}
}

func (held *line) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-held.ended:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the watched connection has not ended")
		return nil
	}
}

func TestWatchedConnectionEndsWithTheNode(t *testing.T) {
	dir := certificates(t, "c1")
	for name, tls := range map[string]func(string) *transport.TLSFiles{
		"plaintext": func(string) *transport.TLSFiles { return nil },
		"TLS":       func(id string) *transport.TLSFiles { return files(dir, "nodes/"+id+"/peer") },
	} {
		t.Run(name, func(t *testing.T) {
			a := start(t, knows("n1", "n2"), with(tls("n1")))
			b := start(t, knows("n2", "n1"), answering, with(tls("n2")))
			held := hold(t.Context(), a, b.Addr().String(), "n2")
			held.isOpen(t)
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if err := held.end(t); err != nil {
				t.Errorf("the node has closed it: %v", err)
			}
			err := a.WatchProcess(t.Context(), b.Addr().String(), "n2", func() { t.Error("opened") })
			if !peerport.NobodyListens(err) {
				t.Errorf("a new one: %v", err)
			}
		})
	}
}

// TestWatchedConnectionOfALivingNode checks that the watched connection of a running node stays open, even if it is idle, if
// the node's listener is closed, or if the node does not answer probes.
func TestWatchedConnectionOfALivingNode(t *testing.T) {
	for name, how := range map[string]func(*peerport.Config){
		"that answers":  answering,
		"that does not": blocking,
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				m := newMemory()
				a := start(t, knows("n1", "n2"), on(m))
				var listener net.Listener
				b := start(t, knows("n2", "n1"), on(m), how, func(c *peerport.Config) { c.IdleTimeout = time.Minute })
				m.mu.Lock()
				listener = m.listeners["n2"]
				m.mu.Unlock()
				ctx, cancel := context.WithCancel(t.Context())
				held := hold(ctx, a, "n2", "n2")
				held.isOpen(t)
				elapse(time.Hour)
				_ = listener.Close()
				elapse(time.Hour)
				if b.Stats().Inbound != 1 {
					t.Errorf("stats %+v", b.Stats())
				}
				if err := a.WatchProcess(ctx, "n2", "n2", func() {}); !peerport.NobodyListens(err) {
					t.Errorf("nobody listens: %v", err)
				}
				cancel()
				if err := held.end(t); !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled: %v", err)
				}
			})
		})
	}
}

// slowClosing is a network whose connections take a while to close after the other end has noticed it and closed its side,
// as with TLS.
type slowClosing struct{ *memory }

type slowClosingConn struct{ net.Conn }

func (n slowClosing) Dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := n.memory.Dial(ctx, addr)
	return slowClosingConn{conn}, err
}

func (c slowClosingConn) Close() error {
	err := c.Conn.Close()
	for range 10 { // The reader runs. Virtual time would not pass, since another Close may wait for this one.
		runtime.Gosched()
	}
	return err
}

// TestWatchedConnectionToAnotherNode checks that only the other end's closing counts as news of the node.
func TestWatchedConnectionToAnotherNode(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := start(t, knows("n1", "n2"), on(slowClosing{m})), start(t, knows("n2", "n1"), on(m), answering)
		held := hold(t.Context(), a, "n2", "n2")
		held.isOpen(t)
		a.Disconnect("n2")
		if err := held.end(t); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed by this end: %v", err)
		}
		err := a.WatchProcess(t.Context(), "n2", "n3", func() { t.Error("opened") })
		if !errors.Is(err, peerport.ErrRefused) || peerport.NobodyListens(err) {
			t.Errorf("another node: %v", err)
		}
		held = hold(t.Context(), a, "n2", "n2")
		held.isOpen(t)
		_ = a.Close()
		if err := held.end(t); !errors.Is(err, net.ErrClosed) {
			t.Errorf("with this layer closed: %v", err)
		}
		_ = b
	})
}

func TestLinked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := start(t, knows("n1", "n2"), on(m)), start(t, knows("n2", "n1"), on(m))
		got := watchAccept(a)
		if a.Linked("n2") {
			t.Error("linked before anything")
		}
		conn, err := b.Dial("n1@n1", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		theirs := <-got
		if !a.Linked("n2") || a.Linked("n3") || b.Linked("n1") {
			t.Error("n1 alone is linked, with n2 alone")
		}
		_, _ = conn.Close(), theirs.Close()
		if a.Linked("n2") {
			t.Error("linked by a closed connection")
		}
	})
}

// TestCalledElection checks that an election takes place immediately although all nodes know a live leader.
func TestCalledElection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		var nodes []*node
		for _, id := range []string{"n1", "n2", "n3"} {
			nodes = append(nodes, newNode(t, start(t, knows(id, "n1", "n2", "n3"), on(m)), id, nil))
		}
		bootstrap(t, nodes...)
		old := leader(t, nodes)
		apply(t, old, 10)
		term, caller := old.raft.CurrentTerm(), nodes[0]
		if caller == old {
			caller = nodes[1]
		}
		until(t, "the caller to have it all", func() bool { return caller.list.len() == 10 })
		started := time.Now()
		if err := caller.trans.CallElection(); err != nil {
			t.Fatal(err)
		}
		until(t, "the caller to lead", func() bool { return caller.raft.State() == raft.Leader })
		if took := time.Since(started); took > 100*time.Millisecond || caller.raft.CurrentTerm() != term+1 {
			t.Errorf("it took %v, and the term is %d after %d", took, caller.raft.CurrentTerm(), term)
		}
		apply(t, caller, 1)
		for _, n := range nodes {
			n.stop(t)
		}
		if err := caller.trans.CallElection(); err == nil {
			t.Error("called with raft shut down")
		}
	})
}

// TestVoteIsRequestedFromARestartedNode checks a restarted node whose pooled connections raft still considers open.
func TestVoteIsRequestedFromARestartedNode(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		asking := peerport.NewTransport(start(t, knows("n1", "n2"), on(m)), peerport.TransportConfig{})
		defer asking.Close()
		for term := range uint64(3) {
			voting := peerport.NewTransport(start(t, knows("n2", "n1"), on(m)), peerport.TransportConfig{})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				for {
					select {
					case rpc := <-voting.Consumer():
						rpc.Respond(&raft.RequestVoteResponse{Term: term, Granted: true}, nil)
					case <-ctx.Done():
						return
					}
				}
			}()
			request := &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("n1"), Addr: []byte("n1@n1")}, Term: term}
			var answer raft.RequestVoteResponse
			if err := asking.RequestVote("n2", "n2", request, &answer); err != nil || !answer.Granted || answer.Term != term {
				t.Errorf("asked %d times: got %+v, %v", term+1, answer, err)
			}
			cancel()
			if err := voting.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
