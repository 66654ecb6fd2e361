package replica_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestWatchFromTheFutureIsRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		leader := c.waitForReports()
		c.openSession("a", time.Minute)
		lineage, present := c.statusOf(leader).Lineage, leader.revision()
		begin := func(n *node, after uint64, lineage string) (*wire.WatchResponse, error) {
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			defer stop()
			var first *wire.WatchResponse
			enough := errors.New("enough")
			err := n.Watch(ctx, &wire.WatchRequest{AfterRevision: after, Lineage: lineage}, nil, func(r *wire.WatchResponse) error {
				first = r
				return enough
			})
			if errors.Is(err, enough) {
				err = nil
			}
			return first, err
		}
		if first, err := begin(leader, present, lineage); err != nil || first.GetStatus() != wire.Status_OK {
			t.Errorf("from the present: %v, %v", first, err)
		}
		for _, after := range []uint64{present + 1, 1 << 62, 1<<64 - 1} {
			if first, err := begin(leader, after, lineage); !errors.Is(err, status.ErrInvalid) || !mentions(err, fmt.Sprint(after), fmt.Sprint(present)) {
				t.Errorf("after %d: %v, %v", after, first, err)
			}
		}
		if first, err := begin(leader, 1<<62, "another"); err != nil || first.GetStatus() != wire.Status_COMPACTED {
			t.Errorf("of another history: %v, %v", first, err)
		}

		// A node that is cut off may be behind, whatever it believes.
		for _, n := range c.followers() {
			c.net.Isolate(n.id, leader.id)
		}
		if first, err := begin(leader, present+1, lineage); !errors.Is(err, status.ErrNotLeader) {
			t.Errorf("at a leader without a majority: %v, %v", first, err)
		}
		c.net.Heal()
		c.waitForReports()
		for _, n := range c.followers() {
			if first, err := begin(n, 1<<62, lineage); !errors.Is(err, status.ErrNotLeader) {
				t.Errorf("at a follower: %v, %v", first, err)
			}
		}
	})
}
