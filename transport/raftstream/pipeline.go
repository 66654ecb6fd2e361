package raftstream

import (
	"sync"

	"github.com/hashicorp/raft"
)

// mostUnread bounds the answers that wait for raft to read them.
const mostUnread = 128

// pipeline is raft's pipeline, whose answers are always read. Raft's own blocks while
// nobody reads an answer, and raft stops reading after the first one that refuses or
// fails, before it stops sending: caught in between it sends nothing to that follower any
// more, though heartbeats go on and the follower looks well, and does not shut down either
// (hashicorp/raft#612).
type pipeline struct {
	raft.AppendPipeline
	settled func(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (bool, <-chan struct{})
	// observe is told of each answer.
	observe func(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse)
	answers chan raft.AppendFuture
	closed  chan struct{}
	once    sync.Once
	pumping sync.WaitGroup
}

func newPipeline(under raft.AppendPipeline, settled func(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (bool, <-chan struct{}),
	observe func(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse),
) *pipeline {
	p := &pipeline{AppendPipeline: under, settled: settled, observe: observe, answers: make(chan raft.AppendFuture), closed: make(chan struct{})}
	p.pumping.Go(p.pump)
	return p
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
			if answer.Error() == nil {
				p.observe(answer.Request(), answer.Response())
			}
			if len(unread) > 0 && saysNothing(answer) {
				continue // raft sends such many times a second, also while none may be passed on
			}
			if unread = append(unread, answer); len(unread) == mostUnread {
				_ = p.AppendPipeline.Close()
			}
		case out <- next:
			unread = unread[1:]
		case <-p.closed:
			return
		}
	}
}

// saysNothing tells whether an answer only repeats that the follower follows.
func saysNothing(answer raft.AppendFuture) bool {
	return answer.Response().Success && len(answer.Request().Entries) == 0
}
