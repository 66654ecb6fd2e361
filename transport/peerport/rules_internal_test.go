package peerport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/transport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestTargets(t *testing.T) {
	for in, want := range map[raft.ServerAddress][2]string{
		"n1@host:1": {"n1", "host:1"}, "n@1@host:1": {"n@1", "host:1"}, "n@": {"n", ""}, "n@h": {"n", "h"},
		"": {}, "host:1": {}, "@host:1": {},
	} {
		id, addr, err := parseTarget(in)
		if id != want[0] || addr != want[1] || errors.Is(err, errNoTarget) != (want[0] == "") {
			t.Errorf("%q: %q, %q, %v", in, id, addr, err)
		}
	}
}

func TestEndsThatAreThePeers(t *testing.T) {
	for err, want := range map[error]bool{
		io.EOF: true, io.ErrUnexpectedEOF: true, io.ErrClosedPipe: true, syscall.ECONNRESET: true, syscall.EPIPE: true,
		nil: false, net.ErrClosed: false, os.ErrDeadlineExceeded: false, syscall.ETIMEDOUT: false, syscall.ECONNREFUSED: false,
	} {
		if closedByPeer(err) != want || err != nil && closedByPeer(fmt.Errorf("read: %w", err)) != want {
			t.Errorf("%v: closed by the peer: %t", err, !want)
		}
		if NobodyListens(err) != (err == syscall.ECONNREFUSED) {
			t.Errorf("%v: nobody listens: %t", err, NobodyListens(err))
		}
	}
}

func TestHeartbeatsCarryNothingElse(t *testing.T) {
	for _, c := range []struct {
		args *raft.AppendEntriesRequest
		want bool
	}{
		{&raft.AppendEntriesRequest{Term: 3}, true},
		{&raft.AppendEntriesRequest{Term: 3, Entries: []*raft.Log{{}}}, false},
		{&raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 1}, false},
		{&raft.AppendEntriesRequest{Term: 3, LeaderCommitIndex: 1}, false},
	} {
		if isHeartbeat(c.args) != c.want {
			t.Errorf("%+v is a heartbeat: %t", c.args, !c.want)
		}
	}
}

func TestWhatStrangersMayAsk(t *testing.T) {
	probe := &wire.PeerRequest{Body: &wire.PeerRequest_Probe{Probe: &wire.ProbeRequest{}}}
	report := &wire.PeerRequest{Body: &wire.PeerRequest_Report{Report: &wire.ReportRequest{}}}
	for _, reason := range []Reason{ReasonUnknown, ReasonRemoved, ReasonIncarnation} {
		r := refuse(reason, "no")
		if !r.mayAsk(probe) || r.mayAsk(report) != (reason == ReasonUnknown) || r.mayAsk(&wire.PeerRequest{}) {
			t.Errorf("%s: may probe: %t, report: %t", reason, r.mayAsk(probe), r.mayAsk(report))
		}
	}
}

// known is an Identity of node n1 that gives every other node the same standing.
type known struct {
	cluster  string
	recorded string // incarnation of every other node
	standing wire.Standing
	answer   wire.Standing
	asked    int
	met      []string
}

func (k *known) ClusterID() string                  { return k.cluster }
func (k *known) Self() (string, string)             { return "n1", "n1-1" }
func (k *known) Incarnation(string) (string, bool)  { return k.recorded, k.recorded != "" }
func (k *known) Standing(_, _ string) wire.Standing { return k.standing }
func (k *known) Observe(*wire.PeerHello)            {}
func (k *known) State(string) *wire.PeerState       { return nil }
func (k *known) Incompatible(string, error)         {}
func (k *known) CheckState(_, i string, _ *wire.PeerState) error {
	k.met = append(k.met, i)
	return nil
}

func (k *known) AskMembers(context.Context, *wire.PeerHello, string) wire.Standing {
	k.asked++
	return k.answer
}

func layerOf(k *known) *Layer {
	return &Layer{cfg: Config{Identity: k}, log: hclog.NewNullLogger(), conns: map[*peerConn]bool{}}
}

func helloTo(purpose wire.PeerHello_Purpose) *wire.PeerHello {
	return &wire.PeerHello{Version: 1, Purpose: purpose, Id: "n2", Incarnation: "n2-1", TargetId: "n1", ClusterId: "c1"}
}

// TestClustersThatAreCompared checks that clusters are compared only if both sides know theirs.
func TestClustersThatAreCompared(t *testing.T) {
	for _, c := range []struct {
		mine, theirs string
		refused      bool
	}{{"c1", "c1", false}, {"c1", "c2", true}, {"", "c2", false}, {"c1", "", false}, {"", "", false}} {
		k := &known{cluster: c.mine, standing: wire.Standing_MEMBER}
		h := &handshake{layer: layerOf(k), hello: helloTo(wire.PeerHello_RAFT)}
		h.hello.ClusterId = c.theirs
		err := h.check(t.Context())
		if r, _ := errors.AsType[*refusal](err); (r != nil && r.reason == ReasonCluster) != c.refused || !c.refused && err != nil {
			t.Errorf("%q calls %q: %v", c.theirs, c.mine, err)
		}
		hello := &wire.PeerHello{Version: 1, ClusterId: c.mine, TargetId: "n2"}
		err = h.layer.checkReply(hello, &wire.PeerHelloReply{Version: 1, Status: wire.Status_OK, Id: "n2", ClusterId: c.theirs})
		if errors.Is(err, ErrRefused) != c.refused || !c.refused && err != nil {
			t.Errorf("%q answers %q: %v", c.theirs, c.mine, err)
		}
	}
}

// TestCallersThatMembersAreAskedAbout checks that members are asked exactly about callers for raft that
// are neither known nor removed.
func TestCallersThatMembersAreAskedAbout(t *testing.T) {
	const raftConn, control, tunnel = wire.PeerHello_RAFT, wire.PeerHello_CONTROL, wire.PeerHello_TUNNEL
	for _, c := range []struct {
		purpose          wire.PeerHello_Purpose
		standing, answer wire.Standing
		asked            int
		refused          Reason
		stranger         bool
	}{
		{raftConn, wire.Standing_MEMBER, 0, 0, "", false},
		{raftConn, wire.Standing_EXPECTED, 0, 0, "", false},
		{raftConn, wire.Standing_REMOVED, wire.Standing_MEMBER, 0, ReasonRemoved, false},
		{raftConn, wire.Standing_REPLACED, wire.Standing_REPLACED, 1, ReasonIncarnation, false},
		{raftConn, wire.Standing_REPLACED, wire.Standing_MEMBER, 1, "", false},
		{raftConn, 0, 0, 1, ReasonUnknown, false},
		{raftConn, 0, wire.Standing_REMOVED, 1, ReasonRemoved, false},
		{raftConn, 0, wire.Standing_EXPECTED, 1, "", false},
		{control, wire.Standing_MEMBER, 0, 0, "", false},
		{control, 0, wire.Standing_MEMBER, 0, "", true},
		{control, wire.Standing_REMOVED, wire.Standing_MEMBER, 0, "", true},
		{tunnel, wire.Standing_MEMBER, 0, 0, "", false},
		{tunnel, 0, wire.Standing_MEMBER, 0, ReasonUnknown, false},
	} {
		k := &known{standing: c.standing, answer: c.answer}
		near, far := net.Pipe()
		h := &handshake{layer: layerOf(k), raw: near, hello: helloTo(c.purpose)}
		err := h.checkStanding(t.Context())
		_, _ = near.Close(), far.Close()
		var reason Reason
		if r, ok := errors.AsType[*refusal](err); ok {
			reason = r.reason
		}
		if reason != c.refused || k.asked != c.asked || (h.stranger != nil) != c.stranger || h.admitted != (c.refused == "" && !c.stranger) {
			t.Errorf("%v of %v, confirmed as %v: %v, asked %d times, admitted %t", c.purpose, c.standing, c.answer, err, k.asked, h.admitted)
		}
	}
}

// TestStatesThatAreCompared checks that states are compared only if the node that was called has sent its
// state and has a known incarnation.
func TestStatesThatAreCompared(t *testing.T) {
	state := &wire.PeerState{}
	for _, c := range []struct {
		recorded string
		reply    *wire.PeerHelloReply
		met      string
	}{
		{"n2-1", &wire.PeerHelloReply{Id: "n2", State: state}, "n2-1"},
		{"n2-1", &wire.PeerHelloReply{Id: "n2", Incarnation: "n2-2", State: state}, "n2-1"},
		{"", &wire.PeerHelloReply{Id: "n2", Incarnation: "n2-2", State: state}, "n2-2"},
		{"", &wire.PeerHelloReply{Id: "n2", State: state}, ""},
		{"n2-1", &wire.PeerHelloReply{Id: "n2"}, ""},
		{"n2-1", &wire.PeerHelloReply{Id: "n3", State: state}, ""},
	} {
		k := &known{recorded: c.recorded}
		if err := layerOf(k).compareStates("n2", c.reply); err != nil || len(k.met) != min(len(c.met), 1) || c.met != "" && k.met[0] != c.met {
			t.Errorf("%q, %v: %v, met as %q", c.recorded, c.reply, err, k.met)
		}
	}
}

func TestLayersThatCannotBe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, cfg := range map[string]Config{
		"without a listener":  {Identity: &known{}},
		"without an identity": {Listener: l},
		"without its files":   {Listener: l, Identity: &known{}, TLS: &transport.TLSFiles{Cert: "none", Key: "none", CA: "none"}},
		"with no certificate": {Listener: l, Identity: &known{}, TLS: &transport.TLSFiles{CA: "none"}},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("a layer %s", name)
		}
	}
	if err := checkName(nil, "c1", "n1"); err == nil {
		t.Error("no certificate names the node")
	}
}

// TestCallsThatAreNone checks that calls of unknown kinds and malformed calls are errors.
func TestCallsThatAreNone(t *testing.T) {
	for kind := range byte(7) {
		for what, body := range map[string]string{"nothing": "", "no object": "\xc1"} {
			r := bufio.NewReader(bytes.NewReader([]byte(body)))
			if _, err := decodeCall(kind, r, codec.NewDecoder(r, &codec.MsgpackHandle{})); err == nil {
				t.Errorf("a call of kind %d that is %s", kind, what)
			}
		}
		r := bufio.NewReader(bytes.NewReader([]byte("\x80")))
		if call, err := decodeCall(kind, r, codec.NewDecoder(r, &codec.MsgpackHandle{})); (err == nil) != (kind <= requestPreVote) {
			t.Errorf("kind %d: %T, %v", kind, call.Command, err)
		}
	}
}

// TestCallsThatAreRepeated checks that calls are repeated as long as the other end has closed their
// connections and the pool may have more of these.
func TestCallsThatAreRepeated(t *testing.T) {
	wrong := errors.New("wrong")
	for _, c := range []struct {
		errs  []error
		calls int
		want  error
	}{
		{[]error{nil}, 1, nil},
		{[]error{wrong, nil}, 1, wrong},
		{[]error{io.EOF, nil}, 2, nil},
		{[]error{io.EOF, syscall.EPIPE, wrong}, 3, wrong},
		{[]error{io.EOF, io.EOF, io.EOF, nil}, 3, io.EOF},
	} {
		calls := 0
		err := (&Transport{pooled: 2}).onFresh(func() error { calls++; return c.errs[calls-1] })
		if err != c.want || calls != c.calls {
			t.Errorf("%v: %v after %d calls, want %v after %d", c.errs, err, calls, c.want, c.calls)
		}
	}
}

// TestPartingReadsOnlyAfterARefusal checks that a refused caller gets time to read the reason, and all
// others are cut.
func TestPartingReadsOnlyAfterARefusal(t *testing.T) {
	for _, err := range []error{refuse(ReasonTarget, "no"), io.ErrUnexpectedEOF} {
		l := layerOf(&known{})
		l.ctx = t.Context()
		_, refused := errors.AsType[*refusal](err)
		conn := &halfClosed{}
		if l.part(conn, err); conn.half != refused || !conn.closed {
			t.Errorf("%v: half closed: %t", err, conn.half)
		}
	}
}

// halfClosed records how it is closed.
type halfClosed struct {
	net.Conn
	half, closed bool
}

func (c *halfClosed) CloseWrite() error               { c.half = true; return nil }
func (c *halfClosed) Close() error                    { c.closed = true; return nil }
func (c *halfClosed) SetReadDeadline(time.Time) error { return nil }
func (c *halfClosed) Read([]byte) (int, error)        { return 0, io.EOF }

// TestIncarnationsOfNodesThatAnswer checks that the answering node must have the recorded incarnation,
// and that a node that sends none can only be used for control calls.
func TestIncarnationsOfNodesThatAnswer(t *testing.T) {
	for _, c := range []struct {
		recorded, answered string
		purpose            wire.PeerHello_Purpose
		refused            bool
	}{
		{"n2-1", "n2-1", wire.PeerHello_RAFT, false},
		{"n2-1", "n2-2", wire.PeerHello_RAFT, true},
		{"n2-1", "n2-2", wire.PeerHello_CONTROL, true},
		{"n2-1", "", wire.PeerHello_RAFT, true},
		{"n2-1", "", wire.PeerHello_TUNNEL, true},
		{"n2-1", "", wire.PeerHello_CONTROL, false},
		{"", "n2-2", wire.PeerHello_RAFT, false},
	} {
		l := layerOf(&known{recorded: c.recorded})
		err := l.checkIncarnation(c.purpose, &wire.PeerHelloReply{Id: "n2", Incarnation: c.answered})
		if errors.Is(err, ErrRefused) != c.refused || !c.refused && err != nil {
			t.Errorf("%q on record, %q answers for %v: %v", c.recorded, c.answered, c.purpose, err)
		}
	}
}

// TestAnswersToHellos checks that refused callers are answered only if there is a reason for them, that
// strangers and refused callers do not get the incarnation, and that only members get the state.
func TestAnswersToHellos(t *testing.T) {
	gone := errors.New("gone")
	no := refuse(ReasonTarget, "not here")
	for name, c := range map[string]struct {
		err         error
		stranger    *refusal
		status      wire.Status_Code
		incarnation string
	}{
		"a member":             {nil, nil, wire.Status_OK, "n1-1"},
		"a stranger":           {nil, no, wire.Status_OK, ""},
		"refused":              {no, nil, wire.Status_FAILED_PRECONDITION, ""},
		"refused as stranger":  {no, no, wire.Status_FAILED_PRECONDITION, ""},
		"gone without a reply": {gone, nil, 0, ""},
	} {
		near, far := net.Pipe()
		h := &handshake{layer: layerOf(&known{cluster: "c1"}), conn: near, hello: helloTo(wire.PeerHello_RAFT), stranger: c.stranger}
		answered := make(chan error, 1)
		go func() {
			answered <- h.answer(c.err)
			_ = near.Close()
		}()
		var reply wire.PeerHelloReply
		rerr := transport.NewFrameReader(far, maxHello).Read(&reply)
		if err := <-answered; !errors.Is(err, c.err) || c.err == nil && err != nil {
			t.Errorf("%s: %v, want %v", name, err, c.err)
		}
		if (rerr == nil) != (c.status != 0) || reply.GetStatus() != c.status || reply.GetIncarnation() != c.incarnation {
			t.Errorf("%s: told %v, %v", name, &reply, rerr)
		}
		_ = far.Close()
	}
}

func TestPipelineToADisconnectedNode(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	layer, err := New(Config{Listener: l, Identity: &known{}})
	if err != nil {
		t.Fatal(err)
	}
	trans := NewTransport(layer, TransportConfig{})
	if p, err := trans.AppendEntriesPipeline("n2", "127.0.0.1:1"); err == nil || p != nil {
		t.Errorf("%v, %v, want an error", p, err)
	}
	if err := trans.Close(); err != nil {
		t.Error(err)
	}
	if s := layer.Stats(); s.Outbound != 0 || s.Inbound != 0 {
		t.Errorf("stats %+v", s)
	}
}

// TestLinkIsAMembers checks that only connections opened by a member count as links.
func TestLinkIsAMembers(t *testing.T) {
	for name, c := range map[string]struct {
		conn *peerConn
		want bool
	}{
		"a member's":      {&peerConn{peer: "n2", incarnation: "n2-1", inbound: true}, true},
		"a stranger's":    {&peerConn{peer: "n2", inbound: true}, false},
		"another node's":  {&peerConn{peer: "n3", incarnation: "n3-1", inbound: true}, false},
		"this node's own": {&peerConn{peer: "n2", incarnation: "n2-1"}, false},
	} {
		l := &Layer{conns: map[*peerConn]bool{c.conn: true}}
		if got := l.Linked("n2"); got != c.want {
			t.Errorf("%s connection: linked %v", name, got)
		}
	}
}
