package fuzzing

import (
	"bytes"
	"context"
	"crypto/sha256"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/test/generate"
	"github.com/quorumlock/quorumlock/test/simnet"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// waitLimit bounds every wait, in virtual time.
const waitLimit = time.Minute

// mostRequests is the maximum length of a conversation.
const mostRequests = 40

// honestIdentity is the identity of the honest session. Requests never name it, because whoever may close all sessions
// of an identity may close this one.
const honestIdentity = "honest"

// target is a node under attack, with what must not change.
type target struct {
	t    *testing.T
	net  *simnet.Net
	node *server.Node
	log  *raft.InmemStore
	// honest is a session with one hold; 0 in an empty cluster.
	honest, hold, token uint64
	// governed is set once there has been a policy, which may have closed the honest session.
	governed bool
	// guest is a session that the fuzzer knows from the beginning, if there is an honest one.
	guest   *wire.Credentials
	lineage string
	// known contains what the conversation has exchanged so far.
	known *generate.Memory
	tally *tally
}

// inBubble runs one conversation with a fresh node.
func inBubble(t *testing.T, tally *tally, empty bool, talk func(*target)) {
	bubble.Test(t, func(t *testing.T) {
		g := open(t, tally)
		defer g.close()
		if !empty {
			g.prepare()
		}
		talk(g)
		g.check("the conversation")
		g.replay()
	})
}

func open(t *testing.T, tally *tally) *target {
	t.Helper()
	g := &target{t: t, net: simnet.New(1), log: raft.NewInmemStore(), tally: tally}
	node, err := server.Open(t.Context(), server.Config{
		ID:         "n1",
		Listen:     server.Addresses{Peer: "n1:7401", Client: "n1:7400", HTTP: "n1:7402"},
		RedisAddr:  "n1:7403",
		Insecure:   true,
		Network:    g.net.Host("n1"),
		Stores:     storage.Backend{Log: g.log, Stable: g.log, Snapshots: raft.NewInmemSnapshotStore(), Incarnation: "one"},
		TokenFloor: 1 << 56, // so that tokens cannot be guessed
		Settings:   &wire.Settings{DefaultTtlMs: 600_000},
		Logger:     hclog.NewNullLogger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	g.node = node
	g.until("the node serves", node.Replica().Serving)
	node.Replica().View(func(m *fsm.Machine) { g.lineage = m.Lineage() })
	g.known = generate.NewMemory(func(v protoreflect.Value) bool {
		n, ok := v.Interface().(uint64)
		return v.Interface() == honestIdentity || ok && g.token != 0 && (n == g.token || n == g.honest)
	})
	return g
}

func (g *target) until(what string, ok func() bool) {
	g.t.Helper()
	deadline := time.Now().Add(waitLimit)
	for !ok() {
		if time.Now().After(deadline) {
			g.t.Fatalf("never: %s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (g *target) close() {
	ctx, stop := context.WithTimeout(context.Background(), waitLimit)
	defer stop()
	if err := g.node.Close(ctx); err != nil {
		g.t.Errorf("close: %v", err)
	}
}

// do has a command applied.
func (g *target) do(cmd *wire.Command) *wire.Result {
	g.t.Helper()
	answered := make(chan *wire.Result, 1)
	if fsm.OfNode(cmd) {
		g.node.Replica().Proposer.Submit([]groupcommit.Proposal{{Command: cmd, Size: proto.Size(cmd), Done: func(r *wire.Result) { answered <- r }}}, nil, nil)
		return <-answered
	}
	if cmd.GetSessionId() == 0 && cmd.Caller == nil {
		cmd.Caller = &wire.Caller{Identity: identity.Anonymous}
	}
	g.node.Replica().Propose(cmd, func(r *wire.Result) { answered <- r })
	return <-answered
}

// prepare opens the honest session with its hold and the guest's session, and adds a member that is not
// running.
func (g *target) prepare() {
	g.t.Helper()
	hash := sha256.Sum256([]byte("what only the honest one knows"))
	opened := g.do(&wire.Command{Caller: &wire.Caller{Identity: honestIdentity}, Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hash[:], TtlMs: 600_000}}})
	g.honest = opened.GetSession().GetSessionId()
	held := g.do(&wire.Command{SessionId: g.honest, Seq: 1, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
		Locks: []*wire.LockRequest{{Name: "honest/lock", Mode: wire.Mode_EXCLUSIVE}},
	}}})
	if held.GetStatus() != wire.Status_GRANTED {
		g.t.Fatal(opened, held)
	}
	g.hold, g.token = held.GetHoldId(), held.GetToken()
	g.guest = &wire.Credentials{Secret: []byte("a secret of some length")}
	hash = sha256.Sum256(g.guest.GetSecret())
	opened = g.do(&wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hash[:], TtlMs: 600_000}}})
	g.guest.SessionId = opened.GetSession().GetSessionId()
	g.provide()
	sum := sha256.Sum256([]byte("a token"))
	g.do(&wire.Command{Op: &wire.Command_CreateToken{CreateToken: &wire.CreateToken{Sha256: sum[:], Name: "ann", Reason: "because"}}})
	g.known.Learn((&wire.RevokeToken{TokenId: identity.TokenID(sum[:])}).ProtoReflect())
	g.do(&wire.Command{Op: &wire.Command_PutMember{PutMember: &wire.PutMember{Member: &wire.Member{
		Id: "n2", Incarnation: "two", PeerAddr: "n2:7401", ClientAddr: "n2:7400", Level: fsm.Level,
	}}}})
}

// provide gives the guest a hold, a wait or a lease of every kind, so that requests get past validation.
func (g *target) provide() {
	g.t.Helper()
	g.known.Learn(g.guest.ProtoReflect())
	request := func(cmd *wire.Command) *wire.Result {
		cmd.SessionId = g.guest.GetSessionId()
		res := g.do(cmd)
		g.known.Learn(g.guest.ProtoReflect(), cmd.ProtoReflect(), res.ProtoReflect())
		return res
	}
	own := func(seq uint64, acquire *wire.Acquire) *wire.Result {
		return request(&wire.Command{Seq: seq, Op: &wire.Command_Acquire{Acquire: acquire}})
	}
	own(101, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "held", Mode: wire.Mode_EXCLUSIVE}}, MaxHoldMs: 300_000})
	own(102, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "read", Mode: wire.Mode_SHARED}}})
	own(103, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "pool", Limit: 3, Permits: 1}}})
	own(104, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "honest/lock", Mode: wire.Mode_EXCLUSIVE}}, WaitForever: true})
	gone := own(105, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "delayed", Mode: wire.Mode_EXCLUSIVE}}, LockDelayMs: 60_000})
	g.do(&wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: &wire.ForceRelease{HoldId: gone.GetHoldId(), Token: gone.GetToken(), Reason: "because"}}})
	cached := request(&wire.Command{Seq: 106, Op: &wire.Command_AcquireCached{AcquireCached: &wire.AcquireCached{
		Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: "cached"}}}, Tokens: 100, IdleMs: 300_000,
	}}})
	if cached.GetStatus() != wire.Status_GRANTED {
		g.t.Fatal(cached)
	}
	lease := &wire.Credentials{Secret: []byte("a lease's secret, 16+")}
	hash := sha256.Sum256(lease.GetSecret())
	leased := g.do(&wire.Command{Op: &wire.Command_OpenLease{OpenLease: &wire.OpenLease{SecretHash: hash[:], TtlMs: 600_000, Acquire: &wire.Acquire{
		Locks: []*wire.LockRequest{{Name: "leased", Mode: wire.Mode_EXCLUSIVE}},
	}}}})
	g.known.Learn(lease.ProtoReflect(), leased.ProtoReflect())
}

// check verifies what must hold after every request.
func (g *target) check(after string) {
	g.t.Helper()
	select {
	case err := <-g.node.Halted():
		g.t.Fatalf("after %s the node halted: %v", after, err)
	default:
	}
	m := g.node.Replica().Fork()
	if err := m.Check(); err != nil {
		g.t.Fatalf("after %s: %v", after, err)
	}
	if n := m.Discarded(); n != 0 {
		g.t.Fatalf("after %s: %d commands were discarded, because their handlers panicked", after, n)
	}
	g.governed = g.governed || m.Access().Rights() != nil
	if g.hold == 0 || g.governed || m.Lineage() != g.lineage {
		return // a new lineage: the cluster was restored
	}
	answer := m.VerifyToken(&wire.VerifyTokenRequest{Name: "honest/lock", Token: g.token})
	if !answer.GetHeld() || answer.GetHolder().GetHoldId() != g.hold || answer.GetHolder().GetSessionId() != g.honest {
		g.t.Fatalf("after %s the honest hold (%d, token %d) is gone: %v; the last entries: %v", after, g.hold, g.token, answer, g.latest(3))
	}
}

// replay applies the log to a separate machine, which must reach the live state.
func (g *target) replay() {
	g.t.Helper()
	again := fsm.NewReplicated(fsm.Level, func(err error) { g.t.Error(err) })
	live := g.node.Replica().Fork()
	want := hashOf(g.t, live)
	last, err := g.log.LastIndex()
	if err != nil {
		g.t.Fatal(err)
	}
	for i := uint64(1); i <= last; i++ {
		var entry raft.Log
		if err := g.log.GetLog(i, &entry); err != nil {
			g.t.Fatal(err)
		}
		if entry.Type != raft.LogCommand {
			continue
		}
		if err, failed := again.Apply(&entry).(error); failed {
			g.t.Fatalf("entry %d: %v", i, err)
		}
		if m := again.Fork(); m.Revision() == live.Revision() && hashOf(g.t, m) == want {
			return
		}
	}
	g.t.Fatalf("a replay of the log is in another state at revision %d", live.Revision())
}

// latest returns the commands of the last entries, for failure messages.
func (g *target) latest(n uint64) (entries []*wire.Entry) {
	last, _ := g.log.LastIndex()
	for i := last - min(n, last-1); i <= last; i++ {
		var entry raft.Log
		decoded := &wire.Entry{}
		if g.log.GetLog(i, &entry) == nil && entry.Type == raft.LogCommand && proto.Unmarshal(entry.Data, decoded) == nil {
			entries = append(entries, decoded)
		}
	}
	return entries
}

func hashOf(t *testing.T, m *fsm.Machine) [sha256.Size]byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(b.Bytes())
}

// tally counts the answers to each kind of request.
type tally struct {
	mu sync.Mutex
	of map[string]map[wire.Status_Code]int
}

func newTally() *tally { return &tally{of: map[string]map[wire.Status_Code]int{}} }

func (c *tally) add(kind string, status wire.Status_Code) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[kind] == nil {
		c.of[kind] = map[wire.Status_Code]int{}
	}
	c.of[kind][status]++
}

// succeeded reports whether a request of the kind was successful.
func (c *tally) succeeded(kind string) bool {
	n := c.of[kind]
	return n[wire.Status_OK]+n[wire.Status_GRANTED]+n[wire.Status_QUEUED] > 0
}

// waits reports whether a request may wait for longer than the caller does.
func waits(message protoreflect.Message) (long bool) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Name() == "wait_forever":
			long = long || value.Bool()
		case field.Name() == "wait_ms":
			long = long || value.Uint() > 0
		case field.Message() != nil && !field.IsList() && !field.IsMap():
			long = long || waits(value.Message())
		}
		return true
	})
	return long
}

// answered records a status, and fails the test if it is not allowed. It reports whether the request
// succeeded.
func (g *target) answered(kind string, status wire.Status_Code, message string) bool {
	g.t.Helper()
	if wire.Status_UNSPECIFIED.Descriptor().Values().ByNumber(status.Number()) == nil || status == wire.Status_UNSPECIFIED || status == wire.Status_INTERNAL {
		g.t.Fatalf("%s was answered %v: %s", kind, status, message)
	}
	g.tally.add(kind, status)
	return status == wire.Status_OK || status == wire.Status_GRANTED || status == wire.Status_QUEUED
}
