package virtual_test

import (
	"testing"
	"time"
)

// TestEntriesOfTheSDK checks the number of log entries on the main paths: an uncontended lock and unlock take
// two, the handover to the next waiter takes one, and idle sessions only cause the empty ones that prove
// leadership.
func TestEntriesOfTheSDK(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newCluster(t, 1, 3, nil)
		leader := c.leaderWithReports()
		cl := c.client("c0")
		a, b := c.open(cl, "a"), c.open(cl, "b")
		count := func(what string, want int, f func()) (proofs int) {
			t.Helper()
			commands, empty := leader.disk.entries()
			f()
			pause(500 * time.Millisecond)
			after, emptyAfter := leader.disk.entries()
			t.Logf("%s: %d entries with commands, %d without", what, after-commands, emptyAfter-empty)
			if after-commands != want {
				t.Errorf("%s took %d entries, want %d", what, after-commands, want)
			}
			return emptyAfter - empty
		}
		const ttls = 1
		if proofs := count("idling", 0, func() { pause(ttls * sceneTTL) }); proofs < ttls*2 || proofs > 2*ttls*5 {
			t.Errorf("two idle sessions took %d proofs in %v", proofs, ttls*sceneTTL)
		}
		count("20 times lock and unlock", 40, func() {
			for range 20 {
				c.take(a, "lone").drop()
			}
		})
		p := c.take(a, "hot")
		var waiting []<-chan pin
		for i := range 10 {
			waiting = append(waiting, c.taking(b, "hot"))
			c.eventually("queued", func() bool { return len(c.line("hot")) == i+1 })
		}
		count("10 hand-overs", 10, func() {
			for _, w := range waiting {
				p.drop()
				p = c.granted(w)
			}
		})
		p.drop()
		c.closeClients()
		t.Log(c.verdict(nil))
	})
}
