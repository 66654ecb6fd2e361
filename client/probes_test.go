package client

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestProbeTargets checks the order in which nodes are probed: the first one rotates, and the connected one
// comes last, or not at all if it hangs. With a tunnel the connected address says nothing about the node at
// the other end.
func TestProbeTargets(t *testing.T) {
	for name, test := range map[string]struct {
		hung, tunnel bool
		turn         int
		want         []string
	}{
		"first":         {turn: 0, want: []string{"n1:7400", "n3:7400", "n2:7400"}},
		"second":        {turn: 1, want: []string{"n3:7400", "n1:7400", "n2:7400"}},
		"third":         {turn: 2, want: []string{"n1:7400", "n3:7400", "n2:7400"}},
		"it hangs":      {hung: true, want: []string{"n1:7400", "n3:7400"}},
		"tunnel":        {tunnel: true, want: []string{"n1:7400", "n2:7400", "n3:7400"}},
		"tunnel, later": {tunnel: true, turn: 4, want: []string{"n2:7400", "n3:7400", "n1:7400"}},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, cn := still(t)
			if test.tunnel {
				cn.direct = "n1:7400"
			}
			if got := c.probeTargets(cn, test.hung, test.turn); !slices.Equal(got, test.want) {
				t.Errorf("%s: %q, want %q", name, got, test.want)
			}
		})
	}
	bubble.Test(t, func(t *testing.T) {
		c, cn := still(t)
		c.cfg.Endpoints = []string{"n2:7400"}
		if got := c.probeTargets(cn, false, 3); !slices.Equal(got, []string{"n2:7400"}) {
			t.Errorf("%q, want the only one", got)
		}
	})
}

// TestHandleReport checks that a report about the leader has an effect only if it is news.
func TestHandleReport(t *testing.T) {
	itself := func(node string, term uint64) leaderReport {
		return reportBy(node+":7400", node, hintOf(node, term))
	}
	by := func(node, leader string, term uint64) leaderReport {
		return reportBy(node+":7400", node, hintOf(leader, term))
	}
	tests := map[string]struct {
		leads   bool // n2, the connected node, leads, and is the leader remembered, in term 5
		said    leaderReport
		settled bool
		next    string
	}{
		"the same, by a follower":      {false, by("n3", "n1", 5), true, "n1"},
		"an earlier one":               {false, by("n3", "n1", 4), false, ""},
		"nobody":                       {false, reportBy("n3:7400", "n3", &wire.LeaderHint{Term: 9}), false, ""},
		"this node leads":              {false, itself("n2", 5), true, ""},
		"this node, others of old":     {false, by("n3", "n2", 5), false, ""},
		"this node, others of later":   {false, by("n3", "n2", 6), true, ""},
		"it leads, another one too":    {true, by("n3", "n1", 5), false, ""},
		"it leads, a later one":        {true, by("n3", "n1", 6), true, "n1"},
		"it leads, and says so":        {true, itself("n2", 6), false, ""},
		"it leads, others say so":      {true, by("n3", "n2", 7), false, ""},
		"it leads, an earlier one too": {true, itself("n1", 4), false, ""},
	}
	for name, test := range tests {
		bubble.Test(t, func(t *testing.T) {
			c, cn := still(t)
			if test.leads {
				leading(c, cn)
			}
			settled := c.handleReport(cn, test.said)
			if settled != test.settled || c.next.GetId() != test.next || (cn.err != nil) != (test.next != "") {
				t.Errorf("%s: settled %v, next %v, %v", name, settled, c.next, cn.err)
			}
			if leads := test.leads && test.next == "" || test.settled && test.next == ""; cn.leads != leads {
				t.Errorf("%s: it leads %v, want %v", name, cn.leads, leads)
			}
		})
	}
}

// unanswered adds a request that has been unanswered for that long.
func unanswered(c *Client, ago time.Duration) {
	c.flight.push(&call{kind: kindRead, sentAt: c.clock.Now() - ago})
}

// inDoubt makes the connection one to a leader that has an unanswered request and was pinged that long ago.
func inDoubt(pinged time.Duration) func(c *Client, cn *conn) {
	return func(c *Client, cn *conn) {
		leading(c, cn)
		unanswered(c, silenceMax)
		cn.pinged = c.clock.Now() - pinged
	}
}

var whenAProbeStarts = map[string]struct {
	change func(c *Client, cn *conn)
	probes bool
	ends   bool // the connection
	pings  bool
}{
	"nobody leads":           {nil, true, false, false},
	"nothing is wanted":      {func(c *Client, _ *conn) { clear(c.sessions) }, false, false, false},
	"one is under way":       {func(c *Client, _ *conn) { c.probing = true }, false, false, false},
	"it is early":            {func(c *Client, _ *conn) { c.probeAt = c.clock.Now() + 1 }, false, false, false},
	"it is time":             {func(c *Client, _ *conn) { c.probeAt = c.clock.Now() }, true, false, false},
	"it leads":               {leading, false, false, false},
	"it leads and hangs":     {func(c *Client, cn *conn) { leading(c, cn); unanswered(c, answerTimeout) }, true, false, false},
	"it leads and answers":   {func(c *Client, cn *conn) { leading(c, cn); unanswered(c, answerTimeout-1) }, false, false, false},
	"a read, no leader":      {func(c *Client, _ *conn) { clear(c.sessions); unanswered(c, answerTimeout) }, true, false, false},
	"it is in doubt":         {func(c *Client, cn *conn) { leading(c, cn); unanswered(c, silenceMax/2) }, true, false, true},
	"not yet in doubt":       {func(c *Client, cn *conn) { leading(c, cn); unanswered(c, silenceMax/2-1) }, true, false, false},
	"in doubt for long":      {func(c *Client, cn *conn) { leading(c, cn); unanswered(c, time.Minute) }, true, false, true},
	"it is given up":         {inDoubt(silenceMax / 2), false, true, false},
	"not yet given up":       {inDoubt(silenceMax/2 - 1), true, false, false},
	"it answered the ping":   {func(c *Client, cn *conn) { inDoubt(silenceMax/2)(c, cn); cn.receivedAt = cn.pinged }, true, false, true},
	"it answered just now":   {func(c *Client, cn *conn) { inDoubt(silenceMax/2)(c, cn); cn.receivedAt = c.clock.Now() }, true, false, false},
	"the request is young":   {func(c *Client, cn *conn) { inDoubt(silenceMax)(c, cn); c.oldest().sentAt++ }, true, false, false},
	"the connection is over": {func(c *Client, cn *conn) { cn.err = errors.New("over") }, false, false, false},
	"there is none":          {func(c *Client, _ *conn) { c.conn = nil }, false, false, false},
	"the client is closed":   {func(c *Client, _ *conn) { c.halted = true }, false, false, false},
	"a watch says nothing":   {func(c *Client, cn *conn) { leading(c, cn); c.watching[1] = &Watcher{} }, false, false, true},
	"a watch says something": {func(c *Client, cn *conn) {
		leading(c, cn)
		c.watching[1] = &Watcher{}
		cn.receivedAt, cn.spoke = c.clock.Now(), c.clock.Now()
	}, false, false, false},
}

// TestWhenAProbeStarts verifies when a probe begins, and what else is due then.
func TestWhenAProbeStarts(t *testing.T) {
	for name, test := range whenAProbeStarts {
		bubble.Test(t, func(t *testing.T) {
			c, cn := still(t)
			time.Sleep(time.Minute)
			c.mu.Lock()
			if test.change != nil {
				test.change(c, cn)
			}
			before, sent := cn.err, c.flight.n
			wasProbing := c.probing
			now := c.clock.Now()
			c.checkConnection(now)
			if probes := c.probing && !wasProbing; probes != test.probes || (c.probes == 1) != test.probes || probes != (c.cancelProbe != nil) {
				t.Errorf("%s: it looks: %v, %d times", name, probes, c.probes)
			}
			if test.probes && (c.probeAt <= now || c.probeAt > now+answerTimeout) {
				t.Errorf("%s: the next one in %v", name, c.probeAt-now)
			}
			if ends := cn.err != before; ends != test.ends {
				t.Errorf("%s: the connection ends: %v", name, cn.err)
			}
			if pings := c.flight.n > sent; pings != test.pings {
				t.Errorf("%s: a ping is sent: %v", name, pings)
			}
			if c.cancelProbe != nil {
				c.cancelProbe()
			}
			c.unlock()
			c.wg.Wait()
			if c.probing != wasProbing {
				t.Errorf("%s: it looks for ever", name)
			}
			c.discardMade()
		})
	}
}

// TestProbeOfAnotherConnection checks that a probe started for a connection that has ended does not
// affect the next one.
func TestProbeOfAnotherConnection(t *testing.T) {
	for name, end := range map[string]func(c *Client, cn *conn){
		"replaced": func(c *Client, _ *conn) { c.conn = &conn{node: "n2"} },
		"over":     func(_ *Client, cn *conn) { cn.err = errors.New("over") },
	} {
		bubble.Test(t, func(t *testing.T) {
			f := newFake(t, 3)
			f.lead("n3", 9)
			c, cn := still(t)
			c.cfg.Dial = f.dial
			ended := cn.err
			end(c, cn)
			ctx, cancel := contextWith(c)
			c.probe(ctx, cancel, cn, []string{"n1:7400", "n3:7400"})
			if c.next != nil || c.leader.GetTerm() != 5 || cn.err != nil && name == "replaced" {
				t.Errorf("%s: next %v, leader %v, was %v", name, c.next, c.leader, ended)
			}
			if n := f.dials(); n != 1 {
				t.Errorf("%s: %d nodes were asked, want one and then none", name, n)
			}
		})
	}
}

// TestProbeOfABusyProcess checks that no other node is asked if goroutines that are ready handle the answer, and that
// such a probe does not count.
func TestProbeOfABusyProcess(t *testing.T) {
	const earlier = 2 // probes without success
	for name, test := range map[string]struct {
		turns int // of the goroutine that handles the answer, in the last of which it does; 0 if there is no answer
		dials int
	}{
		"an answer that can be read": {1, 0},
		"an answer in the kernel":    {2, 0},
		"no answer":                  {0, 1},
	} {
		bubble.Test(t, func(t *testing.T) {
			f := newFake(t, 3)
			c, cn := still(t)
			c.cfg.Dial = f.dial
			leading(c, cn)
			unanswered(c, answerTimeout)
			c.probes = earlier
			c.mu.Lock()
			c.checkConnection(c.clock.Now())
			c.unlock()
			for turn := 1; turn <= test.turns; turn++ {
				runtime.Gosched()
				if turn == test.turns {
					c.mu.Lock()
					c.flight.pop()
					c.mu.Unlock()
				}
			}
			c.wg.Wait()
			if n := f.dials(); min(n, 1) != test.dials {
				t.Errorf("%s: %d nodes were asked", name, n)
			}
			if c.probes != earlier+test.dials || c.probing {
				t.Errorf("%s: %d probes without success after %d, still probing: %v", name, c.probes, earlier, c.probing)
			}
		})
	}
}

// TestProbeDuration checks that probes last longer while they have no success, and that their durations are
// random.
func TestProbeDuration(t *testing.T) {
	for probes, most := range map[int]time.Duration{0: answerTimeout, 1: 2 * answerTimeout, 2: maxProbe, 3: maxProbe, 40: maxProbe} {
		seen := map[time.Duration]bool{}
		for range 50 {
			d := probeDuration(probes)
			if d <= most/2 || d > most {
				t.Errorf("after %d: %v", probes, d)
			}
			seen[d] = true
		}
		if len(seen) < 25 {
			t.Errorf("after %d: %d of 50 differ", probes, len(seen))
		}
	}
}

// TestScheduleProbe checks that a probe that is due soon is not delayed, and that one that was due in the past is
// scheduled again.
func TestScheduleProbe(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, _ := still(t)
		now := c.clock.Now()
		c.scheduleProbe()
		if c.probeAt < now || c.probeAt > now+answerTimeout || c.alarmAt != c.probeAt {
			t.Errorf("in %v, the alarm in %v", c.probeAt-now, c.alarmAt-now)
		}
		soon := now + 5
		c.probeAt, c.alarmAt = soon, 0
		c.scheduleProbe()
		if c.probeAt != soon || c.alarmAt != soon {
			t.Errorf("in %v, want 5 ns", c.probeAt-now)
		}
	})
}
