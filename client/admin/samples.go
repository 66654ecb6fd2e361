package admin

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Samples is what a node has measured in the last ten minutes.
type Samples struct {
	// NodeID is the answering node.
	NodeID string
	// Interval is the time between two samples.
	Interval time.Duration
	// Samples are ordered by time. None are older than the node's start.
	Samples []Sample
}

// Sample is what a node has measured at one time, and since the sample before it.
type Sample struct {
	// At is the time of the sample by the node's clock.
	At time.Time `field:"unix_ms"`
	// Locks, Sessions, Holds and Waiters are the totals of the state that the node has applied.
	Locks    uint64
	Sessions uint64
	Holds    uint64
	Waiters  uint64
	// Grants and Expirations, of sessions and holds, are those since the sample before. Expirations is 0 for a client
	// that may not read all locks.
	Grants      uint64
	Expirations uint64
	// DiskSync is the median duration of the writes to the node's log since the sample before, each with its sync, and
	// DiskSyncMax the longest; 0 if there was none.
	DiskSync    time.Duration `field:"disk_sync_us"`
	DiskSyncMax time.Duration `field:"disk_sync_max_us"`
	// Commit is the median time from proposing an entry to its having been applied, at the leader, since the sample
	// before; 0 if there was none, and at other nodes.
	Commit time.Duration `field:"commit_us"`
}

// Samples returns what the node to which this client is connected has measured, which is usually the leader.
func (c *Client) Samples(ctx context.Context) (Samples, error) {
	answer, err := c.calls.ListSamples(ctx, &wire.ListSamplesRequest{})
	if err != nil {
		return Samples{}, err
	}
	return convert[Samples](answer), nil
}
