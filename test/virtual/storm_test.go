package virtual_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/workload"
)

// stormClients is the number of clients that reconnect at the same time.
const stormClients = 40

// TestReconnectStorm repeatedly resets every connection of many clients at the same time, also while
// leadership moves. All of them must attach their sessions and keep their holds.
func TestReconnectStorm(t *testing.T) {
	enough(t, eachSeed(t, 6, reconnectStorm), counts{operations: 6 * stormClients, workload.Grants: stormClients})
}

func reconnectStorm(t *testing.T, seed uint64) counts {
	c := newCluster(t, seed, 3, nil)
	c.leaderWithReports()
	c.startLoad(seed, workload.Options{Parts: []workload.Part{workload.Line, workload.Hot}})
	var holds []pin
	for i := range stormClients {
		cl := c.client(fmt.Sprint("crowd/", i))
		holds = append(holds, c.take(c.open(cl, "crowd"), fmt.Sprint("crowd/", i)))
	}
	for round := range 4 {
		before := c.net.Stats().Reset
		for _, machine := range c.machines() {
			c.net.Host(machine).Reset()
		}
		if n := c.net.Stats().Reset - before; n < stormClients {
			t.Errorf("only %d connections were reset", n)
		}
		if round%2 == 1 {
			old := c.leader()
			old.crash()
			c.successor(old)
			c.startAll()
		}
		pause(c.between(0, 2*time.Second))
		c.goesOn()
		c.run.Check("a storm")
	}
	attached := map[string]int{}
	for _, op := range c.log.History().Ops() {
		if op.Kind == "attach" {
			attached[op.Client]++
		}
	}
	for i, h := range holds {
		if attached[fmt.Sprint("crowd/", i)] == 0 || h.Context().Err() != nil {
			t.Errorf("client %d attached %d times; its hold: %v", i, attached[fmt.Sprint("crowd/", i)], h.Context().Err())
		}
		h.drop()
	}
	did := c.run.Finish()
	did[workload.Grants] += len(holds)
	c.closeClients()
	return c.verdict(did)
}
