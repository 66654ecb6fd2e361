package peerport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

var (
	probe  = &wire.PeerRequest{Body: &wire.PeerRequest_Probe{Probe: &wire.ProbeRequest{}}}
	join   = &wire.PeerRequest{Body: &wire.PeerRequest_Join{Join: &wire.JoinRequest{Member: &wire.Member{Id: "n2"}}}}
	report = &wire.PeerRequest{Body: &wire.PeerRequest_Report{Report: &wire.ReportRequest{Member: &wire.Member{Id: "n2"}}}}
)

// answering makes a layer answer control calls with the caller's name.
func answering(c *peerport.Config) {
	c.Handler = func(_ context.Context, from *wire.PeerHello, req *wire.PeerRequest) *wire.PeerResponse {
		if req.Body == nil {
			return nil
		}
		caller := c.Identity.Standing(from.GetId(), from.GetIncarnation())
		return &wire.PeerResponse{Status: wire.Status_OK, Message: from.GetId(), State: &wire.NodeState{Caller: caller}}
	}
}

// blocking makes a layer answer control calls only when it closes.
func blocking(c *peerport.Config) {
	c.Handler = func(ctx context.Context, _ *wire.PeerHello, _ *wire.PeerRequest) *wire.PeerResponse {
		<-ctx.Done()
		return &wire.PeerResponse{}
	}
}

func TestControlCalls(t *testing.T) {
	dir := certificates(t, "c1")
	for name, tls := range map[string]func(string) *transport.TLSFiles{
		"plaintext": func(string) *transport.TLSFiles { return nil },
		"TLS":       func(id string) *transport.TLSFiles { return files(dir, "nodes/"+id+"/peer") },
	} {
		t.Run(name, func(t *testing.T) {
			who := knows("n1", "n2")
			a := start(t, who, answering, with(tls("n1")))
			b := start(t, knows("n2", "n1"), with(tls("n2")))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for range 3 {
				resp, hello, err := b.Call(ctx, a.Addr().String(), "n1", probe)
				if err != nil || resp.GetMessage() != "n2" || hello.GetIncarnation() != "n1-1" {
					t.Fatalf("got %v, %v, %v", resp, hello, err)
				}
			}
			resp, _, err := b.Call(ctx, a.Addr().String(), "n1", &wire.PeerRequest{})
			if err != nil || resp.GetStatus() != wire.Status_UNSUPPORTED {
				t.Errorf("a request nobody knows: %v, %v", resp, err)
			}
			if _, _, err := b.Call(ctx, a.Addr().String(), "n3", probe); err == nil {
				t.Error("a call for another node was answered")
			}
			if n := who.seen(); n != 4 {
				t.Errorf("%d callers observed, want 4", n)
			}
			until(t, "the connections to end", func() bool { return a.Stats().Inbound == 0 })
		})
	}
}

// TestCallsToAnAddress checks calls to whichever node has an address: the node must be of the cluster, and the one that
// its certificate names.
func TestCallsToAnAddress(t *testing.T) {
	one, other := certificates(t, "c1"), certificates(t, "c2")
	pair := func(dir, id string) func(*peerport.Config) { return with(files(dir, "nodes/"+id+"/peer")) }
	for name, c := range map[string]struct {
		called  func(*peerport.Config)
		as      string
		cluster string
		want    bool
	}{
		"a node of the cluster":     {pair(one, "n1"), "n1", "c1", true},
		"a node of another cluster": {pair(other, "n1"), "n1", "c2", false},
	} {
		t.Run(name, func(t *testing.T) {
			a := start(t, &identity{id: c.as, cluster: c.cluster, recorded: map[string]string{}}, answering, c.called)
			b := start(t, &identity{id: "n2", cluster: "c1", recorded: map[string]string{}}, pair(one, "n2"))
			resp, reply, err := b.Call(t.Context(), a.Addr().String(), "", probe)
			if (err == nil) != c.want || c.want && (resp.GetMessage() != "n2" || reply.GetId() != "n1") {
				t.Errorf("%v, %v, %v", resp, reply, err)
			}
		})
	}
	pretends, err := tls.LoadX509KeyPair(filepath.Join(one, "nodes", "n1", "peer.crt"), filepath.Join(one, "nodes", "n1", "peer.key"))
	if err != nil {
		t.Fatal(err)
	}
	addr, _ := impostor(t, &tls.Config{Certificates: []tls.Certificate{pretends}}, &wire.PeerHelloReply{Version: 1, Status: wire.Status_OK, ClusterId: "c1", Id: "n3"})
	b := start(t, &identity{id: "n2", cluster: "c1", recorded: map[string]string{}}, pair(one, "n2"))
	if _, _, err := b.Call(t.Context(), addr, "", probe); err == nil || !strings.Contains(err.Error(), `names node "n1"`) {
		t.Errorf("a node that calls itself by another name than its certificate: %v", err)
	}
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		l := start(t, knows("n1", "n2"), on(m))
		hello := goodHello()
		hello.TargetId = ""
		for purpose, want := range map[wire.PeerHello_Purpose]wire.Status_Code{
			wire.PeerHello_CONTROL: wire.Status_OK, wire.PeerHello_RAFT: wire.Status_FAILED_PRECONDITION, wire.PeerHello_TUNNEL: wire.Status_FAILED_PRECONDITION,
		} {
			hello.Purpose = purpose
			reply, err := greet(dialMemory(t, m, l.Addr().String()), hello)
			if err != nil || reply.GetStatus() != want {
				t.Errorf("%v: %v, %v", purpose, reply, err)
			}
		}
	})
}

// TestWipedNodeMayOnlyProbe checks that a node that lost its disk learns about it and can do nothing else.
func TestWipedNodeMayOnlyProbe(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		who := knows("n1")
		who.record("n2", "n2-0")
		a, wiped := start(t, who, answering, on(m)), start(t, knows("n2"), on(m))
		got := watchAccept(a)
		resp, _, err := wiped.Call(t.Context(), "n1", "n1", probe)
		if err != nil || resp.GetState().GetCaller() != wire.Standing_REPLACED {
			t.Errorf("its probe: %v, %v", resp, err)
		}
		resp, _, err = wiped.Call(t.Context(), "n1", "n1", report)
		if err != nil || resp.GetStatus() != wire.Status_FAILED_PRECONDITION || !strings.Contains(resp.GetMessage(), "remove it") {
			t.Errorf("its report: %v, %v", resp, err)
		}
		resp, _, err = wiped.Call(t.Context(), "n1", "n1", join)
		if err != nil || resp.GetStatus() != wire.Status_FAILED_PRECONDITION || !strings.Contains(resp.GetMessage(), "remove it") {
			t.Errorf("its request to join: %v, %v", resp, err)
		}
		if _, err := wiped.Dial("n1@n1", time.Second); !errors.Is(err, peerport.ErrRefused) || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("its raft: %v", err)
		}
		if who.seen() != 0 {
			t.Error("it was observed as if it were the node on record")
		}
		noneAccepted(t, a, got)
	})
}

func TestControlConnectionsEnd(t *testing.T) {
	hello := goodHello()
	hello.Purpose = wire.PeerHello_CONTROL
	for name, c := range map[string]struct {
		send  string
		after time.Duration
	}{
		"idle":      {"", 30 * time.Second},
		"slow":      {"\x00\x00", 30 * time.Second},
		"oversized": {"\x7f\x00\x00\x00", 0},
		"garbage":   {"\x00\x00\x00\x02\xff\xff", 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				m := newMemory()
				l := start(t, knows("n1", "n2"), on(m), answering)
				conn := dialMemory(t, m, "n1")
				if _, err := greet(conn, hello); err != nil {
					t.Fatal(err)
				}
				started := time.Now()
				if _, err := conn.Write([]byte(c.send)); err != nil {
					t.Fatal(err)
				}
				_ = conn.SetDeadline(time.Time{})
				if _, err := conn.Read(make([]byte, 1)); err == nil || time.Since(started) != c.after {
					t.Errorf("%v after %v, want the end after %v", err, time.Since(started), c.after)
				}
				_ = conn.Close()
				synctest.Wait()
				if s := l.Stats(); s.Inbound != 0 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := start(t, knows("n1", "n2"), on(m)), start(t, knows("n2", "n1"), on(m), blocking)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		started := time.Now()
		if _, _, err := a.Call(ctx, "n2", "n2", probe); !errors.Is(err, context.DeadlineExceeded) || time.Since(started) != time.Second {
			t.Errorf("%v after %v", err, time.Since(started))
		}
		// Without a deadline in its context, it does not wait forever either.
		started = time.Now()
		if _, _, err := a.Call(context.Background(), "n2", "n2", probe); err == nil || time.Since(started) != 30*time.Second {
			t.Errorf("%v after %v", err, time.Since(started))
		}
		_ = b.Close()
	})
}
