package virtual_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/workload"
)

// TestPausedClients stalls clients between their last check of a hold and their write, until their sessions
// have expired and others have written. The resource must reject the late write because of its token. The
// copy that does not check tokens must lose updates, otherwise the test proves nothing.
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
