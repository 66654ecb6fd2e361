package replica_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/command"
	"github.com/quorumlock/quorumlock/test/scrape"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// withBudgets starts a cluster of one node with small budgets.
func withBudgets(t *testing.T, session, state uint64) (*cluster, *node) {
	c := newCluster(t, 1)
	for _, n := range c.nodes {
		n.cfg.Registry = prometheus.NewRegistry()
		n.cfg.Settings = &wire.Settings{MaxSessionBytes: session, MaxStateBytes: state}
	}
	return c, c.startAll().waitForReports()
}

// proposeAll proposes acquires of different locks in one call and returns their results.
func proposeAll(n *node, session uint64, from, to uint64) []*wire.Result {
	answers := make(chan *wire.Result, to-from)
	var all []command.Proposal
	for seq := from; seq < to; seq++ {
		cmd := acquireCommand(session, seq, fmt.Sprint("lock/", seq), 0)
		all = append(all, command.Proposal{Command: cmd, Size: proto.Size(cmd), Done: func(r *wire.Result) { answers <- r }})
	}
	n.ProposeAll(all)
	var results []*wire.Result
	for range all {
		results = append(results, <-answers)
	}
	return results
}

// granted returns the number of grants among the answers. All others must name the budget and must not come
// from the log.
func granted(t *testing.T, answers []*wire.Result, budget string) (n int) {
	t.Helper()
	for _, r := range answers {
		switch {
		case r.Status == wire.Status_GRANTED:
			n++
		case r.Status != wire.Status_RESOURCE_EXHAUSTED || !strings.HasPrefix(r.Message, budget) || r.Revision != 0:
			t.Fatalf("answered %v", r)
		}
	}
	return n
}

// TestFullStateRefusesBeforeTheLog verifies that commands that exceed the budget of the state, including
// everything queued, are not logged, and that retries and commands that shrink the state are executed.
func TestFullStateRefusesBeforeTheLog(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, leader := withBudgets(t, fsm.MinStateBytes, fsm.MinStateBytes)
		session, other := c.openSession("a", time.Minute), c.openSession("b", time.Minute)
		before := countCommands(leader)
		held := granted(t, proposeAll(leader, session, 1, 1_001), "max_state_bytes")
		if logged := countCommands(leader) - before; held < 500 || logged != held {
			t.Fatalf("%d of 1000 commands were granted, %d logged", held, logged)
		}
		before = countCommands(leader)
		if n := granted(t, proposeAll(leader, other, 1, 1_001), "max_state_bytes"); n != 0 {
			t.Errorf("%d were granted beyond", n)
		}
		for i := range 100 {
			lease := &wire.OpenLease{SecretHash: openCommand(fmt.Sprint(i), 0).GetOpenSession().SecretHash, TtlMs: 10_000, Acquire: acquireCommand(0, 0, fmt.Sprint("lease/", i), 0).GetAcquire()}
			for _, cmd := range []*wire.Command{openCommand(fmt.Sprint(i), time.Minute), {Op: &wire.Command_OpenLease{OpenLease: lease}}} {
				granted(t, []*wire.Result{leader.do(cmd)}, "max_state_bytes")
			}
		}
		if logged := countCommands(leader) - before; logged != 0 {
			t.Errorf("%d commands were logged at a full state", logged)
		}
		shown := scrape.Values(t, leader.cfg.Registry.(*prometheus.Registry))
		var units uint64
		leader.View(func(m *fsm.Machine) { units = m.Units() })
		if shown["state_units"] != float64(units) || shown["state_units_limit"] != fsm.MinStateBytes {
			t.Errorf("the metrics show %v units of %v, %d are taken", shown["state_units"], shown["state_units_limit"], units)
		}
		again := c.expect(leader.do(acquireCommand(session, 1, "lock/1", 0)), wire.Status_GRANTED)
		c.expect(leader.do(openCommand("b", time.Minute)), wire.Status_OK) // its session is open
		c.expect(leader.do(attachCommand(other, "b")), wire.Status_OK)
		c.expect(leader.do(releaseCommand(session, 2_000, again)), wire.Status_OK)
		// Acknowledgements make room, whatever command carries them.
		acks := acquireCommand(session, 2_001, "new", 0)
		acks.AckedBelow = 2_001
		c.expect(leader.do(acks), wire.Status_GRANTED)
		if n := granted(t, proposeAll(leader, other, 3_001, 3_100), "max_state_bytes"); n == 0 {
			t.Error("nothing is granted where there is room again")
		}
		c.expect(leader.do(&wire.Command{SessionId: session, Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{}}}), wire.Status_OK)
		c.expect(leader.do(openCommand("c", time.Minute)), wire.Status_OK)
	})
}

// TestFullSessionRefusesBeforeTheLog verifies that a session that was refused because of its own budget is
// refused before the log until it has room.
func TestFullSessionRefusesBeforeTheLog(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c, leader := withBudgets(t, fsm.MinSessionBytes, 64<<20)
		session := c.openSession("a", time.Minute)
		proposeAll(leader, session, 1, 501)
		before := countCommands(leader)
		if n := granted(t, proposeAll(leader, session, 501, 1_001), "max_session_bytes"); n != 0 {
			t.Errorf("%d were granted beyond", n)
		}
		if logged := countCommands(leader) - before; logged != 0 {
			t.Errorf("%d commands of a full session were logged", logged)
		}
		again := c.expect(leader.do(acquireCommand(session, 1, "lock/1", 0)), wire.Status_GRANTED)
		release := releaseCommand(session, 2_000, again)
		release.AckedBelow = 2_000
		c.expect(leader.do(release), wire.Status_OK)
		c.expect(leader.do(acquireCommand(session, 2_001, "new", 0)), wire.Status_GRANTED)
		c.expect(leader.do(acquireCommand(c.openSession("b", time.Minute), 1, "other", 0)), wire.Status_GRANTED)
	})
}
