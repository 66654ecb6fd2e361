package raftstream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// mostUnread bounds the answers that wait for raft to read them.
	mostUnread = 128
	// repeatAfter is how long a follower is not told again what it was told already.
	repeatAfter = 200 * time.Millisecond
)

// pipeline is raft's pipeline, whose answers are always read. Raft's own blocks while
// nobody reads an answer, and raft stops reading after the first one that refuses or
// fails, before it stops sending: caught in between it sends nothing to that follower any
// more, though heartbeats go on and the follower looks well, and does not shut down either
// (hashicorp/raft#612).
type pipeline struct {
	raft.AppendPipeline
	settled func(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (bool, <-chan struct{})
	answers chan raft.AppendFuture
	closed  chan struct{}
	once    sync.Once
	pumping sync.WaitGroup

	// What the follower was told last, when, and what stands for the answer. Only
	// AppendEntries uses them.
	told told
	at   time.Time
	last raft.AppendFuture
	// due counts the answers that raft has not got yet.
	due atomic.Int64
}

// told is all that a follower makes of a message without entries: how far its log agrees with
// the leader's, and how far that is committed.
type told struct{ term, index, indexTerm, commit uint64 }

func tell(args *raft.AppendEntriesRequest) told {
	t := told{args.Term, args.PrevLogEntry, args.PrevLogTerm, args.LeaderCommitIndex}
	if n := len(args.Entries); n > 0 {
		t.index, t.indexTerm = args.Entries[n-1].Index, args.Entries[n-1].Term
	}
	return t
}

func newPipeline(under raft.AppendPipeline, settled func(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (bool, <-chan struct{})) *pipeline {
	p := &pipeline{AppendPipeline: under, settled: settled, answers: make(chan raft.AppendFuture), closed: make(chan struct{})}
	p.pumping.Go(p.pump)
	return p
}

// AppendEntries implements raft.AppendPipeline. What is not sent has no answer of its own, and
// raft waits for none.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	news, now := tell(args), time.Now()
	if len(args.Entries) == 0 && news == p.told && now.Sub(p.at) < repeatAfter && p.due.Load() == 0 {
		return p.last, nil
	}
	p.due.Add(1)
	sent, err := p.AppendPipeline.AppendEntries(args, resp)
	p.told, p.at, p.last = news, now, sent
	return sent, err
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	err := p.AppendPipeline.Close()
	p.once.Do(func() { close(p.closed) })
	p.pumping.Wait()
	return err
}

// pump reads every answer and keeps those that raft has not asked for, or may not have yet.
// With too many of them the pipeline is given up, which raft is told when it sends next.
func (p *pipeline) pump() {
	var unread []raft.AppendFuture
	for {
		var out chan raft.AppendFuture
		var next raft.AppendFuture
		var again <-chan struct{}
		if len(unread) > 0 {
			var ok bool
			next = unread[0]
			if ok, again = p.settled(next.Request(), next.Response()); ok {
				out = p.answers
			}
		}
		select {
		case <-again:
		case answer := <-p.AppendPipeline.Consumer():
			if len(unread) > 0 && saysNothing(answer) {
				p.due.Add(-1)
				continue // raft sends such many times a second, also while none may be passed on
			}
			if unread = append(unread, answer); len(unread) == mostUnread {
				_ = p.AppendPipeline.Close()
			}
		case out <- next:
			unread = unread[1:]
			p.due.Add(-1)
		case <-p.closed:
			return
		}
	}
}

// saysNothing tells whether an answer only repeats that the follower follows.
func saysNothing(answer raft.AppendFuture) bool {
	return answer.Response().Success && len(answer.Request().Entries) == 0
}
