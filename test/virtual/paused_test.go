package virtual_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/workload"
)

// TestPausedClients holds clients back between their last look at a hold and their write,
// for so long that their sessions expire and others have written. What they write then the
// resource must refuse by its token; the copy of it that looks at no tokens has to lose
// updates, or nothing was proved.
func TestPausedClients(t *testing.T) {
	paused := story{
		load: workload.Options{Parts: []workload.Part{workload.Fenced, workload.Line}, Unguarded: true},
		fault: func(c *cluster, leader *node) {
			client := workload.FencedClient(c.random.IntN(workload.FencedClients))
			g := c.gateOf(client)
			caught := g.arm()
			c.eventually("the client is about to write", func() bool {
				select {
				case <-caught:
					return true
				default:
					return false
				}
			})
			if c.random.IntN(2) == 0 {
				leader.crash()
				c.successor(leader)
			}
			pause(2 * frailTTL)
			c.goesOn()
			g.open()
			pause(time.Second)
		},
	}
	paused.tellEach(t, 10, counts{operations: 50, expiries: 2, workload.StaleWrites: 2, workload.LostUpdates: 2, workload.Writes: 20})
}
