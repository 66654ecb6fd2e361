package peerport_test

import (
	"bufio"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// calls returns all calls that raft can make to another node, by the byte that each starts with.
func calls(as raft.RPCHeader) map[byte]any {
	return map[byte]any{
		0: &raft.AppendEntriesRequest{RPCHeader: as, Term: 9},
		1: &raft.RequestVoteRequest{RPCHeader: as, Term: 9},
		2: &raft.InstallSnapshotRequest{RPCHeader: as, Term: 9},
		3: &raft.TimeoutNowRequest{RPCHeader: as},
		4: &raft.RequestPreVoteRequest{RPCHeader: as, Term: 9},
	}
}

// listening counts the calls that reach raft, and answers them.
func listening(t *testing.T, trans *peerport.Transport) *atomic.Int32 {
	t.Helper()
	var got atomic.Int32
	ended := make(chan struct{})
	t.Cleanup(func() {
		close(ended)
		_ = trans.Close()
	})
	go func() {
		for {
			select {
			case call := <-trans.Consumer():
				got.Add(1)
				call.Respond(&raft.AppendEntriesResponse{}, nil)
			case <-ended:
				return
			}
		}
	}()
	return &got
}

// say makes a call directly on a connection, and returns the answer of the peer port.
func say(conn net.Conn, kind byte, call any) (refusal string, err error) {
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	w := bufio.NewWriter(conn)
	if err := errors.Join(w.WriteByte(kind), codec.NewEncoder(w, &codec.MsgpackHandle{}).Encode(call), w.Flush()); err != nil {
		return "", err
	}
	err = codec.NewDecoder(conn, &codec.MsgpackHandle{}).Decode(&refusal)
	return refusal, err
}

// TestMembersSpeakForThemselves checks that a member can only call in its own name, and that only the
// leader that a node follows can make it start an election.
func TestMembersSpeakForThemselves(t *testing.T) {
	header := func(id, addr string) raft.RPCHeader {
		return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(addr)}
	}
	for name, c := range map[string]struct {
		as      raft.RPCHeader
		leads   raft.ServerID
		refused int
	}{
		"as itself":                      {header("n2", "n2@h2:1"), "n2", 0},
		"as itself, and does not lead":   {header("n2", "n2@h2:1"), "n3", 1},
		"in the name of another":         {header("n3", "n3@h3:1"), "n2", 5},
		"in the name of this node":       {header("n1", "n1@h1:1"), "n2", 5},
		"with the address of another":    {header("n2", "n3@h3:1"), "n2", 5},
		"without a name":                 {header("", "n2@h2:1"), "n2", 5},
		"without an address":             {header("n2", ""), "n2", 5},
		"with an address without a name": {header("n2", "h2:1"), "n2", 5},
	} {
		t.Run(name, func(t *testing.T) {
			l, other := start(t, knows("n1", "n2", "n3")), start(t, knows("n2", "n1", "n3"))
			got := listening(t, peerport.NewTransport(l, peerport.TransportConfig{Follows: func(id raft.ServerID) bool { return id == c.leads }}))
			refused := 0
			for kind, call := range calls(c.as) {
				conn, err := other.Dial(raft.ServerAddress("n1@"+l.Addr().String()), 10*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				text, err := say(conn, kind, call)
				if err != nil {
					t.Fatal(err)
				}
				if text != "" {
					refused++
					wantClosed(t, conn)
				}
				_ = conn.Close()
			}
			if refused != c.refused || int(got.Load()) != 5-refused {
				t.Errorf("%d of 5 calls were refused, want %d; raft got %d", refused, c.refused, got.Load())
			}
			if n := l.Stats().Refused[peerport.ReasonClaim]; int(n) != refused {
				t.Errorf("%d refusals were counted", n)
			}
		})
	}
}

// TestStrangersNeverReachRaft checks that a caller that is not a member gets no further than the hello,
// unless a member confirms it, and can only make the control calls that it needs to join.
func TestStrangersNeverReachRaft(t *testing.T) {
	for name, c := range map[string]struct {
		confirmed, removed bool
		told               string
		mayReport          bool
	}{
		"unknown":                         {told: "add it to the cluster first", mayReport: true},
		"unknown, and a member confirms":  {confirmed: true, mayReport: true},
		"removed":                         {removed: true, told: "was removed"},
		"removed, whatever a member says": {removed: true, confirmed: true, told: "was removed"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				m := newMemory()
				who := knows("n1", "n2")
				who.strict, who.removed = true, map[string]bool{"n9-1": c.removed}
				if c.confirmed {
					who.answer = wire.Standing_MEMBER
				}
				l, other := start(t, who, on(m), answering), start(t, knows("n9", "n1"), on(m))
				conn, err := other.Dial("n1@n1", time.Second)
				if c.told == "" {
					if err != nil {
						t.Fatal(err)
					}
					_ = conn.Close()
				} else if !errors.Is(err, peerport.ErrRefused) || !strings.Contains(err.Error(), c.told) {
					t.Errorf("it was told %v", err)
				}
				resp, hello, err := other.Call(t.Context(), "n1", "n1", probe)
				if err != nil || resp.GetStatus() != wire.Status_OK || (hello.GetIncarnation() == "") != (c.told != "") {
					t.Errorf("its probe: %v, %v, %v", resp, hello, err)
				}
				resp, _, err = other.Call(t.Context(), "n1", "n1", report)
				if err != nil || (resp.GetStatus() == wire.Status_OK) != c.mayReport {
					t.Errorf("its report: %v, %v", resp, err)
				}
				ask := &wire.PeerRequest{Body: &wire.PeerRequest_Standing{Standing: &wire.StandingRequest{Id: "n9"}}}
				if resp, _, err := other.Call(t.Context(), "n1", "n1", ask); err != nil || (resp.GetStatus() == wire.Status_OK) != (c.told == "") {
					t.Errorf("it was told who is a member: %v, %v", resp, err)
				}
				_ = l.Close()
			})
		})
	}
}

// TestRemovedMemberIsCut checks that a removal closes the member's connections, and that nothing it sends
// afterwards is accepted.
func TestRemovedMemberIsCut(t *testing.T) {
	who := knows("n1", "n2", "n3")
	who.strict = true
	l, gone, stays := start(t, who), start(t, knows("n2", "n1")), start(t, knows("n3", "n1"))
	got := listening(t, peerport.NewTransport(l, peerport.TransportConfig{}))
	address := raft.ServerAddress("n1@" + l.Addr().String())
	open := func(from *peerport.Layer) net.Conn {
		conn, err := from.Dial(address, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	as := func(id string) *raft.RequestVoteRequest {
		return &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte(id), Addr: []byte(id + "@h:1")}}
	}
	first, second := open(gone), open(stays)
	if text, err := say(first, 1, as("n2")); text != "" || err != nil {
		t.Fatal(text, err)
	}
	who.remove("n2")
	l.Recheck()
	wantClosed(t, first)
	if _, err := gone.Dial(address, 10*time.Second); !errors.Is(err, peerport.ErrRefused) || !strings.Contains(err.Error(), "was removed") {
		t.Errorf("it came back: %v", err)
	}
	if text, err := say(second, 1, as("n3")); text != "" || err != nil {
		t.Error("another member was cut as well:", text, err)
	}
	_ = second.Close()
	if got.Load() != 2 {
		t.Errorf("raft got %d calls", got.Load())
	}
}
