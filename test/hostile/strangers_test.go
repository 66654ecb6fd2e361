package hostile

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// impostor is a separate implementation of the peer protocol, for a plaintext cluster.
type impostor struct {
	id, incarnation string
}

// member returns the identity of a node, which can be read from its data directory.
func (c *cluster) member(n *node) impostor {
	c.t.Helper()
	at := slices.Index(n.cmd.Args, "--data-dir")
	text, err := os.ReadFile(filepath.Join(n.cmd.Args[at+1], "node.json"))
	if err != nil {
		c.t.Fatal(err)
	}
	var known struct{ ID, Incarnation string }
	if err := json.Unmarshal(text, &known); err != nil {
		c.t.Fatal(err)
	}
	return impostor{known.ID, known.Incarnation}
}

// hello opens a connection to a node and returns the reply.
func (i impostor) hello(t *testing.T, to *node, purpose wire.PeerHello_Purpose) (net.Conn, *wire.PeerHelloReply) {
	t.Helper()
	conn := dial(t, to.addr[peerPort], nil)
	_ = conn.SetDeadline(time.Now().Add(timeout))
	hello := &wire.PeerHello{Version: 1, Purpose: purpose, Id: i.id, Incarnation: i.incarnation, TargetId: to.id}
	if err := transport.NewFrameWriter(conn, 1<<20).WriteFirst(hello); err != nil {
		t.Fatal(err)
	}
	var reply wire.PeerHelloReply
	if err := transport.NewFrameReader(conn, 1<<20).Read(&reply); err != nil {
		t.Fatal(err)
	}
	return conn, &reply
}

// call sends a raft request, whatever the reply to the hello was, and returns the error and the term in the
// response.
func (i impostor) call(t *testing.T, to *node, kind byte, request any) (term uint64, err error) {
	t.Helper()
	conn, _ := i.hello(t, to, wire.PeerHello_RAFT)
	defer transport.Cut(conn)
	w := bufio.NewWriter(conn)
	if err := errors.Join(w.WriteByte(kind), codec.NewEncoder(w, &codec.MsgpackHandle{}).Encode(request), w.Flush()); err != nil {
		return 0, err
	}
	dec := codec.NewDecoder(conn, &codec.MsgpackHandle{})
	var text string
	if err := dec.Decode(&text); err != nil {
		return 0, err
	}
	if text != "" {
		return 0, errors.New(text)
	}
	var answer struct{ Term uint64 }
	return answer.Term, dec.Decode(&answer)
}

func header(id string) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(id + "@127.0.0.1:1")}
}

// requests returns the requests that raft nodes send to each other, in the name of a node and with a late
// term.
func requests(id string) map[byte]any {
	return map[byte]any{
		0: &raft.AppendEntriesRequest{RPCHeader: header(id), Term: usurped},
		1: &raft.RequestVoteRequest{RPCHeader: header(id), Term: usurped, LastLogIndex: 1 << 40, LastLogTerm: usurped, LeadershipTransfer: true},
		2: &raft.InstallSnapshotRequest{RPCHeader: header(id), Term: usurped, SnapshotVersion: 1, LastLogIndex: 1 << 40},
		3: &raft.TimeoutNowRequest{RPCHeader: header(id)},
		4: &raft.RequestPreVoteRequest{RPCHeader: header(id), Term: usurped, LastLogIndex: 1 << 40, LastLogTerm: usurped},
	}
}

// TestStrangersAreRefused verifies that raft does not hear strangers, removed nodes and members that pretend
// to be others, and that strangers do not learn what would make them members. A member in its own name is
// heard, which shows that the check would detect the others.
func TestStrangersAreRefused(t *testing.T) {
	c := startCluster(t, 3, plaintext)
	var followers []*node
	for _, n := range c.nodes {
		if n != c.leader {
			followers = append(followers, n)
		}
	}
	victim, other := followers[0], followers[1]
	state := func() string {
		m := victim.metrics()
		return fmt.Sprintf("term %v, leads %v", m["quorumlock_term"], m["quorumlock_is_leader"])
	}
	before := state()
	deaf := func(name string, i impostor, as string, kinds ...byte) {
		t.Helper()
		for kind, request := range requests(as) {
			if len(kinds) > 0 && !slices.Contains(kinds, kind) {
				continue
			}
			if term, err := i.call(t, victim, kind, request); err == nil {
				t.Errorf("%s, call %d: raft answered with term %d", name, kind, term)
			}
		}
		if after := state(); after != before {
			t.Errorf("%s: %s, before %s", name, after, before)
		}
	}
	stranger, insider := impostor{"n9", "0123456789abcdef"}, c.member(other)
	deaf("a node that was never added", stranger, "n9")
	deaf("a member with another incarnation", impostor{other.id, "0123456789abcdef"}, other.id)
	deaf("the node itself", c.member(victim), victim.id)
	deaf("a member in the leader's name", insider, c.leader.id)
	deaf("a member that does not lead", insider, other.id, 3)
	c.saysLittle(t, victim, stranger)
	c.saysLittle(t, victim, impostor{other.id, "0123456789abcdef"})

	if term, err := insider.call(t, victim, 0, requests(other.id)[0]); err != nil || term != usurped {
		t.Errorf("a member in its own name: term %d, %v", term, err)
	}
}

// saysLittle probes as a stranger, which must not learn an incarnation.
func (c *cluster) saysLittle(t *testing.T, of *node, i impostor) {
	t.Helper()
	conn, reply := i.hello(t, of, wire.PeerHello_CONTROL)
	r, w := transport.NewFrameReader(conn, 1<<20), transport.NewFrameWriter(conn, 1<<20)
	ask := func(req *wire.PeerRequest) *wire.PeerResponse {
		t.Helper()
		var resp wire.PeerResponse
		if err := errors.Join(w.Write(req), r.Read(&resp)); err != nil {
			t.Fatal(err)
		}
		return &resp
	}
	probe := ask(&wire.PeerRequest{Body: &wire.PeerRequest_Probe{Probe: &wire.ProbeRequest{}}})
	if reply.GetIncarnation() != "" || probe.GetState().GetMember().GetIncarnation() != "" || probe.GetState().GetMember().GetId() != of.id {
		t.Errorf("a stranger is told %v, %v", reply, probe)
	}
	member := c.member(of)
	for name, req := range map[string]*wire.PeerRequest{
		"standing":    {Body: &wire.PeerRequest_Standing{Standing: &wire.StandingRequest{Id: member.id, Incarnation: member.incarnation}}},
		"hashes":      {Body: &wire.PeerRequest_Hashes{Hashes: &wire.HashesRequest{}}},
		"leader loss": {Body: &wire.PeerRequest_LeaderLoss{LeaderLoss: &wire.LeaderLossRequest{LeaderId: c.leader.id, Term: 2}}},
		"report":      {Body: &wire.PeerRequest_Report{Report: &wire.ReportRequest{Member: &wire.Member{Id: i.id, Incarnation: i.incarnation}}}},
	} {
		if resp := ask(req); resp.GetStatus() == wire.Status_OK {
			t.Errorf("a stranger's %s was answered: %v", name, resp)
		}
	}
}

// TestRemovedNodeIsRefused verifies that a removed node that keeps running is notified of its removal,
// disturbs no other node and waits.
func TestRemovedNodeIsRefused(t *testing.T) {
	c := startCluster(t, 3, plaintext)
	at := slices.IndexFunc(c.nodes, func(n *node) bool { return n != c.leader })
	gone, insider := c.nodes[at], c.member(c.nodes[at])
	cl := c.client()
	await(t, "the removal", timeout, func(ctx context.Context) error {
		_, err := wirecall.Of(cl).RemoveMember(ctx, &wire.RemoveMemberRequest{Id: gone.id, Reason: "test"})
		return err
	})
	await(t, "the node to be told", timeout, func(context.Context) error {
		if len(gone.log.find("this node was removed from its cluster")) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	term := c.leader.metrics()["quorumlock_term"]
	for kind, request := range requests(insider.id) {
		if got, err := insider.call(t, c.leader, kind, request); err == nil {
			t.Errorf("call %d: raft answered with term %d", kind, got)
		}
	}
	if now := c.leader.metrics()["quorumlock_term"]; now != term {
		t.Errorf("term %v became %v", term, now)
	}
	if !logged(t, c.leader, `reason="removed"`) {
		t.Error("the leader does not say who was refused")
	}
}
