package replica_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestThreeNodesElectAndServe(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 3).startAll()
		begin := time.Now()
		leader := c.waitForReports()
		t.Logf("settled after %v", time.Since(begin))
		s := c.openSession("a", 5*time.Second)
		c.expect(leader.do(acquireCommand(s, 1, "orders/42", 0)), wire.Status_GRANTED)
		for _, n := range c.nodes {
			c.eventually("applied everywhere", func() bool { return n.holder("orders/42") == s })
		}
		synctest.Wait()
	})
}
