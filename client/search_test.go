package client

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// stoppedClock is a clock whose timers never fire.
type stoppedClock struct{ Clock }

func (stoppedClock) AfterFunc(time.Duration, func()) Timer { return time.NewTimer(never) }

// still returns a client whose goroutine does not run, with a request to send. It is connected to a node
// that follows n1 in term 5. Its clock is at 1 s plus the time of the bubble.
func still(t *testing.T) (*Client, *conn) {
	cfg := makeFake(3).config()
	cfg.Clock = stoppedClock{cfg.Clock}
	c := newClient(cfg)
	t.Cleanup(c.cancel)
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	cn := newConn("n2:7400", &greeting{nc: near, reply: &wire.HelloReply{NodeId: "n2", ClusterId: "c", Leader: hintOf("n1", 5)}})
	t.Cleanup(cn.discard)
	c.conn, c.leader, c.cluster = cn, hintOf("n1", 5), "c"
	c.search.at(cn.addr).said, c.search.at(cn.addr).node = hintOf("n1", 5), "n2"
	c.sessions[7] = newSession(c)
	return c, cn
}

func hintOf(id string, term uint64) *wire.LeaderHint {
	return &wire.LeaderHint{Id: id, ClientAddr: id + ":7400", Term: term}
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

// say makes the client believe that a node's last answer named a leader.
func (s *search) say(node, leader string, term uint64) {
	m := s.at(node + ":7400")
	m.said, m.node = hintOf(leader, term), node
}

// thinks fails the test unless the client believes that this node leads; "" is nobody.
func (s *search) thinks(t *testing.T, when, node string) {
	t.Helper()
	got := ""
	if m, _ := s.believed(); m != nil {
		got = m.addr
	}
	if want := map[bool]string{true: node + ":7400"}[node != ""]; got != want {
		t.Errorf("%s: %q is believed to lead, want %q", when, got, want)
	}
}

// TestHintOfTheHighestTermCounts checks that a hint never overrides one of a later term, whichever came last.
func TestHintOfTheHighestTermCounts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, _ := still(t)
		s := &c.search
		c.conn = nil
		s.say("n1", "n3", 7)
		s.say("n2", "n1", 6)
		s.thinks(t, "the later one first", "n3")
		s.say("n1", "", 0)
		s.say("n3", "n2", 8)
		s.thinks(t, "the later one last", "n2")
		s.at("n1:7400").said = nil
		s.at("n2:7400").node = ""
		s.at("n2:7400").refuted = 8
		s.thinks(t, "the later one refuted", "n1")
	})
}

// TestRefutedHints checks that a hint is forgotten for its term when the node that it names does not answer or does not
// lead, however often it is repeated, and that a later term or the node's own word counts.
func TestRefutedHints(t *testing.T) {
	hint := hintOf("n1", 5)
	denies := &wire.HelloReply{NodeId: "n1", Leader: &wire.LeaderHint{}}
	for name, refute := range map[string]func(c *Client, m *member){
		"it refuses": func(c *Client, m *member) { c.search.noAnswer(m, errors.New("refused"), c.clock.Now()) },
		"it denies":  func(c *Client, m *member) { c.search.hear(&inquiry{member: m, greeting: greeting{reply: denies}}) },
		"it does not answer": func(c *Client, m *member) {
			m.cancel, m.asked = func() {}, c.clock.Now()
			time.Sleep(answerTimeout)
			c.search.on = true
			c.search.seek(c.clock.Now())
		},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, cn := still(t)
			c.cfg.Dial = func(ctx context.Context, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
			s, m := &c.search, c.search.at("n1:7400")
			s.thinks(t, name, "n1")
			refute(c, m)
			m.cancel, m.listening = nil, false
			s.thinks(t, name, "")
			c.mu.Lock()
			s.said(cn, hint)
			s.thinks(t, name+", said again", "")
			s.said(cn, hintOf("n1", 6))
			s.thinks(t, name+", of a later term", "n1")
			c.halted = true
			c.unlock()
			c.cancel()
			c.wg.Wait()
		})
	}
}

// TestLeaderHint checks the effect of a push about the leader on the connection.
func TestLeaderHint(t *testing.T) {
	for name, test := range map[string]struct {
		leads bool // the node leads before, in term 5
		hint  *wire.LeaderHint
		want  bool
	}{
		"an earlier one":     {true, hintOf("n3", 4), true},
		"another one":        {true, hintOf("n3", 6), false},
		"of the same term":   {true, hintOf("n3", 5), false},
		"it leads":           {false, hintOf("n2", 6), true},
		"it erred before":    {false, hintOf("n2", 4), true}, // its last word counts, whatever it named before
		"nobody leads":       {true, &wire.LeaderHint{Term: 6}, false},
		"it has no address":  {true, &wire.LeaderHint{Id: "n3", Term: 6}, false},
		"it leads once more": {true, hintOf("n2", 6), true},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, cn := still(t)
			c.cfg.Dial = func(ctx context.Context, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
			if test.leads {
				leading(c, cn)
				c.search.say("n2", "n2", 5)
			}
			c.mu.Lock()
			c.onLeader(cn, test.hint)
			if cn.leads != test.want || c.search.on != (!test.want && test.hint.GetTerm() >= 5) || cn.err != nil {
				t.Errorf("%s: it leads %v, looks for a leader %v, %v", name, cn.leads, c.search.on, cn.err)
			}
			c.halted = true
			c.unlock()
			c.cancel()
			c.wg.Wait()
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
			c.cfg.Dial = func(ctx context.Context, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
			leading(c, cn)
			cn.node = test.node
			c.mu.Lock()
			c.notLeader(cn, test.hint)
			if left := !cn.leads; left != test.left {
				t.Errorf("%s: left is %v", name, left)
			}
			c.halted = true
			c.unlock()
			c.cancel()
			c.wg.Wait()
		})
	}
}

// TestFewMembersAreAskedAtOnce counts the connections that a client opens when its leader dies, or is busy. Many clients do
// so at the same moment. What they ask must not keep the nodes from serving them.
func TestFewMembersAreAskedAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(f *fake)
		most    map[time.Duration]int // connections after that time
	}{
		"the leader dies": {func(f *fake) {
			f.set(func() { f.node("n1").down = true })
			f.cut("n1")
			time.AfterFunc(90*time.Millisecond, func() { f.elect("n2", 2) })
		}, map[time.Duration]int{80 * time.Millisecond: 1, time.Second: 2}},
		"nobody leads for a while": {func(f *fake) {
			f.set(func() { f.leader, f.node("n1").down = &wire.LeaderHint{}, true })
			f.cut("n1")
		}, map[time.Duration]int{180 * time.Millisecond: 1, 350 * time.Millisecond: 2, 700 * time.Millisecond: 3, time.Second: 4}},
		"nobody answers": {func(f *fake) {
			f.set(func() {
				f.node("n1").down = true
				for _, n := range f.nodes {
					n.silent = true
				}
			})
			f.cut("n1")
		}, map[time.Duration]int{180 * time.Millisecond: 1, 500 * time.Millisecond: 2, 900 * time.Millisecond: 3}},
		"the leader is busy": {func(f *fake) {
			f.set(func() { f.intercept = func(cn *fakeConn, _ *wire.Request) bool { return cn.node.id == "n1" } })
		}, map[time.Duration]int{answerTimeout - 1: 0, 430 * time.Millisecond: 1, 800 * time.Millisecond: 2}},
	} {
		for after, most := range test.most {
			virtual(t, 5, func(t *testing.T, f *fake, c *Client) {
				s := f.session(c)
				before := f.dials()
				test.happens(f)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { _, _ = s.Lock(ctx, "x") }()
				time.Sleep(after)
				if n := f.dials() - before; n > most {
					t.Errorf("%s: %d connections within %v, want at most %d", name, n, after, most)
				}
				f.set(func() {
					f.intercept, f.node("n1").down = nil, false
					for _, n := range f.nodes {
						n.silent = false
					}
				})
				f.elect("n1", 3)
			})
		}
	}
}
