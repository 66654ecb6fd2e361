package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestBoundGrant checks that a grant keeps its bound if its time is certain or its caller has left.
// Otherwise its time is restarted, and the caller waits for that if little time is certain.
func TestBoundGrant(t *testing.T) {
	const ms = 10_000
	for name, test := range map[string]struct {
		since             time.Duration // before now
		queued, abandoned bool
		extended, waits   bool
	}{
		"at once":                {0, false, false, false, false},
		"it had waited":          {0, true, false, true, false},
		"long ago":               {6 * time.Second, true, false, true, true},
		"long ago, nobody waits": {6 * time.Second, true, true, false, false},
		"at once, and over":      {ms * time.Millisecond, false, false, true, true},
		"half of it":             {4900 * time.Millisecond, true, false, true, false},
		"less than half":         {4900*time.Millisecond + 1, true, false, true, true},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			time.Sleep(time.Minute)
			s.proved(c.clock.Now())
			k := s.asked("x")
			k.queued, k.abandoned = test.queued, test.abandoned
			k.acquired.acquire.MaxHoldMs = ms
			h := newHold(s, "x", 9, 9, 9)
			since := c.clock.Now() - test.since
			waits := h.boundGrant(k, grants(k, 9), since)
			if waits != test.waits || k.confirming != test.waits || (len(h.held.rare.extends) == 1) != test.extended {
				t.Errorf("%s: its caller waits: %v, extended %v", name, waits, len(h.held.rare.extends) == 1)
			}
			if h.held.rare.maxHold != ms || h.held.rare.bounded == test.waits || !test.waits && h.held.rare.until != untilOf(since, ms) {
				t.Errorf("%s: %+v", name, h.held.rare)
			}
		})
	}
}

// TestArmAt checks that the alarm is set for the earliest event, and not at all once the client is closed.
func TestArmAt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, _ := still(t)
		c.armAt(10 * time.Second)
		c.armAt(11 * time.Second)
		if c.alarmAt != 10*time.Second {
			t.Errorf("the alarm is at %v, want the earlier one", c.alarmAt)
		}
		if c.armAt(9 * time.Second); c.alarmAt != 9*time.Second {
			t.Errorf("the alarm is at %v, want the earlier one", c.alarmAt)
		}
		c.halted = true
		if c.armAt(8 * time.Second); c.alarmAt != 9*time.Second {
			t.Error("a closed client sets its alarm")
		}
	})
}

// TestLastHandleOfACountedHold checks that releasing one of several handles keeps the others. Only a hold
// without a caller is released as often as it counts.
func TestLastHandleOfACountedHold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := opened(t)
		h := newHold(s, "x", 9, 9, 9)
		h.startRelease()
		k := &h.release.call
		c.flight.remove(k)
		c.byID.remove(k)
		h.releaseAnswered(k, &wire.Result{Status: wire.Status_OK, Count: 1}) // its grant is about to arrive
		if h.held.first != nil || s.holds.find(9) == nil {
			t.Error("what another acquire holds is given back")
		}
	})
}

// TestAnswersThatCannotBe checks that impossible answers end the connection.
func TestAnswersThatCannotBe(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := opened(t)
		if c.onResponse(c.conn, respond(status(wire.Status_OK))) == nil {
			t.Error("an answer to no request is believed")
		}
		s.sendHeartbeat()
		resp := respond(&wire.Result{})
		resp.Id = s.heartbeat.request.Id
		if c.onResponse(c.conn, resp) == nil || c.flight.n != 1 {
			t.Error("an answer without a status is believed")
		}
		c.retries = 7
		resp = respond(status(wire.Status_OK))
		resp.Id = s.heartbeat.request.Id
		if err := c.onResponse(c.conn, resp); err != nil || c.retries != 0 || !c.conn.useful || c.flight.n != 0 {
			t.Errorf("%v, %d retries in a row", err, c.retries)
		}
	})
}

// TestNotAttached checks what happens to a request whose session is not attached to its connection.
func TestNotAttached(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := opened(t)
		cn := c.conn
		k := s.asked("x")
		c.notAttached(cn, k)
		if s.attaching == nil || s.conn != nil || k.list != &s.parked {
			t.Error("the session is not attached before the request is sent again")
		}
		attach := s.attaching
		other := s.asked("y")
		if c.notAttached(cn, other); s.attaching != attach || other.list != &s.parked {
			t.Error("it is attached twice")
		}
		c.flight.remove(attach)
		c.byID.remove(attach)
		if c.notAttached(cn, attach); attach.list != &c.stalled || s.attaching != attach {
			t.Error("an attach that is refused so is not repeated after a while")
		}
		own := &call{kind: kindRead}
		if c.notAttached(cn, own); own.list != &c.stalled {
			t.Error("a request without a session is not repeated")
		}
		s.heartbeat = &call{kind: kindHeartbeat, session: s}
		sendHeartbeat := s.heartbeat
		if c.notAttached(cn, sendHeartbeat); s.heartbeat != nil || !sendHeartbeat.finished {
			t.Error("a heartbeat waits for the attach, which is one itself")
		}
	})
}

// TestPushesAfterTheDeadline checks that pushes are ignored for a session whose deadline has passed by the
// current clock.
func TestPushesAfterTheDeadline(t *testing.T) {
	for name, push := range map[string]*wire.Push{
		"outcome":   {Body: &wire.Push_Outcome{Outcome: &wire.Result{Seq: 1, Status: wire.Status_GRANTED, HoldId: 9}}},
		"hold lost": {Body: &wire.Push_HoldLost{HoldLost: &wire.HoldLost{HoldId: 9}}},
		"notice":    {Body: &wire.Push_HoldNotice{HoldNotice: &wire.HoldNotice{HoldId: 9, Wanted: true}}},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			h := newHold(s, "x", 9, 9, 9)
			push.SessionId = s.id
			time.Sleep(ttl)
			if err := c.onPush(c.conn, push); err != nil {
				t.Error(err)
			}
			if s.state != Lost || !errors.Is(h.ended, ErrExpired) {
				t.Errorf("%s: the session is %v, its hold ended with %v", name, s.state, h.ended)
			}
		})
	}
}

// TestUpgradeOver checks that the requests waiting for an upgrade continue when it ends, except finished
// ones.
func TestUpgradeOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := opened(t)
		h := newHold(s, "x", 9, 9, 9)
		up := upgrading(h)
		over, waits := aboutHolds["value"](h), aboutHolds["downgrade"](h)
		c.answer(over, wire.Status_NOT_HELD)
		c.answer(waits, wire.Status_NOT_HELD)
		c.finish(over)
		c.answer(up, wire.Status_GRANTED)
		if over.list != nil || over.sends != 1 {
			t.Error("what is over is sent again")
		}
		if waits.list != &c.flight || tokenOf(waits) != 77 {
			t.Error("what waited is not sent again")
		}
	})
}

// TestTunnelIsTriedDirectlyLater checks that the leader of a new tunnel is tried directly after a while.
func TestTunnelIsTriedDirectlyLater(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t, 2)
		f.node("n2").tunnels = true
		c := newClient(f.config())
		defer c.cancel()
		cn, err := c.search.dialThrough(context.Background(), "n2:7400", hintOf("n1", 1))
		ok(t, err)
		defer cn.discard()
		if wait := cn.retry - c.clock.Now(); cn.direct != "n1:7400" || wait < directEvery/2 || wait > directEvery {
			t.Errorf("%q is tried in %v", cn.direct, wait)
		}
		to, err := c.search.dialThrough(context.Background(), "n1:7400", hintOf("n1", 1)) // it leads itself
		ok(t, err)
		defer to.discard()
		if to.direct != "" {
			t.Error("the leader is no tunnel to itself")
		}
	})
}

// TestNewsOfLeaders checks that a change of the leader's value is news, and so is another leader with the
// same value.
func TestNewsOfLeaders(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.readable()
		c := f.client()
		e := f.session(f.client()).Election("x")
		leaders := c.Observe(t.Context(), "x")
		leads(t, leaders, "", 0)
		first := campaign(t, e, "same")
		leads(t, leaders, "same", first.Token())
		ok(t, first.Resign(context.Background()))
		second := campaign(t, e, "same")
		for last := (Leader{}); last.Token != second.Token(); {
			last = <-leaders
		}
		ok(t, c.Close())
	})
}

// TestExtensionThatIsOvertaken checks that an extension that is refused after a later one has succeeded
// changes nothing.
func TestExtensionThatIsOvertaken(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		l := mustLease(t, c, "x", time.Minute)
		var late func()
		f.set(func() {
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				if req.GetExtendLease() == nil || late != nil {
					return false
				}
				late = func() { cn.answer(req, respond(status(wire.Status_FAILED_PRECONDITION))) }
				return true
			}
		})
		first := make(chan error, 1)
		go func() { first <- l.Extend(ctx, 10*time.Second) }()
		time.Sleep(time.Second)
		if left := l.Remaining(); left > 9*time.Second {
			t.Errorf("%v remain while nobody knows", left)
		}
		ok(t, l.Extend(ctx, time.Hour/6))
		f.set(func() { late() })
		wantErr(t, <-first, ErrFailedPrecondition)
		if left := l.Remaining(); left < 9*time.Minute || len(l.pending) != 0 {
			t.Errorf("%v remain, %d are pending", left, len(l.pending))
		}
	})
}
