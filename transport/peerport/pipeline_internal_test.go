package peerport

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/test/bubble"
)

// sending is a raft pipeline that keeps what it is to send. The other end never answers.
type sending struct{ sent []*raft.AppendEntriesRequest }

// unanswered is the future of a request.
type unanswered struct {
	raft.AppendFuture
	request *raft.AppendEntriesRequest
	start   time.Time
}

func (f unanswered) Request() *raft.AppendEntriesRequest { return f.request }
func (f unanswered) Start() time.Time                    { return f.start }

func (s *sending) AppendEntries(args *raft.AppendEntriesRequest, _ *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	s.sent = append(s.sent, args)
	return unanswered{request: args, start: time.Now()}, nil
}

func (*sending) Consumer() <-chan raft.AppendFuture { return nil }

func (*sending) Close() error { return nil }

// TestRequestsThatRepeatTheLatestAreLeftOut sends each request twice: the second tells the follower nothing new, unless
// it has entries.
func TestRequestsThatRepeatTheLatestAreLeftOut(t *testing.T) {
	entries := []*raft.Log{{Index: 9}}
	for name, change := range map[string]func(*raft.AppendEntriesRequest){
		"term":              func(r *raft.AppendEntriesRequest) { r.Term++ },
		"commit index":      func(r *raft.AppendEntriesRequest) { r.LeaderCommitIndex++ },
		"previous log":      func(r *raft.AppendEntriesRequest) { r.PrevLogEntry++ },
		"previous log term": func(r *raft.AppendEntriesRequest) { r.PrevLogTerm++ },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				under := &sending{}
				p := newPipeline(under, nil, nil)
				defer p.Close()
				request := raft.AppendEntriesRequest{Term: 3, LeaderCommitIndex: 7, PrevLogEntry: 8, PrevLogTerm: 2}
				send := func() {
					again := request
					if f, err := p.AppendEntries(&again, &raft.AppendEntriesResponse{}); err != nil || f == nil {
						t.Error(f, err)
					}
				}
				want := func(n int) {
					t.Helper()
					if len(under.sent) != n {
						t.Errorf("%d requests were sent, %d are expected", len(under.sent), n)
					}
				}
				send()
				send()
				want(1)
				change(&request)
				send()
				send()
				want(2)
				time.Sleep(repeatAfter) // of virtual time
				send()
				send()
				want(3)
				request.Entries = entries
				send()
				send()
				want(5)
			})
		})
	}
}
