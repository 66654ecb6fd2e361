package client

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
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
	cn := newConn("n2:7400", near, &wire.HelloReply{NodeId: "n2", ClusterId: "c", Leader: hintOf("n1", 5)}, nil)
	t.Cleanup(cn.discard)
	c.conn, c.leader, c.cluster = cn, hintOf("n1", 5), "c"
	c.sessions[7] = newSession(c)
	return c, cn
}

func hintOf(id string, term uint64) *wire.LeaderHint {
	return &wire.LeaderHint{Id: id, ClientAddr: id + ":7400", Term: term}
}

// TestWhichLeaderNeedsAnotherWay checks for which leader a tunnel is needed, and which node is asked for
// it.
func TestWhichLeaderNeedsAnotherWay(t *testing.T) {
	failed := avoided{addr: "n1:7400", term: 5}
	tests := map[string]struct {
		change  func(c *Client, cn *conn)
		to, via string // empty if no tunnel is needed
	}{
		"it was never tried":     {change: func(c *Client, _ *conn) { c.avoid = avoided{} }},
		"it could not be tried":  {to: "n1", via: "n2:7400"},
		"an earlier one failed":  {change: func(c *Client, _ *conn) { c.avoid.term = 4 }},
		"another one failed":     {change: func(c *Client, _ *conn) { c.avoid.addr = "n3:7400" }},
		"after a tunnel":         {change: func(c *Client, _ *conn) { c.avoid, c.reroute.used = avoided{}, true }, to: "n1", via: "n2:7400"},
		"it has no name":         {change: func(c *Client, _ *conn) { c.leader.Id = "" }},
		"it has no address":      {change: func(c *Client, _ *conn) { c.leader.ClientAddr, c.avoid.addr = "", "" }},
		"it is this node":        {change: func(c *Client, cn *conn) { cn.node = "n1" }},
		"nothing is to be asked": {change: func(c *Client, _ *conn) { clear(c.sessions) }},
		"a helper, first try":    {change: helped("n3", "n1", 0, 0), to: "n1", via: "n2:7400"},
		"a helper, second try":   {change: helped("n3", "n1", 0, 1), to: "n1", via: "n3:7400"},
		"a helper, third try":    {change: helped("n3", "n1", 0, 2), to: "n1", via: "n2:7400"},
		"an old helper":          {change: helped("n3", "n1", helperFor, 1), to: "n1", via: "n2:7400"},
		"a helper of another":    {change: helped("n3", "n4", 0, 1), to: "n1", via: "n2:7400"},
		"the leader is silent":   {change: func(_ *Client, cn *conn) { cn.leads, cn.node, cn.term = true, "n1", 6 }, to: "n1"},
	}
	for name, test := range tests {
		bubble.Test(t, func(t *testing.T) {
			c, cn := still(t)
			time.Sleep(time.Minute)
			c.avoid = failed
			if test.change != nil {
				test.change(c, cn)
			}
			to, via := c.around(cn)
			if to.GetId() != test.to || test.to != "" && via != test.via {
				t.Errorf("%s: to %q through %q, want %q through %q", name, to.GetId(), via, test.to, test.via)
			}
			if cn.leads && to.GetTerm() != cn.term {
				t.Errorf("%s: term %d, want the connection's", name, to.GetTerm())
			}
		})
	}
}

// helped records that a node reported, some time ago, that it follows a leader.
func helped(node, leader string, ago time.Duration, tries int) func(*Client, *conn) {
	return func(c *Client, _ *conn) {
		c.helper = helper{node + ":7400", hintOf(leader, 5), c.clock.Now() - ago}
		c.reroute.tries = tries
	}
}

// TestNodesThatMayKnowTheLeader checks that a node is remembered as helper if it may be able to reach the leader and
// is not the leader itself.
func TestNodesThatMayKnowTheLeader(t *testing.T) {
	for name, test := range map[string]struct {
		said leaderReport
		kept bool
	}{
		"a follower":  {leaderReport{"n3:7400", "n3", hintOf("n1", 5)}, true},
		"the leader":  {leaderReport{"n1:7400", "n1", hintOf("n1", 5)}, false},
		"no address":  {leaderReport{"", "n3", hintOf("n1", 5)}, false},
		"an unnamed":  {leaderReport{"n3:7400", "", hintOf("", 5)}, true},
		"no leader":   {leaderReport{"n3:7400", "n3", &wire.LeaderHint{}}, true},
		"itself, too": {leaderReport{"n3:7400", "n3", hintOf("n3", 5)}, false},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, cn := still(t)
			c.noteTunnelNode(cn, test.said)
			if (c.helper.leader != nil) != test.kept || test.kept && c.helper.at != c.clock.Now() {
				t.Errorf("%s: kept %+v", name, c.helper)
			}
		})
	}
}

// TestWhenATunnelIsRequested checks when the client looks for another path to the leader.
func TestWhenATunnelIsRequested(t *testing.T) {
	const at = time.Minute
	asked := func(c *Client, ago time.Duration) {
		k := &call{kind: kindRead, sentAt: at - ago}
		c.flight.push(k)
	}
	tests := map[string]struct {
		change func(c *Client, cn *conn)
		around time.Duration
		direct time.Duration
	}{
		"it failed":          {nil, at + rerouteAfter, never},
		"not so soon again":  {func(c *Client, _ *conn) { c.reroute.after = at + time.Second }, at + time.Second, never},
		"after a tunnel":     {func(c *Client, _ *conn) { c.reroute.used, c.reroute.after = true, at-time.Second }, at - time.Second, never},
		"it did not fail":    {func(c *Client, _ *conn) { c.avoid = avoided{} }, never, never},
		"one is under way":   {func(c *Client, _ *conn) { c.reroute.to = hintOf("n1", 5) }, never, never},
		"it leads":           {func(_ *Client, cn *conn) { cn.leads = true }, never, never},
		"it leads, silently": {func(c *Client, cn *conn) { cn.leads = true; asked(c, time.Second) }, at - time.Second + silenceMax/4, never},
		"silent, not again": {func(c *Client, cn *conn) { cn.leads = true; asked(c, time.Second); c.reroute.after = at + time.Hour },
			at + time.Hour, never},
		"short sessions": {func(c *Client, cn *conn) { cn.leads = true; asked(c, 0); c.silence = time.Millisecond }, at + answerTimeout, never},
		"a tunnel":       {func(_ *Client, cn *conn) { cn.leads, cn.direct, cn.retry = true, "n1:7400", at+time.Hour }, never, at + time.Hour},
		"tried already": {func(c *Client, cn *conn) { cn.leads, cn.direct, cn.retry, c.reroute.direct = true, "n1:7400", at, true },
			never, never},
	}
	for name, test := range tests {
		bubble.Test(t, func(t *testing.T) {
			c, cn := still(t)
			c.avoid = avoided{addr: "n1:7400", term: 5, since: at}
			if test.change != nil {
				test.change(c, cn)
			}
			if got := c.aroundAt(cn); got != test.around {
				t.Errorf("%s: around at %v, want %v", name, got, test.around)
			}
			if got := c.directAt(cn); got != test.direct {
				t.Errorf("%s: directly at %v, want %v", name, got, test.direct)
			}
			if got := c.rerouteAt(cn); got != min(test.around, test.direct) {
				t.Errorf("%s: at %v, want the earlier one", name, got)
			}
			c.armAround(cn)
			if want := c.rerouteAt(cn); (c.alarmAt != 0) != (want != never) || c.alarmAt != 0 && c.alarmAt != want {
				t.Errorf("%s: the alarm is at %v, want %v", name, c.alarmAt, want)
			}
		})
	}
}

// TestWaysThatComeToNothing checks that failed attempts are repeated with a backoff, and that after some of
// them a client that had a tunnel looks for leaders like any other client.
func TestWaysThatComeToNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, cn := still(t)
		dials := 0
		c.cfg.Dial = func(context.Context, string) (net.Conn, error) { dials++; return nil, errors.New("unreachable") }
		c.avoid, c.reroute.used = avoided{addr: "n1:7400", term: 5}, true
		for try := range 6 {
			time.Sleep(rerouteMost + rerouteFirst)
			c.mu.Lock()
			now := c.clock.Now()
			c.requestTunnel(cn, now)
			under := c.reroute.to
			c.requestTunnel(cn, now) // does not start a second attempt
			c.unlock()
			c.wg.Wait()
			c.mu.Lock()
			if under.GetId() != "n1" || c.reroute.to != nil || c.reroute.tries != try+1 || c.reroute.used != (try+1 < rerouteTries) {
				t.Errorf("try %d: %+v, to %v", try, c.reroute, under)
			}
			if wait := c.reroute.after - c.clock.Now(); wait < rerouteFirst || wait > rerouteFirst+min(rerouteMost, rerouteFirst<<(try+1))+time.Millisecond {
				t.Errorf("try %d: the next one in %v", try, wait)
			}
			c.requestTunnel(cn, c.reroute.after-1) // too early
			if c.reroute.to != nil {
				t.Errorf("try %d: again before its time", try)
			}
			c.unlock()
		}
		if dials < 6 {
			t.Errorf("%d connections were tried", dials)
		}
	})
}

// TestLeaderIsTriedBesideItsTunnel checks that the leader is tried directly while a tunnel is in use, one
// attempt at a time.
func TestLeaderIsTriedBesideItsTunnel(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, cn := still(t)
		c.cfg.Dial = func(_ context.Context, addr string) (net.Conn, error) {
			if addr != "n1:7400" {
				t.Errorf("%s was dialled", addr)
			}
			return nil, errors.New("unreachable")
		}
		c.mu.Lock()
		now := c.clock.Now()
		cn.leads, cn.direct, cn.retry = true, "n1:7400", now
		c.requestTunnel(cn, now)
		if !c.reroute.direct || cn.retry < now+directEvery/2 || cn.retry > now+directEvery {
			t.Errorf("the next one at %v, %+v", cn.retry-now, c.reroute)
		}
		c.unlock()
		c.wg.Wait()
		if c.reroute.direct || c.made != nil || cn.err != nil {
			t.Errorf("%+v after it failed", c.reroute)
		}
	})
}

// TestWhichConnectionIsReplaced checks that a connection made beside the current one replaces it only if it
// is still useful.
func TestWhichConnectionIsReplaced(t *testing.T) {
	tests := map[string]struct {
		change   func(c *Client, cn, made *conn)
		replaced bool
	}{
		"a tunnel":                 {nil, true},
		"a later leader's":         {func(_ *Client, _, made *conn) { made.term = 6 }, true},
		"an earlier leader's":      {func(_ *Client, _, made *conn) { made.term = 4 }, false},
		"not a leader's":           {func(_ *Client, _, made *conn) { made.leads = false }, false},
		"the client is closed":     {func(c *Client, _, _ *conn) { c.halted = true }, false},
		"another one is used":      {func(c *Client, _, _ *conn) { c.conn = nil }, false},
		"that one is over":         {func(_ *Client, cn, _ *conn) { cn.err = errors.New("over") }, false},
		"direct, for a tunnel":     {direct(nil), true},
		"direct, with a read":      {direct(&call{kind: kindRead}), true},
		"direct, administration":   {direct(&call{kind: kindAdmin}), false},
		"direct, an operator":      {direct(&call{kind: kindOperate}), false},
		"a tunnel, administration": {func(c *Client, _, _ *conn) { c.flight.push(&call{kind: kindAdmin}) }, true},
	}
	for name, test := range tests {
		bubble.Test(t, func(t *testing.T) {
			c, cn := still(t)
			near, far := net.Pipe()
			defer far.Close()
			made := newConn("n3:7400", near, &wire.HelloReply{NodeId: "n1", Leader: hintOf("n1", 5)}, nil)
			defer made.discard()
			made.direct, c.reroute.tries = "n1:7400", 2
			if test.change != nil {
				test.change(c, cn, made)
			}
			before := cn.err
			c.replace(cn, made, nil)
			if replaced := c.made == made && cn.err != before; replaced != test.replaced || replaced != (c.made != nil) {
				t.Errorf("%s: replaced is %v, %v", name, replaced, cn.err)
			}
			if test.replaced != (c.reroute.tries == 0) {
				t.Errorf("%s: %d tries", name, c.reroute.tries)
			}
			_ = far.SetWriteDeadline(time.Now().Add(time.Second))
			_, err := far.Write([]byte("x"))
			if open := errors.Is(err, os.ErrDeadlineExceeded); open != test.replaced {
				t.Errorf("%s: it is open: %v, %v", name, open, err)
			}
			if cn.direct != "" && !test.replaced && cn.retry != c.clock.Now()+time.Second {
				t.Errorf("%s: tried again at %v", name, cn.retry)
			}
		})
	}
	bubble.Test(t, func(t *testing.T) {
		c, cn := still(t)
		c.replace(cn, nil, errors.New("unreachable"))
		if c.made != nil || cn.err != nil {
			t.Error("nothing was made, and the connection ends")
		}
	})
}

// direct is a connection to the leader itself, made beside a tunnel with a call in flight.
func direct(k *call) func(*Client, *conn, *conn) {
	return func(c *Client, cn, made *conn) {
		cn.direct, made.direct, cn.leads = "n1:7400", "", true
		if k != nil {
			c.flight.push(&call{kind: kindHeartbeat})
			c.flight.push(k)
		}
	}
}

// TestNodeAskedForATunnel checks that only a node that follows the leader of the current term is asked for
// a tunnel.
func TestNodeAskedForATunnel(t *testing.T) {
	tests := map[string]struct {
		n2, n3 *wire.LeaderHint
		want   []string
	}{
		"both":            {hintOf("n1", 5), hintOf("n1", 5), []string{"n2:7400", "n3:7400"}},
		"of a later term": {hintOf("n1", 6), hintOf("n1", 4), []string{"n2:7400"}},
		"one is behind":   {hintOf("n1", 4), hintOf("n1", 5), []string{"n3:7400"}},
		"one leads":       {hintOf("n2", 6), hintOf("n1", 5), []string{"", "n3:7400"}},
		"nobody":          {hintOf("n3", 4), hintOf("n2", 4), []string{""}},
	}
	for name, test := range tests {
		bubble.Test(t, func(t *testing.T) {
			f := newFake(t, 3)
			f.node("n2").believes, f.node("n3").believes = test.n2, test.n3
			c := newClient(f.config())
			defer c.cancel()
			via := c.findHelper(c.ctx, hintOf("n1", 5))
			if f.node("n1").dials != 0 {
				t.Errorf("%s: the leader is asked for a way to itself", name)
			}
			c.wg.Wait()
			c.cfg.Endpoints = []string{"n1:7400"} // not the address at which the leader is known
			f.node("n1").believes = hintOf("n1", 5)
			if itself := c.findHelper(c.ctx, &wire.LeaderHint{Id: "n1", ClientAddr: "10.0.0.1:7400", Term: 5}); itself != "" {
				t.Errorf("%s: the leader is asked for a way to itself at %s", name, itself)
			}
			c.wg.Wait()
			if !slices.Contains(test.want, via) {
				t.Errorf("%s: %q, want one of %q", name, via, test.want)
			}
		})
	}
}

// TestRaceToTheLeader checks that the first connection that leads wins the race, and that no other one is
// left open.
func TestRaceToTheLeader(t *testing.T) {
	tests := map[string]struct {
		change func(f *fake)
		tunnel bool
		fails  bool
	}{
		"within reach":         {change: func(*fake) {}},
		"refused":              {change: func(f *fake) { f.node("n1").down = true }, tunnel: true},
		"silent":               {change: func(f *fake) { f.node("n1").hung = true }, tunnel: true},
		"it does not lead":     {change: func(f *fake) { f.node("n1").believes = hintOf("n3", 4) }, fails: true},
		"no tunnels":           {change: func(f *fake) { f.node("n1").down, f.node("n2").tunnels = true, false }, fails: true},
		"nobody can be dialed": {change: func(f *fake) { f.node("n1").down, f.node("n2").down = true, true }, fails: true},
	}
	for name, test := range tests {
		bubble.Test(t, func(t *testing.T) {
			f := newFake(t, 2)
			f.node("n2").tunnels = true
			test.change(f)
			c := newClient(f.config())
			defer c.cancel()
			cn, err := c.race(c.ctx, "n2:7400", hintOf("n1", 1))
			if (err != nil) != test.fails {
				t.Fatalf("%s: %v", name, err)
			}
			if err == nil {
				if !cn.leads || (cn.direct != "") != test.tunnel {
					t.Errorf("%s: it leads %v, directly %q", name, cn.leads, cn.direct)
				}
				cn.discard()
			}
			c.wg.Wait()
		})
	}
}

// TestWhatIsNotRepeated checks that administration requests are neither repeated nor interrupted for a
// better path.
func TestWhatIsNotRepeated(t *testing.T) {
	kinds := map[kind]bool{kindAdmin: true, kindOperate: true}
	for k := kindRead; k <= kindPing; k++ {
		c := &Client{}
		c.flight.push(&call{kind: k})
		if c.unrepeatable() != kinds[k] {
			t.Errorf("a request of kind %d is repeated: %v", k, !c.unrepeatable())
		}
	}
}
