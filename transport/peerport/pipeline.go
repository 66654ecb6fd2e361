package peerport

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// mostUnread bounds the answers that wait for raft to read them.
	mostUnread = 128
	// repeatAfter is how soon raft may repeat a request that tells a follower nothing new.
	repeatAfter = time.Second
)

// pipeline is a raft pipeline whose answers are always read. Raft's own pipeline blocks while an answer
// is not read, and raft stops reading after the first answer that is a refusal or an error, before it
// stops sending. If it is caught in between, it sends nothing more to that follower, although heartbeats
// continue and the follower looks healthy, and it cannot shut down either (hashicorp/raft#612).
type pipeline struct {
	raft.AppendPipeline
	mayDeliver func(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (bool, <-chan struct{})
	// observe is called for each answer.
	observe func(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse)
	sent    raft.AppendFuture // the latest
	answers chan raft.AppendFuture
	closed  chan struct{}
	once    sync.Once
	pumping sync.WaitGroup
}

func newPipeline(under raft.AppendPipeline, mayDeliver func(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (bool, <-chan struct{}),
	observe func(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse),
) *pipeline {
	p := &pipeline{AppendPipeline: under, mayDeliver: mayDeliver, observe: observe, answers: make(chan raft.AppendFuture), closed: make(chan struct{})}
	p.pumping.Go(p.pump)
	return p
}

// AppendEntries implements raft.AppendPipeline. An idle leader sends each follower the same request, without entries,
// with each commit timeout. Most of these are left out: they would be most of the work of an idle cluster, and it is
// the heartbeats that prove that the leader and the follower are in contact.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if p.sent != nil && repeats(args, p.sent.Request()) && time.Since(p.sent.Start()) < repeatAfter {
		return p.sent, nil
	}
	var err error
	p.sent, err = p.AppendPipeline.AppendEntries(args, resp)
	return p.sent, err
}

// repeats reports whether a request contains nothing that the previous one of its pipeline did not contain.
func repeats(args, previous *raft.AppendEntriesRequest) bool {
	return len(args.Entries) == 0 && len(previous.Entries) == 0 && args.Term == previous.Term && args.LeaderCommitIndex == previous.LeaderCommitIndex &&
		args.PrevLogEntry == previous.PrevLogEntry && args.PrevLogTerm == previous.PrevLogTerm
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

// pump reads every answer and keeps those that raft has not asked for, or may not get yet. If there are
// too many, it closes the pipeline, which raft notices when it sends next.
func (p *pipeline) pump() {
	var unread []raft.AppendFuture
	for {
		var out chan raft.AppendFuture
		var next raft.AppendFuture
		var again <-chan struct{}
		if len(unread) > 0 {
			var ok bool
			next = unread[0]
			if ok, again = p.mayDeliver(next.Request(), next.Response()); ok {
				out = p.answers
			}
		}
		select {
		case <-again:
		case answer := <-p.AppendPipeline.Consumer():
			if answer.Error() == nil {
				p.observe(answer.Request(), answer.Response())
			}
			if len(unread) > 0 && onlyConfirms(answer) {
				continue // raft sends many of these per second, even while no answer may be passed on
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

// onlyConfirms reports whether an answer only confirms that the follower still follows.
func onlyConfirms(answer raft.AppendFuture) bool {
	return answer.Response().Success && len(answer.Request().Entries) == 0
}
