package raftstream

import (
	"time"

	"github.com/hashicorp/raft"
)

// A call that waits for a node knocks at its port: the pause before that grows from the
// first to the last, and the node has so long to answer.
const (
	firstKnock   = 10 * time.Millisecond
	lastKnock    = 100 * time.Millisecond
	knockTimeout = 500 * time.Millisecond
)

// patiently makes a call that sends entries or a snapshot, and keeps a failure to itself
// until the node can be reached. Raft doubles its pause with each failure in a row, up to
// ten seconds, and knows nothing of heartbeats that get through in between: a node that was
// away for a minute would be back and well, and get no entries for so long. With it alone
// the leader has its majority, and could commit nothing.
func (t *Transport) patiently(id raft.ServerID, addr raft.ServerAddress, call func() error) error {
	err := call()
	if err == nil {
		return nil
	}
	for pause := firstKnock; t.awaited(id); pause = min(2*pause, lastKnock) {
		select {
		case <-time.After(pause):
		case <-t.layer.ctx.Done():
			return err
		}
		if conn, refused := t.layer.Dial(t.at(id, addr), knockTimeout); refused == nil {
			_ = conn.Close()
			return err
		}
	}
	return err
}

// isHeartbeat tells raft's heartbeats, which carry nothing else.
func isHeartbeat(args *raft.AppendEntriesRequest) bool {
	return len(args.Entries) == 0 && args.PrevLogEntry == 0 && args.LeaderCommitIndex == 0
}
