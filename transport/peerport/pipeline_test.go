package peerport_test

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/transport/peerport"
)

// refusing answers every entry with a refusal.
func refusing(t *testing.T, trans *peerport.Transport) {
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	go func() {
		for {
			select {
			case rpc := <-trans.Consumer():
				rpc.Respond(&raft.AppendEntriesResponse{}, nil)
			case <-ended:
				return
			}
		}
	}()
}

// ofA is the header of calls from node a.
var ofA = raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("a"), Addr: []byte("a@a")}

// TestRefusedEntryBlocksTheWayToAFollower behaves like raft after a refusal: it reads no further answer,
// but may send a few more entries before it closes the pipeline.
func TestRefusedEntryBlocksTheWayToAFollower(t *testing.T) {
	m := newMemory()
	a, b := start(t, knows("a", "b"), on(m)), start(t, knows("b", "a"), on(m))
	from, to := peerport.NewTransport(a, peerport.TransportConfig{}), peerport.NewTransport(b, peerport.TransportConfig{})
	t.Cleanup(func() { _, _ = from.Close(), to.Close() })
	refusing(t, to)
	p, err := from.AppendEntriesPipeline("b", raftAddr(b))
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		for n := range uint64(10) {
			if _, err := p.AppendEntries(&raft.AppendEntriesRequest{RPCHeader: ofA, Term: 1, PrevLogEntry: n}, &raft.AppendEntriesResponse{}); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	if refused := <-p.Consumer(); refused.Response().Success {
		t.Fatal("the entry was not refused")
	}
	select {
	case err := <-sent:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("raft can neither send nor give up")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestPipelineOfUnreadAnswersIsGivenUp keeps sending without reading.
func TestPipelineOfUnreadAnswersIsGivenUp(t *testing.T) {
	m := newMemory()
	a, b := start(t, knows("a", "b"), on(m)), start(t, knows("b", "a"), on(m))
	from, to := peerport.NewTransport(a, peerport.TransportConfig{}), peerport.NewTransport(b, peerport.TransportConfig{})
	t.Cleanup(func() { _, _ = from.Close(), to.Close() })
	refusing(t, to)
	p, err := from.AppendEntriesPipeline("b", raftAddr(b))
	if err != nil {
		t.Fatal(err)
	}
	for n := uint64(0); err == nil; n++ {
		if n > 1000 {
			t.Fatal("a thousand answers are kept")
		}
		_, err = p.AppendEntries(&raft.AppendEntriesRequest{RPCHeader: ofA, Term: 1, PrevLogEntry: n}, &raft.AppendEntriesResponse{})
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
