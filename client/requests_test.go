package client

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestCallList checks that lists of calls keep all calls in order, in both slots.
func TestCallList(t *testing.T) {
	for slot := range 2 {
		random := rand.New(rand.NewPCG(11, uint64(slot)))
		l := &callList{slot: slot}
		var want []*call
		for step := range 20_000 {
			switch n := len(want); {
			case n == 0 || random.IntN(3) == 0 && n < 8:
				k := &call{}
				k.request.Seq = uint64(step + 1)
				want = append(want, k)
				l.push(k)
			case random.IntN(3) == 0:
				if l.pop() != want[0] {
					t.Fatalf("step %d: not the first", step)
				}
				want = want[1:]
			default:
				i := random.IntN(n)
				k := want[i]
				l.remove(k)
				if slot == lane && k.list != nil || slot == sessionList && k.sessionList != nil || k.links != [2]link{} {
					t.Fatalf("step %d: a call that was taken out is in", step)
				}
				want = slices.Delete(want, i, i+1)
				if random.IntN(2) == 0 { // and is added again
					l.insert(k)
					at, _ := slices.BinarySearchFunc(want, k, func(a, b *call) int { return int(a.request.Seq) - int(b.request.Seq) })
					want = slices.Insert(want, at, k)
				}
			}
			b := &listCheck{}
			if got := b.list("the list", l); !slices.Equal(got, want) || len(b.wrong) > 0 {
				t.Fatalf("step %d: %d calls, want %d: %v", step, len(got), len(want), b.wrong)
			}
		}
	}
	if (&callList{}).pop() != nil {
		t.Error("something comes out of nothing")
	}
}

// TestLanes checks where calls of each kind wait to be sent.
func TestLanes(t *testing.T) {
	ready := []kind{kindRead, kindAdmin, kindOperate, kindRepeat, kindOpen, kindAcquire, kindUpgrade, kindLease, kindWatch}
	ofConnection := []kind{kindAttach, kindHeartbeat, kindAcknowledge, kindEnd, kindPing}
	bubble.Test(t, func(t *testing.T) {
		c, cn := still(t)
		attached, apart := newSession(c), newSession(c)
		attached.conn = cn
		for k := kindRead; k <= kindPing; k++ {
			want := &c.urgent
			if slices.Contains(ready, k) {
				want = &c.ready
			}
			if got := c.laneOf(&call{kind: k}); got != want {
				t.Errorf("kind %d of the client waits elsewhere", k)
			}
			if got := c.laneOf(&call{kind: k, session: attached}); got != want {
				t.Errorf("kind %d of a session that is attached waits elsewhere", k)
			}
			if got := c.laneOf(&call{kind: k, session: apart}); (got == &apart.parked) == (k == kindAttach) {
				t.Errorf("kind %d of a session that is not attached waits elsewhere", k)
			}
			if got := c.laneOf(&call{kind: k, stale: true}); got != &c.anywhere {
				t.Errorf("kind %d for any node waits elsewhere", k)
			}
			if got := k.policy().ofConnection; got != slices.Contains(ofConnection, k) {
				t.Errorf("kind %d is of its connection: %v", k, got)
			}
		}
		c.conn = nil
		if c.laneOf(&call{kind: kindAcquire, session: apart}) != &apart.parked {
			t.Error("without a connection nothing is parked")
		}
	})
}

// TestAgain checks what happens to a call that a node could not serve.
func TestAgain(t *testing.T) {
	tests := map[string]struct {
		call           *call
		sentAgain, own bool // resent after a while; finished by itself
	}{
		"an acquire":                  {&call{kind: kindAcquire, sends: 1}, true, false},
		"a read":                      {&call{kind: kindRead, sends: 1, answers: 1}, true, false},
		"one that is over":            {&call{kind: kindRead, sends: 1, finished: true}, false, true},
		"abandoned, refused":          {&call{kind: kindAcquire, sends: 2, answers: 2, abandoned: true}, false, true},
		"abandoned, perhaps executed": {&call{kind: kindAcquire, sends: 2, answers: 1, abandoned: true}, true, false},
		"the end of a watch":          {&call{kind: kindEnd, sends: 1}, false, true},
		"a ping":                      {&call{kind: kindPing, sends: 1}, false, true},
		"a heartbeat":                 {&call{kind: kindHeartbeat, sends: 1}, false, true},
	}
	for name, test := range tests {
		bubble.Test(t, func(t *testing.T) {
			c, _ := still(t)
			k := test.call
			if k.kind == kindHeartbeat || k.kind == kindAcquire {
				k.session = newSession(c)
				k.session.ttl, k.session.heartbeat = ttl, k
			}
			c.mu.Lock()
			defer c.unlock()
			c.again(k)
			if (k.list == &c.stalled) != test.sentAgain || k.finished != test.own || (c.retryAt != 0) != test.sentAgain {
				t.Errorf("%s: in line %v, over %v, retry at %v", name, k.list == &c.stalled, k.finished, c.retryAt)
			}
			if k.kind == kindHeartbeat && (k.session.heartbeat != nil || k.session.heartbeatAt == 0 || c.retries != 1) {
				t.Errorf("%s: the next one at %v, %d retries", name, k.session.heartbeatAt, c.retries)
			}
			if !test.sentAgain {
				return
			}
			if wait := c.retryAt - c.clock.Now(); wait <= 0 || wait > retryFirst+time.Millisecond || c.retries != 1 || c.alarmAt != c.retryAt {
				t.Errorf("%s: again in %v, %d retries", name, wait, c.retries)
			}
			at := c.retryAt
			c.again(&call{kind: kindRead})
			if c.retryAt != at || c.retries != 1 {
				t.Errorf("%s: a second one delays the first", name)
			}
			c.retryStalled(at - 1)
			if c.stalled.n != 2 {
				t.Errorf("%s: again before its time", name)
			}
			c.retryStalled(at)
			if c.stalled.n != 0 || c.retryAt != 0 || k.list == nil {
				t.Errorf("%s: %d are left", name, c.stalled.n)
			}
		})
	}
}

// TestStalledCallThatEnds checks that the retry is cancelled when no stalled call is left, so that the next one waits for
// its own backoff.
func TestStalledCallThatEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, _ := still(t)
		c.mu.Lock()
		defer c.unlock()
		first, second := &call{kind: kindRead}, &call{kind: kindRead}
		c.again(first)
		c.again(second)
		if c.finish(first); c.retryAt == 0 {
			t.Error("the retry is cancelled although a call is stalled")
		}
		if c.finish(second); c.retryAt != 0 {
			t.Errorf("a retry at %v, and no stalled call", c.retryAt)
		}
	})
}

// TestCutOff checks what happens to calls of each kind when their connection ends.
func TestCutOff(t *testing.T) {
	over := []kind{kindAttach, kindHeartbeat, kindAcknowledge, kindEnd, kindPing}
	bubble.Test(t, func(t *testing.T) {
		c, cn := still(t)
		c.lastErr = errors.New("cut")
		for k := kindRead; k <= kindPing; k++ {
			for _, abandoned := range []bool{false, true} {
				one := &call{kind: k, sends: 1, abandoned: abandoned}
				c.cutOff(cn, one)
				uncertain := k == kindAdmin || k == kindOperate
				finished := slices.Contains(over, k) || uncertain || k == kindOpen && abandoned
				if one.finished != finished || (one.list == nil) != finished || errors.Is(one.err, ErrUncertain) != uncertain {
					t.Errorf("kind %d, abandoned %v: over %v, %v", k, abandoned, one.finished, one.err)
				}
				if one.list != nil {
					one.list.remove(one)
				}
			}
		}
		done := &call{kind: kindRead, finished: true}
		if c.cutOff(cn, done); done.list != nil {
			t.Error("what is over is sent again")
		}
		// The same in the lists in which they wait.
		lane := &callList{}
		ping, read := &call{kind: kindPing}, &call{kind: kindRead}
		lane.push(ping)
		lane.push(read)
		c.lineUp(lane)
		if !ping.finished || read.finished || read.list != &c.ready {
			t.Error("a ping is of its connection, a read is not")
		}
	})
}

// TestTransferred checks that a transfer of leadership counts as successful if a later leader is known and
// is the requested one.
func TestTransferred(t *testing.T) {
	for name, test := range map[string]struct {
		to     string
		leader *wire.LeaderHint
		want   bool
	}{
		"to anybody":           {"", hintOf("n3", 6), true},
		"to that one":          {"n3", hintOf("n3", 6), true},
		"to another one":       {"n1", hintOf("n3", 6), false},
		"of the same term":     {"", hintOf("n3", 5), false},
		"of an earlier term":   {"", hintOf("n3", 4), false},
		"the same leads again": {"", hintOf("n2", 6), false},
		"the same was asked":   {"n2", hintOf("n2", 6), false},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, cn := still(t)
			leading(c, cn)
			c.leader, c.lastErr = test.leader, errors.New("cut")
			k := &call{kind: kindAdmin}
			k.request.Body = &wire.Request_TransferLeadership{TransferLeadership: &wire.TransferLeadershipRequest{Id: test.to}}
			if got := c.transferred(cn, k); got != test.want {
				t.Errorf("%s: %v", name, got)
			}
			c.cutOff(cn, k)
			if (k.err == nil) != test.want || k.response.GetLeader().GetId() != test.leader.GetId() && test.want {
				t.Errorf("%s: %v, %v", name, k.response, k.err)
			}
			if c.transferred(cn, &call{kind: kindAdmin}) {
				t.Errorf("%s: any call is a transfer", name)
			}
		})
	}
}

// TestAbandon checks which error a caller gets when it leaves, depending on the state of its request.
func TestAbandon(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, cn := still(t)
		for k := kindRead; k <= kindReleaseLease; k++ {
			unsent := &call{kind: k}
			if err := c.abandon(unsent); k.policy().gives {
				if !errors.Is(err, ErrUncertain) || unsent.finished {
					t.Errorf("kind %d gives something back, never sent: %v", k, err)
				}
			} else if !errors.Is(err, ErrUnavailable) || !unsent.finished {
				t.Errorf("kind %d, never sent: %v", k, err)
			}
			sent := &call{kind: k, sends: 1}
			err := c.abandon(sent)
			ends := slices.Contains([]kind{kindRead, kindAdmin, kindOperate, kindRepeat, kindLease, kindExtendLease}, k)
			if errors.Is(err, ErrUncertain) != (k != kindRead) || sent.finished != ends {
				t.Errorf("kind %d, sent: over %v, %v", k, sent.finished, err)
			}
		}
		known := func(want string) {
			t.Helper()
			err := c.unreached()
			if (err == nil) != (want == "") || err != nil && err.(*StatusError).Message != want {
				t.Errorf("%v, want %q", err, want)
			}
		}
		known("the cluster has no leader")
		cn.leads = true
		known("")
		c.conn = nil
		known("no node reached yet")
		c.lastErr = errors.New("refused")
		known("refused")
	})
}
