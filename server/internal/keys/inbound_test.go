package keys

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// peer is a node that speaks the protocol of links by itself.
type peer struct {
	t *testing.T
	net.Conn
	frames *transport.FrameReader
}

// connect opens a link to a node, from a node of its own.
func (n *node) connect() *peer {
	n.mu.Lock()
	n.peers++
	from := fmt.Sprint("peer", n.peers)
	n.mu.Unlock()
	return n.connectFrom(from)
}

// connectFrom opens a link to a node.
func (n *node) connectFrom(from string) *peer {
	mine, theirs := net.Pipe()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.accept(from, theirs)
	n.c.t.Cleanup(func() { _ = mine.Close() })
	return &peer{n.c.t, mine, transport.NewFrameReader(mine, maxFrame)}
}

// send sends requests with one write.
func (p *peer) send(requests ...*wire.KeyRequest) {
	p.t.Helper()
	var frames []byte
	for _, req := range requests {
		frames, _ = transport.AppendFrame(frames, req, maxFrame)
	}
	if _, err := p.Write(frames); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) receive() *wire.KeyResponse {
	p.t.Helper()
	resp := &wire.KeyResponse{}
	if err := p.frames.Read(resp); err != nil {
		p.t.Fatal(err)
	}
	return resp
}

var ann = &wire.Caller{Identity: "ann"}

// TestReleaseDoesNotOvertake verifies that a release which arrives together with its acquire, or on another link, leaves
// nothing behind.
func TestReleaseDoesNotOvertake(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		n1 := c.nodes["n1"]
		n1.useMachine()
		plain := n1.propose
		n1.propose = func(cmd *wire.Command, done func(*wire.Result)) bool {
			if cmd.GetOpenLease() != nil {
				<-time.After(time.Second) // a release has time to overtake
			}
			return plain(cmd, done)
		}
		open := &wire.OpenLease{SecretHash: make([]byte, 32), OwnerValue: []byte("v"), TtlMs: 60_000, Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "k"}}}}
		lock := &wire.KeyRequest{Id: 1, Caller: ann, Body: &wire.KeyRequest_Lock{Lock: open}}
		release := &wire.KeyRequest{Id: 2, Caller: ann, Body: &wire.KeyRequest_Release{Release: &wire.ReleaseLease{SecretHash: open.SecretHash}}}
		for what, send := range map[string]func(){
			"alone":           func() { n1.connect().send(release) },
			"together":        func() { n1.connect().send(lock, release) },
			"on another link": func() { n1.connect().send(lock); synctest.Wait(); n1.connect().send(release) },
		} {
			send()
			<-time.After(10 * time.Second)
			if exists := n1.exists("k"); exists {
				t.Errorf("%s: the lock is left", what)
			}
			if n := n1.service.executor.acquires.len(); n != 0 {
				t.Errorf("%s: %d acquires are left", what, n)
			}
		}
	})
}

func (a *acquires) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.last)
}

// TestSecretUsedTwice verifies that the later of two acquires with one secret goes on, and that the other one ends.
func TestSecretUsedTwice(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		c.nodes["n1"].queue(3)
		p := c.nodes["n1"].connect()
		open := &wire.OpenLease{SecretHash: make([]byte, 32), Client: labelled(&wire.ClientInfo{}, "n2")}
		for id := range uint64(2) {
			p.send(&wire.KeyRequest{Id: id, Caller: ann, Body: &wire.KeyRequest_Lock{Lock: open}})
		}
		if resp := p.receive(); resp.GetId() != 0 || resp.GetResult().GetStatus() != wire.Status_UNCERTAIN {
			t.Errorf("the first: %v", resp)
		}
		synctest.Wait()
		c.nodes["n1"].finish(3, wire.Status_GRANTED)
		if resp := p.receive(); resp.GetId() != 1 || resp.GetResult().GetStatus() != wire.Status_GRANTED {
			t.Errorf("the second: %v", resp)
		}
	})
}

func (n *node) exists(name string) bool {
	keys, err := n.service.Read(as(n.c.t.Context(), "ann"), name)
	if err != nil {
		n.c.t.Fatal(err)
	}
	return keys[0].GetExists()
}

// TestRequestsThatAreRefused sends what no node sends.
func TestRequestsThatAreRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, func(cfg *Config) { cfg.MaxInFlight = 2 })
		held := 0
		c.nodes["n1"].propose = func(*wire.Command, func(*wire.Result)) bool {
			held++
			return true
		}
		change := func(id uint64, caller *wire.Caller) *wire.KeyRequest {
			return &wire.KeyRequest{Id: id, Caller: caller, Body: &wire.KeyRequest_Change{Change: acquireKey("k")}}
		}
		lock := &wire.KeyRequest_Lock{Lock: &wire.OpenLease{}}
		release := &wire.KeyRequest_Release{Release: &wire.ReleaseLease{}}
		for what, step := range map[string]struct {
			id       string
			requests []*wire.KeyRequest
			want     wire.Status_Code
			says     string
		}{
			"no body":                 {"n1", []*wire.KeyRequest{{Id: 7, Caller: ann}}, wire.Status_UNSUPPORTED, "does not know"},
			"a change without caller": {"n1", []*wire.KeyRequest{change(7, nil)}, wire.Status_INVALID_ARGUMENT, "no caller"},
			"a lock without caller":   {"n1", []*wire.KeyRequest{{Id: 7, Body: lock}}, wire.Status_INVALID_ARGUMENT, "no caller"},
			"a release without one":   {"n1", []*wire.KeyRequest{{Id: 7, Body: release}}, wire.Status_INVALID_ARGUMENT, "no caller"},
			"to a follower":           {"n3", []*wire.KeyRequest{change(7, ann)}, wire.Status_NOT_LEADER, ""},
			"too many":                {"n1", []*wire.KeyRequest{change(1, ann), change(2, ann), change(3, ann), change(4, ann), change(7, ann)}, wire.Status_RESOURCE_EXHAUSTED, "4 requests of one node"},
		} {
			p := c.nodes[step.id].connect()
			p.send(step.requests...)
			resp := p.receive()
			if res := resp.GetResult(); resp.GetId() != 7 || res.GetStatus() != step.want || !strings.Contains(res.GetMessage(), step.says) {
				t.Errorf("%s: %v", what, resp)
			}
		}
		synctest.Wait()
		if held != 4 {
			t.Errorf("%d requests were executed", held)
		}
	})
}

// TestMalformedRequestsEndTheLink verifies that the node closes a connection on which something else arrives.
func TestMalformedRequestsEndTheLink(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		for _, sent := range []string{"\xff\xff\xff\xff", "\x00\x00\x00\x02\xff\xff"} {
			p := c.nodes["n1"].connect()
			_ = p.SetDeadline(time.Now().Add(time.Minute))
			_, _ = io.WriteString(p, sent)
			if err := p.frames.Read(&wire.KeyResponse{}); !errors.Is(err, io.EOF) {
				t.Errorf("%q: %v", sent, err)
			}
		}
	})
}

// TestLargeAnswers verifies that an answer that does not fit into a frame is refused, and the link kept.
func TestLargeAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		n1, n2 := c.nodes["n1"], c.nodes["n2"]
		n1.useMachine()
		large := acquireKey("large")
		large.Value = make([]byte, 4<<10)
		if status := n2.do("ann", large); status != wire.Status_GRANTED {
			t.Fatal(status)
		}
		names := slices.Repeat([]string{"large"}, maxRead)
		for want, names := range map[wire.Status_Code][]string{wire.Status_INTERNAL: names, wire.Status_INVALID_ARGUMENT: append(names, "large")} {
			_, err := n2.service.Read(as(t.Context(), "ann"), names...)
			if refused, ok := errors.AsType[*RefusedError](err); !ok || refused.Result.GetStatus() != want {
				t.Errorf("%d keys: %v, want %v", len(names), err, want)
			}
		}
		if keys, err := n2.service.Read(as(t.Context(), "ann"), "large"); err != nil || len(keys[0].GetValue()) != 4<<10 || n2.linksOpened() != 1 {
			t.Errorf("%v, %d links", err, n2.linksOpened())
		}
	})
}

// TestNewerLinkEndsOlder verifies that nothing that is still on its way on a node's older link is executed behind what the
// node repeats on the newer one, and that links of other nodes stay.
func TestNewerLinkEndsOlder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCluster(t, nil)
		n1 := c.nodes["n1"]
		older, other := n1.connectFrom("n2"), n1.connectFrom("n3")
		synctest.Wait()
		newer := n1.connectFrom("n2")
		synctest.Wait()
		late, _ := transport.AppendFrame(nil, changeRequest(1, "late"), maxFrame)
		_, _ = older.Write(late)
		synctest.Wait()
		if err := older.frames.Read(&wire.KeyResponse{}); err == nil {
			t.Error("the older link goes on")
		}
		for name, p := range map[string]*peer{"newer": newer, "other": other} {
			p.send(changeRequest(2, name))
			if resp := p.receive(); resp.GetResult().GetStatus() != wire.Status_GRANTED {
				t.Errorf("on the %s link: %v", name, resp)
			}
		}
		if n := c.count("late"); n != 0 {
			t.Errorf("what came late was executed %d times", n)
		}
		_ = newer.Close()
		_ = other.Close()
		synctest.Wait()
		n1.service.mu.Lock()
		defer n1.service.mu.Unlock()
		if n := len(n1.service.inbounds); n != 0 {
			t.Errorf("%d ended links are left", n)
		}
	})
}

func changeRequest(id uint64, name string) *wire.KeyRequest {
	op := acquireKey(name)
	op.NodeId, op.Boot, op.Seq = "n2", 1, id
	return &wire.KeyRequest{Id: id, Caller: ann, Body: &wire.KeyRequest_Change{Change: op}}
}
