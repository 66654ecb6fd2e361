package peerport_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/peerport"
)

// TestStatesComeFirst checks that members exchange their states in both directions before raft or a
// handler gets anything.
func TestStatesComeFirst(t *testing.T) {
	m := newMemory()
	n1, n2 := knows("n1", "n2"), knows("n2", "n1")
	start(t, n1, on(m), answering)
	caller := start(t, n2, on(m))
	if _, _, err := caller.Call(context.Background(), "n1", "n1", probe); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		who   *identity
		other string
	}{{n1, "n2"}, {n2, "n1"}} {
		said := c.who.said1(t)
		if said.id != c.other || said.incarnation != c.other+"-1" || said.state.GetKnown().GetIncarnation() != c.who.id+"-1" {
			t.Errorf("%s met %+v", c.who.id, said)
		}
	}
}

// said1 returns the only state that a node was sent.
func (k *identity) said1(t *testing.T) met {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.met) != 1 {
		t.Fatalf("%s met %v", k.id, k.met)
	}
	return k.met[0]
}

// TestForeignStatesHaveNoConnection makes a node find the other one's state wrong, as callee and as
// caller. A callee answers before it acts on that.
func TestForeignStatesHaveNoConnection(t *testing.T) {
	wrong := errors.New("its disk was rolled back")
	for _, side := range []string{"called", "calls"} {
		t.Run(side, func(t *testing.T) {
			m := newMemory()
			n1, n2 := knows("n1", "n2"), knows("n2", "n1")
			if side == "called" {
				n1.foreign = map[string]error{"n2": wrong}
			} else {
				n2.foreign = map[string]error{"n1": wrong}
			}
			l, caller := start(t, n1, on(m), answering), start(t, n2, on(m))
			var incompatible atomic.Value
			answered := make(chan struct{})
			n1.incompatible = func(id string) {
				select {
				case <-answered:
				case <-time.After(10 * time.Second): // the caller gives up before that
				}
				incompatible.Store(id)
			}
			n2.incompatible = func(id string) { incompatible.Store(id) }
			_, _, err := caller.Call(context.Background(), "n1", "n1", probe)
			close(answered)
			if !errors.Is(err, peerport.ErrRefused) || !strings.Contains(err.Error(), wrong.Error()) {
				t.Errorf("the call ended with %v", err)
			}
			if side == "calls" && incompatible.Load() != nil {
				t.Error("the caller reported the incompatibility before the other node found it")
			}
			if side == "called" {
				until(t, "the one that found it is told", func() bool { return incompatible.Load() != nil })
				until(t, "the refusal is counted", func() bool { return l.Stats().Refused[peerport.ReasonState] == 1 })
				n2.said1(t) // a caller that is refused for its state learns this node's state
			}
		})
	}
}

// TestStrangersLearnNoState checks that strangers do not get the state.
func TestStrangersLearnNoState(t *testing.T) {
	m := newMemory()
	who := knows("n1", "n2")
	who.strict = true
	start(t, who, on(m), answering)
	stranger := knows("n9", "n1")
	_, reply, err := start(t, stranger, on(m)).Call(context.Background(), "n1", "n1", probe)
	if err != nil || reply.GetState() != nil {
		t.Errorf("it was told %v, %v", reply, err)
	}
	if len(who.met) != 0 {
		t.Errorf("it was met: %v", who.met)
	}
}

// notes is an Observer that records its calls.
type notes struct {
	mu  sync.Mutex
	all []string
}

func (n *notes) Incarnation(id string) string   { return id + "-1" }
func (n *notes) InTerm(who string, term uint64) { n.add("%s is in term %d", who, term) }
func (n *notes) Voted(who string, term uint64)  { n.add("%s voted in term %d", who, term) }
func (n *notes) Acknowledged(incarnation string, to uint64) {
	n.add("%s has entry %d", incarnation, to)
}
func (n *notes) Announced(incarnation string, commit uint64) {
	n.add("%s announces %d", incarnation, commit)
}

func (n *notes) add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if note := fmt.Sprintf(format, args...); !slices.Contains(n.all, note) {
		n.all = append(n.all, note)
	}
}

// TestEvidenceOfAnswersAndCalls makes n2 call n1, and checks what both conclude about the other's disk.
func TestEvidenceOfAnswersAndCalls(t *testing.T) {
	header := raft.RPCHeader{ProtocolVersion: 3, ID: []byte("n2"), Addr: []byte("n2@n2")}
	entries := []*raft.Log{{Index: 8, Term: 3}, {Index: 9, Term: 3}}
	append2 := &raft.AppendEntriesRequest{RPCHeader: header, Term: 3, PrevLogEntry: 7, PrevLogTerm: 2, Entries: entries, LeaderCommitIndex: 6}
	heartbeat := &raft.AppendEntriesRequest{RPCHeader: header, Term: 3}
	vote := &raft.RequestVoteRequest{RPCHeader: header, Term: 4}
	preVote := &raft.RequestPreVoteRequest{RPCHeader: header, Term: 5}
	snapshot := &raft.InstallSnapshotRequest{RPCHeader: header, Term: 3, LastLogIndex: 77}
	for name, c := range map[string]struct {
		call             any
		answer           any
		ofCallee, ofPeer []string // what the caller learns of n1, and n1 of the caller
	}{
		"entries accepted": {append2, &raft.AppendEntriesResponse{Term: 3, Success: true},
			[]string{"n1-1 is in term 3", "n1-1 has entry 9"}, []string{"n2-1 is in term 3", "n2-1 voted in term 3", "n2-1 announces 6"}},
		"entries refused": {append2, &raft.AppendEntriesResponse{Term: 4},
			[]string{"n1-1 is in term 4"}, []string{"n2-1 is in term 3", "n2-1 voted in term 3"}},
		"a heartbeat": {heartbeat, &raft.AppendEntriesResponse{Term: 3, Success: true},
			[]string{"n1-1 is in term 3"}, []string{"n2-1 is in term 3", "n2-1 voted in term 3"}},
		"a vote granted": {vote, &raft.RequestVoteResponse{Term: 4, Granted: true},
			[]string{"n1-1 is in term 4", "n1-1 voted in term 4"}, []string{"n2-1 is in term 4"}},
		"a vote refused": {vote, &raft.RequestVoteResponse{Term: 4},
			[]string{"n1-1 is in term 4"}, []string{"n2-1 is in term 4"}},
		"a pre-vote":          {preVote, &raft.RequestPreVoteResponse{Term: 5, Granted: true}, nil, nil},
		"a snapshot accepted": {snapshot, &raft.InstallSnapshotResponse{Term: 3, Success: true}, []string{"n1-1 has entry 77"}, nil},
		"a snapshot refused":  {snapshot, &raft.InstallSnapshotResponse{Term: 3}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				m := newMemory()
				callee, peer := &notes{}, &notes{}
				to := peerport.NewTransport(start(t, knows("n1", "n2"), on(m)), peerport.TransportConfig{Observer: peer})
				from := peerport.NewTransport(start(t, knows("n2", "n1"), on(m)), peerport.TransportConfig{Observer: callee})
				go func() {
					rpc := <-to.Consumer()
					rpc.Respond(c.answer, nil)
				}()
				if err := call(from, c.call); err != nil {
					t.Error(err)
				}
				if err := errors.Join(from.Close(), to.Close()); err != nil {
					t.Error(err)
				}
				if !slices.Equal(callee.all, c.ofCallee) {
					t.Errorf("the caller learned %q", callee.all)
				}
				if !slices.Equal(peer.all, c.ofPeer) {
					t.Errorf("the one called learned %q", peer.all)
				}
			})
		})
	}
}

// TestCallsThatRaftRefuses checks that a call that raft refuses is an error for the caller and proves nothing.
func TestCallsThatRaftRefuses(t *testing.T) {
	header := raft.RPCHeader{ProtocolVersion: 3, ID: []byte("n2"), Addr: []byte("n2@n2")}
	for name, c := range map[string]struct{ call, answer any }{
		"entries": {&raft.AppendEntriesRequest{RPCHeader: header, Term: 3, PrevLogEntry: 7, Entries: []*raft.Log{{Index: 8}}},
			&raft.AppendEntriesResponse{Term: 3, Success: true}},
		"a vote":     {&raft.RequestVoteRequest{RPCHeader: header, Term: 4}, &raft.RequestVoteResponse{Term: 4, Granted: true}},
		"a pre-vote": {&raft.RequestPreVoteRequest{RPCHeader: header, Term: 5}, &raft.RequestPreVoteResponse{Term: 5, Granted: true}},
		"a snapshot": {&raft.InstallSnapshotRequest{RPCHeader: header, Term: 3, LastLogIndex: 77}, &raft.InstallSnapshotResponse{Term: 3, Success: true}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				m, callee := newMemory(), &notes{}
				to := peerport.NewTransport(start(t, knows("n1", "n2"), on(m)), peerport.TransportConfig{})
				from := peerport.NewTransport(start(t, knows("n2", "n1"), on(m)), peerport.TransportConfig{Observer: callee})
				go func() {
					rpc := <-to.Consumer()
					rpc.Respond(c.answer, errors.New("raft has stopped"))
				}()
				if err := call(from, c.call); err == nil || !strings.Contains(err.Error(), "raft has stopped") {
					t.Errorf("%v, want that raft has stopped", err)
				}
				if err := errors.Join(from.Close(), to.Close()); err != nil {
					t.Error(err)
				}
				if len(callee.all) != 0 {
					t.Errorf("the caller learned %q", callee.all)
				}
			})
		})
	}
}

// call sends a call of any kind to n1.
func call(from *peerport.Transport, args any) error {
	switch args := args.(type) {
	case *raft.AppendEntriesRequest:
		return from.AppendEntries("n1", "n1", args, &raft.AppendEntriesResponse{})
	case *raft.RequestVoteRequest:
		return from.RequestVote("n1", "n1", args, &raft.RequestVoteResponse{})
	case *raft.RequestPreVoteRequest:
		return from.RequestPreVote("n1", "n1", args, &raft.RequestPreVoteResponse{})
	default:
		return from.InstallSnapshot("n1", "n1", args.(*raft.InstallSnapshotRequest), &raft.InstallSnapshotResponse{}, strings.NewReader(""))
	}
}
