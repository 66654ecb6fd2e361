package peerport

import (
	"time"

	"github.com/hashicorp/raft"
)

// While a call waits for a node, its port is dialled periodically: the interval grows from the first to
// the last, and the node has probeTimeout to answer.
const (
	firstProbe   = 10 * time.Millisecond
	lastProbe    = 100 * time.Millisecond
	probeTimeout = 500 * time.Millisecond
)

// untilReachable makes a call that sends entries or a snapshot. It returns a failure only once the node can be
// reached. Raft doubles its backoff with each consecutive failure, up to ten seconds, and does not
// consider heartbeats that succeed in between. So a node that was away for a minute would get no entries
// for up to ten seconds after its return. If the majority depends on that node, the leader could not
// commit anything during that time.
func (t *Transport) untilReachable(id raft.ServerID, addr raft.ServerAddress, call func() error) error {
	err := call()
	if err == nil {
		return nil
	}
	for pause := firstProbe; t.awaited(id); pause = min(2*pause, lastProbe) {
		select {
		case <-time.After(pause):
		case <-t.layer.ctx.Done():
			return err
		}
		if conn, refused := t.layer.Dial(t.at(id, addr), probeTimeout); refused == nil {
			_ = conn.Close()
			return err
		}
	}
	return err
}

// isHeartbeat reports whether a request is a heartbeat of raft, which contains nothing but the
// header and the term.
func isHeartbeat(args *raft.AppendEntriesRequest) bool {
	return len(args.Entries) == 0 && args.PrevLogEntry == 0 && args.LeaderCommitIndex == 0
}
