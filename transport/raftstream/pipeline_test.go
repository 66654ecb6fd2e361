package raftstream_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/raftstream"
)

// refusing is a follower that refuses every entry.
func refusing(t *testing.T, trans *raftstream.Transport) {
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

// TestRefusedEntryBlocksTheWayToAFollower is raft as it meets a refusal: it reads no
// further answer, but may send a few times more before it closes the pipeline.
func TestRefusedEntryBlocksTheWayToAFollower(t *testing.T) {
	m := newMemory()
	a, b := start(t, knows("a", "b"), on(m)), start(t, knows("b", "a"), on(m))
	from, to := raftstream.NewTransport(a, raftstream.TransportConfig{}), raftstream.NewTransport(b, raftstream.TransportConfig{})
	t.Cleanup(func() { _, _ = from.Close(), to.Close() })
	refusing(t, to)
	p, err := from.AppendEntriesPipeline("b", raftAddr(b))
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		for commit := range uint64(10) {
			if _, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: 1, LeaderCommitIndex: commit}, &raft.AppendEntriesResponse{}); err != nil {
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

// TestPipelineOfUnreadAnswersIsGivenUp sends on and on without reading.
func TestPipelineOfUnreadAnswersIsGivenUp(t *testing.T) {
	m := newMemory()
	a, b := start(t, knows("a", "b"), on(m)), start(t, knows("b", "a"), on(m))
	from, to := raftstream.NewTransport(a, raftstream.TransportConfig{}), raftstream.NewTransport(b, raftstream.TransportConfig{})
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
		_, err = p.AppendEntries(&raft.AppendEntriesRequest{Term: 1, LeaderCommitIndex: n}, &raft.AppendEntriesResponse{})
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestFollowerIsNotToldTheSameAgainAndAgain: but everything that is new, at once, and now and
// then something.
func TestFollowerIsNotToldTheSameAgainAndAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		disk := newOwnDisk()
		from := toAFollower(t, disk, true)
		p, err := from.AppendEntriesPipeline("b", "b")
		if err != nil {
			t.Fatal(err)
		}
		send := func(req raft.AppendEntriesRequest, arrives bool) {
			t.Helper()
			if _, err := p.AppendEntries(&req, &raft.AppendEntriesResponse{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			select {
			case <-p.Consumer():
				if !arrives {
					t.Errorf("%v was sent", req)
				}
			default:
				if arrives {
					t.Errorf("%v was not sent", req)
				}
			}
			synctest.Wait()
		}
		news := raft.AppendEntriesRequest{Term: 1, PrevLogEntry: 8, PrevLogTerm: 1, LeaderCommitIndex: 7}
		send(news, true)
		send(news, false)
		for _, changes := range []func(){
			func() { news.LeaderCommitIndex = 8 },
			func() { news.PrevLogEntry = 9 },
			func() { news.PrevLogTerm = 2 },
			func() { news.Term = 3 },
		} {
			changes()
			send(news, true)
			send(news, false)
		}
		entry := news
		entry.Entries = []*raft.Log{{Index: 10, Term: 3}}
		disk.move(10, false)
		send(entry, true)
		send(entry, true) // raft never does that; an entry is never held back
		news.PrevLogEntry, news.PrevLogTerm = 10, 3
		send(news, false)
		time.Sleep(time.Second)
		send(news, true)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestFollowerIsToldTheSameWhileAnswersAreDue: raft's hand-over of leadership sends and sends
// until it has them, and would not wait for anything else.
func TestFollowerIsToldTheSameWhileAnswersAreDue(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMemory()
		disk := newOwnDisk()
		from := raftstream.NewTransport(start(t, knows("a", "b"), on(m)), raftstream.TransportConfig{Written: disk.written})
		to := raftstream.NewTransport(start(t, knows("b", "a"), on(m)), raftstream.TransportConfig{})
		defer func() { _, _ = from.Close(), to.Close() }()
		p, err := from.AppendEntriesPipeline("b", "b")
		if err != nil {
			t.Fatal(err)
		}
		send := func(req *raft.AppendEntriesRequest, arrives bool) {
			t.Helper()
			if _, err := p.AppendEntries(req, &raft.AppendEntriesResponse{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			select {
			case rpc := <-to.Consumer():
				rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
			default:
				if arrives {
					t.Errorf("%v was not sent", req)
				}
				return
			}
			if !arrives {
				t.Errorf("%v was sent", req)
			}
			synctest.Wait()
		}
		same := &raft.AppendEntriesRequest{Term: 1, PrevLogEntry: 7, PrevLogTerm: 1}
		send(appendUpTo(7), true)
		send(same, true)
		send(same, true)
		disk.move(7, false)
		<-p.Consumer()
		synctest.Wait()
		send(same, false)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}
