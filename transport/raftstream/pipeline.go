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
	answers chan raft.AppendFuture
	closed  chan struct{}
	once    sync.Once
	pumping sync.WaitGroup
}

func newPipeline(under raft.AppendPipeline) *pipeline {
	p := &pipeline{AppendPipeline: under, answers: make(chan raft.AppendFuture), closed: make(chan struct{})}
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

// pump reads every answer and keeps those that raft has not asked for. With too many of
// them the pipeline is given up, which raft is told when it sends next.
func (p *pipeline) pump() {
	var unread []raft.AppendFuture
	for {
		var out chan raft.AppendFuture
		var next raft.AppendFuture
		if len(unread) > 0 {
			out, next = p.answers, unread[0]
		}
		select {
		case answer := <-p.AppendPipeline.Consumer():
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
