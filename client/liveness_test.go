package client

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
)

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

// whenAProbeStarts are the situations in which other nodes are asked for the leader, and those in which they are not.
var whenAProbeStarts = map[string]struct {
	change func(c *Client, cn *conn)
	probes bool
	ends   bool // the connection
	pings  bool
}{
	"nobody leads":           {nil, true, false, false},
	"nothing is wanted":      {func(c *Client, _ *conn) { clear(c.sessions) }, false, false, false},
	"the leader is made":     {func(c *Client, _ *conn) { c.made = &conn{leads: true} }, false, false, false},
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
	"there is none":          {func(c *Client, _ *conn) { c.conn = nil }, true, false, false},
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
			c.checkConnection(c.clock.Now())
			if c.search.on != test.probes {
				t.Errorf("%s: it looks: %v", name, c.search.on)
			}
			if ends := cn.err != before; ends != test.ends {
				t.Errorf("%s: the connection ends: %v", name, cn.err)
			}
			if pings := c.flight.n > sent; pings != test.pings {
				t.Errorf("%s: a ping is sent: %v", name, pings)
			}
			c.made, c.halted = nil, true
			c.unlock()
			c.cancel()
			c.wg.Wait()
			c.discardMade()
		})
	}
}

// TestProbeOfABusyProcess checks that no other node is asked if goroutines that are ready handle the answer.
func TestProbeOfABusyProcess(t *testing.T) {
	for name, test := range map[string]struct {
		turns int // of the goroutine that handles the answer, in the last of which it does; 0 if there is no answer
		asks  bool
	}{
		"an answer that can be read": {1, false},
		"an answer in the kernel":    {2, false},
		"no answer":                  {0, true},
	} {
		bubble.Test(t, func(t *testing.T) {
			f := newFake(t, 3)
			c, cn := still(t)
			c.cfg.Dial = f.dial
			leading(c, cn)
			unanswered(c, answerTimeout)
			c.mu.Lock()
			now := c.clock.Now()
			c.search.ask(c.search.at("n3:7400"), now, true)
			c.unlock()
			for turn := 1; turn <= test.turns; turn++ {
				runtime.Gosched()
				if turn == test.turns {
					c.mu.Lock()
					c.flight.pop()
					c.mu.Unlock()
				}
			}
			synctest.Wait()
			if n := f.dials(); (n > 0) != test.asks {
				t.Errorf("%s: %d nodes were asked", name, n)
			}
			c.mu.Lock()
			c.halted = true
			c.unlock()
			c.cancel()
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
