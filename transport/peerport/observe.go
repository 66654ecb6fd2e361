package peerport

import "github.com/hashicorp/raft"

// appended observes the answer to a leader's call. The follower has written and synced the entries
// before it answers.
func (t *Transport) appended(from string, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
	t.observer.InTerm(from, resp.Term)
	if resp.Success && !isHeartbeat(args) { // a heartbeat does not ask for any entry
		t.observer.Acknowledged(from, args.PrevLogEntry+uint64(len(args.Entries)))
	}
}

// called observes a call that raft has answered. A candidate stores its term before it asks for votes,
// and a leader has voted for itself. The term of a pre-vote is not stored by any node.
func (t *Transport) called(from string, call, answer any) {
	switch args := call.(type) {
	case *raft.RequestVoteRequest:
		t.observer.InTerm(from, args.Term)
	case *raft.AppendEntriesRequest:
		t.observer.InTerm(from, args.Term)
		t.observer.Voted(from, args.Term)
		resp, ok := answer.(*raft.AppendEntriesResponse)
		if ok && resp.Success && args.LeaderCommitIndex > 0 {
			t.observer.Announced(from, args.LeaderCommitIndex)
		}
	}
}
