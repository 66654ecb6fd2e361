package client

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestNoteLeader checks that the leader of the highest term is remembered, and the addresses of the last few
// leaders.
func TestNoteLeader(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, _ := still(t)
		reportBy := func(hint *wire.LeaderHint, want string, fresh bool) {
			t.Helper()
			c.attempts, c.probes = 5, 5
			c.noteLeader(hint)
			if c.leader.GetId() != want || (c.attempts == 0) != fresh || (c.probes == 0) != fresh {
				t.Errorf("%v: leader %v, %d attempts, %d looks", hint, c.leader, c.attempts, c.probes)
			}
		}
		reportBy(hintOf("n2", 4), "n1", false)
		reportBy(&wire.LeaderHint{Term: 9}, "n1", false)
		reportBy(hintOf("n2", 5), "n2", false)
		reportBy(hintOf("n3", 6), "n3", true)
		reportBy(&wire.LeaderHint{Id: "n4", Term: 7}, "n4", true)
		if want := []string{"n2:7400", "n3:7400"}; !slices.Equal(c.learned, want) {
			t.Errorf("addresses %v, want %v", c.learned, want)
		}
		for term := range uint64(2 * maxLearned) {
			reportBy(hintOf(fmt.Sprint("m", term/2), 8+term), fmt.Sprint("m", term/2), true)
		}
		if len(c.learned) != maxLearned || c.learned[0] != "m0:7400" {
			t.Errorf("addresses %v, want the last %d, each once", c.learned, maxLearned)
		}
		c.turn = 4
		all := c.endpoints()
		if len(all) != 3+maxLearned || !slices.Equal(all[:3], []string{"n2:7400", "n3:7400", "n1:7400"}) {
			t.Errorf("endpoints %v, want the second of three first", all)
		}
		c.learned = []string{"n3:7400", "n9:7400"}
		if got := c.endpoints(); !slices.Equal(got, []string{"n2:7400", "n3:7400", "n1:7400", "n9:7400"}) {
			t.Errorf("endpoints %v, want each once", got)
		}
	})
}

// TestAvoids checks that leaders known to be unreachable, or being reached over another path, are avoided.
func TestAvoids(t *testing.T) {
	failed := avoided{addr: "n1:7400", term: 5, until: 2 * time.Second}
	tests := map[string]struct {
		hint   *wire.LeaderHint
		change func(c *Client)
		want   bool
	}{
		"it failed":                 {hintOf("n1", 5), nil, true},
		"of an earlier term":        {hintOf("n1", 4), nil, true},
		"of a later term":           {hintOf("n1", 6), nil, false},
		"another one":               {hintOf("n2", 5), nil, false},
		"long ago":                  {hintOf("n1", 5), func(*Client) { time.Sleep(time.Second) }, false},
		"just not":                  {hintOf("n1", 5), func(*Client) { time.Sleep(time.Second - 1) }, true},
		"being reached":             {hintOf("n2", 5), func(c *Client) { c.reroute.to = hintOf("n2", 5) }, true},
		"being reached, earlier":    {hintOf("n2", 4), func(c *Client) { c.reroute.to = hintOf("n2", 5) }, true},
		"being reached, later":      {hintOf("n2", 6), func(c *Client) { c.reroute.to = hintOf("n2", 5) }, false},
		"another one being reached": {hintOf("n2", 5), func(c *Client) { c.reroute.to = hintOf("n3", 5) }, false},
		"nobody":                    {&wire.LeaderHint{}, nil, false},
		"nobody, one being reached": {&wire.LeaderHint{}, func(c *Client) { c.reroute.to = &wire.LeaderHint{} }, false},
		"after a tunnel":            {hintOf("n2", 9), func(c *Client) { c.reroute.used = true }, true},
		"nobody, after a tunnel":    {&wire.LeaderHint{}, func(c *Client) { c.reroute.used = true }, false},
	}
	for name, test := range tests {
		bubble.Test(t, func(t *testing.T) {
			c, _ := still(t)
			c.avoid = failed
			if test.change != nil {
				test.change(c)
			}
			if got := c.avoids(test.hint); got != test.want {
				t.Errorf("%s: avoided is %v", name, got)
			}
		})
	}
}

// TestLeaderHint checks the effect of a push about the leader.
func TestLeaderHint(t *testing.T) {
	tests := map[string]struct {
		change func(c *Client, cn *conn)
		hint   *wire.LeaderHint
		leads  bool   // whether the node leads afterwards
		next   string // the leader to connect to
		leader string // the leader remembered
	}{
		"an earlier one":          {leading, hintOf("n3", 4), true, "", "n2"},
		"another one":             {leading, hintOf("n3", 6), false, "n3", "n3"},
		"of the same term":        {leading, hintOf("n3", 5), false, "n3", "n3"},
		"it leads":                {nil, hintOf("n2", 6), true, "", "n2"},
		"it led before":           {nil, hintOf("n2", 4), false, "", "n1"},
		"nobody leads":            {leading, &wire.LeaderHint{Term: 6}, false, "", "n2"},
		"nobody led, earlier":     {leading, &wire.LeaderHint{Term: 4}, false, "", "n2"},
		"it has no address":       {leading, &wire.LeaderHint{Id: "n3", Term: 6}, false, "", "n2"},
		"it is out of reach":      {func(c *Client, cn *conn) { leading(c, cn); c.avoid = avoided{"n3:7400", 6, 0, never} }, hintOf("n3", 6), false, "", "n3"},
		"an unnamed node and one": {func(c *Client, cn *conn) { leading(c, cn); cn.node = "" }, &wire.LeaderHint{ClientAddr: "x:1", Term: 6}, false, "", "n2"},
	}
	for name, test := range tests {
		bubble.Test(t, func(t *testing.T) {
			c, cn := still(t)
			if test.change != nil {
				test.change(c, cn)
			}
			c.onLeader(cn, test.hint)
			next := c.next.GetId()
			if test.next == "" && c.next.GetClientAddr() == "x:1" {
				next = "" // it has no id, but an address to follow
			}
			if cn.leads != test.leads || next != test.next || c.leader.GetId() != test.leader {
				t.Errorf("%s: it leads %v, next %v, leader %v", name, cn.leads, c.next, c.leader)
			}
			if (cn.err != nil) != (c.next != nil) {
				t.Errorf("%s: the connection ends for %v", name, cn.err)
			}
			if !cn.leads && c.next == nil && c.alarmAt == 0 && test.hint.GetTerm() >= 5 {
				t.Errorf("%s: nobody looks for the next one", name)
			}
		})
	}
}

// leading makes the connected node, n2, leader of term 5.
func leading(c *Client, cn *conn) { cn.leads, cn.term, c.leader = true, 5, hintOf("n2", 5) }

// TestAttachedAnewInALaterTerm checks that sessions are attached again to a node that leads in a new term,
// but not to one that still leads.
func TestAttachedAnewInALaterTerm(t *testing.T) {
	for term, want := range map[uint64]bool{4: false, 5: false, 6: true} {
		bubble.Test(t, func(t *testing.T) {
			c, cn := still(t)
			leading(c, cn)
			s := c.sessions[7]
			s.conn = cn
			c.leadsNow(cn, term)
			if again := s.attaching != nil; again != want || again == (s.conn == cn) || cn.term != max(term, 5) {
				t.Errorf("term %d: attached anew is %v, term %d", term, again, cn.term)
			}
		})
	}
}

// TestNotLeader checks that a refusal by the leader itself does not move the client: it was elected but
// does not serve yet.
func TestNotLeader(t *testing.T) {
	for name, test := range map[string]struct {
		node string
		hint *wire.LeaderHint
		left bool
	}{
		"itself":  {"n2", hintOf("n2", 5), false},
		"another": {"n2", hintOf("n3", 5), true},
		"nobody":  {"n2", &wire.LeaderHint{}, true},
		"unnamed": {"", &wire.LeaderHint{}, true},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, cn := still(t)
			leading(c, cn)
			cn.node = test.node
			c.notLeader(cn, test.hint)
			if left := !cn.leads; left != test.left {
				t.Errorf("%s: left is %v", name, left)
			}
		})
	}
}

// TestFollowedHintsEnd checks that a search follows each hint once, and a bounded number of hints.
func TestFollowedHintsEnd(t *testing.T) {
	for name, test := range map[string]struct {
		next  func(n int) int // the node that node n names as leader
		hops  int
		last  string
		fails bool
	}{
		"for ever":   {func(n int) int { return n + 1 }, maxHops, "n4", false},
		"in a ring":  {func(n int) int { return 3 - n }, 2, "n2", false},
		"two hops":   {func(n int) int { return min(n+1, 2) }, 2, "n2", false},
		"to nowhere": {func(n int) int { return 99 }, 1, "n1", true},
	} {
		bubble.Test(t, func(t *testing.T) {
			f := newFake(t, 8)
			for n := 1; n <= 8; n++ {
				f.node(fmt.Sprint("n", n)).believes = hintOf(fmt.Sprint("n", test.next(n)), uint64(n))
			}
			c := newClient(f.config())
			defer c.cancel()
			cn, tried, failed, err := c.followHints()
			if cn == nil || cn.node != test.last || (err != nil) != test.fails || (failed != "") != test.fails {
				t.Fatalf("%s: %+v after %v, %q failed: %v", name, cn, tried, failed, err)
			}
			if dials := f.dials(); dials != test.hops || len(tried) < dials {
				t.Errorf("%s: %d connections for %v", name, dials, tried)
			}
			cn.discard()
			if open := len(f.open()); open != 0 {
				t.Errorf("%s: %d connections stay open", name, open)
			}
		})
	}
}

// open returns the connections that the client has not ended.
func (f *fake) open() (open []*fakeConn) {
	f.mu.Lock()
	var all []*fakeConn
	for _, n := range f.nodes {
		all = append(all, n.conns...)
	}
	f.mu.Unlock()
	for _, cn := range all {
		_ = cn.nc.SetWriteDeadline(time.Now().Add(time.Millisecond))
		if _, err := cn.nc.Write([]byte{0}); err != nil && !isClosed(err) {
			open = append(open, cn)
		}
	}
	return open
}

func isClosed(err error) bool {
	timeout, is := err.(net.Error)
	return !is || !timeout.Timeout()
}

// TestSurvey checks that among several named leaders the one with the highest term counts, and within one
// term a node that names itself.
func TestSurvey(t *testing.T) {
	unreachable := &wire.LeaderHint{Id: "n2", ClientAddr: "10.0.0.2:7400", Term: 5}
	for name, test := range map[string]struct {
		said [3]*wire.LeaderHint
		want *wire.LeaderHint
	}{
		"nobody":         {[3]*wire.LeaderHint{{}, {}, {}}, nil},
		"one":            {[3]*wire.LeaderHint{{}, hintOf("n1", 3), {}}, hintOf("n1", 3)},
		"the latest":     {[3]*wire.LeaderHint{hintOf("n1", 3), hintOf("n3", 5), hintOf("n2", 4)}, hintOf("n3", 5)},
		"itself, of two": {[3]*wire.LeaderHint{unreachable, unreachable, unreachable}, hintOf("n2", 5)},
		"without terms":  {[3]*wire.LeaderHint{{}, hintOf("n3", 0), {}}, hintOf("n3", 0)},
	} {
		for first := range 3 { // the node that answers first
			bubble.Test(t, func(t *testing.T) {
				f := newFake(t, 3)
				for i, hint := range test.said {
					f.node(fmt.Sprint("n", i+1)).believes = hint
				}
				cfg := f.config()
				cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
					order := (slices.Index(cfg.Endpoints, addr) + first) % 3
					time.Sleep(time.Duration(order) * 10 * time.Millisecond)
					return f.dial(ctx, addr)
				}
				c := newClient(cfg)
				defer c.cancel()
				asked := 0
				got := c.survey(c.ctx, func(addr string) bool { return false }, func(leaderReport) bool { asked++; return false })
				if got.GetId() != test.want.GetId() || got.GetTerm() != test.want.GetTerm() || got.GetClientAddr() != test.want.GetClientAddr() || asked != 3 {
					t.Errorf("%s, %d first: %v of %d, want %v", name, first, got, asked, test.want)
				}
				c.wg.Wait()
			})
		}
	}
}

// TestSurveyEnds checks that a survey ends as soon as enough is known, and soon after a leader was named.
func TestSurveyEnds(t *testing.T) {
	for name, test := range map[string]struct {
		hung   []string
		enough bool
		want   time.Duration
	}{
		"all answer":      {nil, false, 0},
		"one is silent":   {[]string{"n2"}, false, answerTimeout},
		"that was enough": {[]string{"n2"}, true, 0},
		"all are silent":  {[]string{"n1", "n2", "n3"}, false, helloTimeout},
	} {
		bubble.Test(t, func(t *testing.T) {
			f := newFake(t, 3)
			for _, id := range test.hung {
				f.node(id).hung = true
			}
			c := newClient(f.config())
			defer c.cancel()
			started := time.Now()
			best := c.survey(c.ctx, func(addr string) bool { return addr == "n9:7400" }, func(leaderReport) bool { return test.enough })
			if took := time.Since(started); took != test.want || (best == nil) != (len(test.hung) == 3) {
				t.Errorf("%s: %v after %v, want %v", name, best, took, test.want)
			}
			c.wg.Wait()
			if test.enough {
				return
			}
			f.set(func() { f.node("n1").dials = 0 })
			c.survey(c.ctx, func(addr string) bool { return addr == "n1:7400" }, func(leaderReport) bool { return false })
			if f.node("n1").dials != 0 {
				t.Errorf("%s: a node that is left out is asked", name)
			}
			c.wg.Wait()
		})
	}
}

// TestUnreachable checks that a leader that could not be reached is remembered with the time of the first
// attempt, and that other nodes are not.
func TestUnreachable(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, _ := still(t)
		now := c.clock.Now()
		c.unreachable("n3:7400", 0, now)
		if c.avoid != (avoided{}) {
			t.Errorf("%+v of a node that nobody takes for the leader", c.avoid)
		}
		c.unreachable("n1:7400", 0, now-time.Second)
		if want := (avoided{"n1:7400", 5, now - time.Second, now + avoidFor}); c.avoid != want {
			t.Errorf("%+v, want %+v", c.avoid, want)
		}
		time.Sleep(avoidFor + forgetAfter - 1)
		c.unreachable("n1:7400", 7, c.clock.Now())
		if want := (avoided{"n1:7400", 7, now - time.Second, c.clock.Now() + avoidFor}); c.avoid != want {
			t.Errorf("%+v, want %+v, from the first attempt on", c.avoid, want)
		}
		time.Sleep(avoidFor + forgetAfter)
		c.unreachable("n1:7400", 7, c.clock.Now())
		if c.avoid.since != c.clock.Now() {
			t.Errorf("%+v is one with an attempt long ago", c.avoid)
		}
		c.unreachable("n3:7400", 8, c.clock.Now()-3)
		if c.avoid.addr != "n3:7400" || c.avoid.since != c.clock.Now()-3 {
			t.Errorf("%+v, want n3", c.avoid)
		}
	})
}

// TestLeaderReport checks that a node that names itself is recorded with the address at which it was asked.
func TestLeaderReport(t *testing.T) {
	h := reportBy("n2.example:7400", "n2", hintOf("n2", 5))
	if !h.leads() || h.leader.GetClientAddr() != "n2.example:7400" || h.leader.GetTerm() != 5 {
		t.Errorf("%+v", h)
	}
	if h := reportBy("n2.example:7400", "n2", hintOf("n1", 5)); h.leads() || h.leader.GetClientAddr() != "n1:7400" {
		t.Errorf("%+v", h)
	}
	if h := reportBy("x:1", "", &wire.LeaderHint{}); h.leads() {
		t.Error("a node without a name leads nobody")
	}
}

// TestPing checks that a connection that only waits for pushes is tested from time to time, with a read
// that any node answers.
func TestPing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, cn := still(t)
		if c.quiet(cn) {
			t.Error("nothing is expected of a node that does not lead")
		}
		cn.leads = true
		if c.quiet(cn) {
			t.Error("nothing is expected")
		}
		c.watching[3] = &Watcher{}
		if !c.quiet(cn) {
			t.Error("a watch is expected to say something")
		}
		c.watching = map[uint64]*Watcher{}
		lease := &call{kind: kindLease}
		c.flight.push(lease)
		if !c.quiet(cn) || c.oldest() != nil {
			t.Error("a lease is expected to be granted one day")
		}
		for kind, counts := range map[kind]bool{kindAdmin: false, kindLease: false, kindRead: true, kindOperate: true, kindHeartbeat: true} {
			k := &call{kind: kind}
			c.flight.push(k)
			if (c.oldest() == k) != counts || c.quiet(cn) == counts {
				t.Errorf("kind %d: the oldest is %v", kind, c.oldest())
			}
			c.flight.remove(k)
		}
		cn.receivedAt, cn.spoke = 10*time.Second, 10*time.Second
		if got := cn.pingAt(); got != 10*time.Second+pingAfter {
			t.Errorf("ping at %v", got)
		}
		if cn.receivedAt = time.Hour; cn.pingAt() != 10*time.Second+speakAfter {
			t.Errorf("ping at %v of a node that has long not heard of us", cn.pingAt())
		}
		c.flight.remove(lease)
		c.ping(c.conn)
		if get := c.flight.head.request.GetGetLock(); get == nil || !get.GetStale() || get.GetQueueLimit() != 1 {
			t.Errorf("ping is %v", &c.flight.head.request)
		}
	})
}
