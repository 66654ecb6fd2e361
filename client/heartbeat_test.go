package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestBegin checks that a new session is scheduled for its first heartbeat a third of its TTL after the
// request that opened it was sent.
func TestBegin(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := opened(t)
		at := c.clock.Now()
		if s.proofAt != at || s.heartbeatAt > at+ttl/3 || s.heartbeatAt < at+ttl/3*7/8 {
			t.Errorf("proof at %v, heartbeat at %v", s.proofAt, s.heartbeatAt)
		}
		if s.wakeAt != s.heartbeatAt || c.alarmAt != s.heartbeatAt || s.place != 0 {
			t.Errorf("woken at %v by the alarm at %v, want %v", s.wakeAt, c.alarmAt, s.heartbeatAt)
		}
	})
}

// TestSendHeartbeat checks that at most one heartbeat is in flight, and none for a session that is not attached.
func TestSendHeartbeat(t *testing.T) {
	for name, test := range map[string]struct {
		change func(c *Client, s *Session)
		want   bool
	}{
		"attached":        {func(*Client, *Session) {}, true},
		"one under way":   {func(_ *Client, s *Session) { s.heartbeat = &call{} }, false},
		"no connection":   {func(c *Client, s *Session) { c.conn, s.conn = nil, nil }, false},
		"not attached":    {func(_ *Client, s *Session) { s.conn = nil }, false},
		"on another conn": {func(_ *Client, s *Session) { s.conn = &conn{} }, false},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			test.change(c, s)
			before, sent := s.heartbeat, c.nextCall
			s.sendHeartbeat()
			if sends := s.heartbeat != before; sends != test.want || (c.nextCall > sent) != test.want {
				t.Errorf("%s: a heartbeat is sent: %v", name, sends)
			}
			if test.want && (s.heartbeat.request.GetHeartbeat() == nil || s.heartbeat.request.SessionId != s.id) {
				t.Errorf("%s: %v", name, &s.heartbeat.request)
			}
		})
	}
}

// TestTick checks what happens over the time of a session: a heartbeat slightly early, Jeopardy at half the
// TTL, the end at the deadline.
func TestTick(t *testing.T) {
	deadline := ttl - margin(ttl)
	bubble.Test(t, func(t *testing.T) {
		c, s := opened(t)
		now := c.clock.Now()
		s.heartbeatAt = now + s.lead() + 1
		if s.tick(now); s.heartbeat != nil {
			t.Error("a heartbeat too early")
		}
		if s.tick(now + 1); s.heartbeat == nil {
			t.Error("no heartbeat though it may go with others")
		}
	})
	for name, test := range map[string]struct {
		at    time.Duration // after the last proof
		state State
		sends bool
	}{
		"nothing yet":     {ttl/4 - ttl/48, Active, false},
		"a heartbeat":     {ttl / 3, Active, true},
		"just not late":   {ttl/2 - 1, Active, true},
		"jeopardy":        {ttl / 2, Jeopardy, true},
		"still not lost":  {deadline - 1, Jeopardy, true},
		"lost":            {deadline, Lost, false},
		"long after that": {time.Hour, Lost, false},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			time.Sleep(test.at)
			now := c.clock.Now()
			s.tick(now)
			if s.state != test.state || (s.heartbeat != nil) != test.sends {
				t.Errorf("%s: %v, a heartbeat %v", name, s.state, s.heartbeat != nil)
			}
			if test.state != Lost && s.wakeAt != s.nextEvent() {
				t.Errorf("%s: woken at %v, want %v", name, s.wakeAt, s.nextEvent())
			}
			if test.sends && (s.heartbeatAt < now+ttl/4 || s.heartbeatAt > now+ttl/3) {
				t.Errorf("%s: the next one in %v", name, s.heartbeatAt-now)
			}
			if (s.place < 0) != (test.state == Lost) {
				t.Errorf("%s: its place is %d", name, s.place)
			}
		})
	}
}

// TestDue checks that a session is due at its next event, and slightly earlier for a heartbeat.
func TestDue(t *testing.T) {
	s := newSession(nil)
	s.ttl, s.wakeAt = 48*time.Second, 100*time.Second
	for name, test := range map[string]struct {
		heartbeatAt, now time.Duration
		want             bool
	}{
		"a heartbeat":            {100 * time.Second, 100 * time.Second, true},
		"a second before":        {100 * time.Second, 99 * time.Second, true},
		"more than that":         {100 * time.Second, 99*time.Second - 1, false},
		"the heartbeat after it": {100*time.Second + 1, 99*time.Second + 1, false},
		"another event, before":  {105 * time.Second, 100*time.Second - 1, false},
		"another event":          {105 * time.Second, 100 * time.Second, true},
	} {
		if s.heartbeatAt = test.heartbeatAt; s.due(test.now) != test.want {
			t.Errorf("%s: due is %v", name, !test.want)
		}
	}
}

// TestProved checks that an answer extends the deadline according to when its request was sent, never
// shortens it, and ends Jeopardy only if it is recent enough.
func TestProved(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := opened(t)
		started := s.proofAt
		time.Sleep(ttl * 2 / 3)
		now := c.clock.Now()
		s.tick(now)
		sendHeartbeat := s.heartbeatAt
		s.proved(started)
		s.proved(started - 1)
		if s.proofAt != started || s.state != Jeopardy || s.heartbeatAt != sendHeartbeat {
			t.Errorf("proof at %v, %v", s.proofAt, s.state)
		}
		s.proved(now - ttl/2)
		if s.proofAt != now-ttl/2 || s.state != Jeopardy {
			t.Errorf("%v after an answer that took half the TTL", s.state)
		}
		s.proved(now - ttl/2 + 1)
		if s.state != Active || s.heartbeatAt != sendHeartbeat {
			t.Errorf("%v, the next heartbeat at %v, want %v", s.state, s.heartbeatAt, sendHeartbeat)
		}
		s.proved(now)
		s.proved(now + time.Second) // the heartbeat is postponed
		if s.heartbeatAt < now+time.Second+ttl/4 || s.deadline() != now+time.Second+ttl-margin(ttl) || s.overdue() != now+time.Second+ttl/2 {
			t.Errorf("the next heartbeat at %v, the deadline at %v", s.heartbeatAt, s.deadline())
		}
	})
}

// TestAnswersThatAreEvidence checks for every status whether it is decided by the log, and so proves that the
// session is alive.
func TestAnswersThatAreEvidence(t *testing.T) {
	proofs := map[wire.Status_Code]bool{}
	for _, code := range []wire.Status_Code{
		wire.Status_OK, wire.Status_GRANTED, wire.Status_QUEUED, wire.Status_NOT_ACQUIRED, wire.Status_TIMEOUT,
		wire.Status_CANCELLED, wire.Status_NOT_HELD, wire.Status_ALREADY_HELD, wire.Status_ALREADY_QUEUED,
		wire.Status_UPGRADE_CONFLICT, wire.Status_DEADLOCK, wire.Status_MISMATCH,
	} {
		proofs[code] = true
	}
	for number := range wire.Status_Code_name {
		if code := wire.Status_Code(number); proves(code) != proofs[code] {
			t.Errorf("%v proves that the session lives: %v", code, proves(code))
		}
	}
}

// TestAliveAt checks that the deadlines of a session and of its holds are exact.
func TestAliveAt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, s := opened(t)
		h := newHold(s, "x", 9, 9, 9)
		bound := s.deadline() - time.Second
		h.held.bound(bound, 9)
		if s.boundAt != bound || s.wakeAt > bound {
			t.Errorf("the next bound at %v, woken at %v", s.boundAt, s.wakeAt)
		}
		if !s.aliveAt(bound-1) || h.ended != nil {
			t.Error("the hold ends before its time")
		}
		if !s.aliveAt(bound) || !errors.Is(h.ended, ErrHoldExpired) || s.boundAt != never {
			t.Errorf("the hold ends with %v, the next bound at %v", h.ended, s.boundAt)
		}
		h.held.bound(bound+1, 10)
		if len(s.bounded) != 0 || s.boundAt != never {
			t.Error("the time of a hold that is over is looked at")
		}
		free := newHold(s, "y", 10, 10, 10)
		free.held.watchBound()
		if len(s.bounded) != 0 {
			t.Error("the time of a hold that has none is looked at")
		}
		if !s.aliveAt(s.deadline()-1) || s.aliveAt(s.deadline()) || !errors.Is(free.ended, ErrExpired) {
			t.Errorf("the session is %v, its hold ended with %v", s.state, free.ended)
		}
	})
}

// TestHowHoldsEnd checks that a hold ended by a grace is forced, while one that would have expired anyway
// expires.
func TestHowHoldsEnd(t *testing.T) {
	const at = 5 * time.Second
	for name, test := range map[string]struct {
		bound, grace time.Duration
		expires      bool
		want         error
	}{
		"bound":               {at, 0, false, ErrHoldExpired},
		"grace":               {0, at, false, ErrForced},
		"grace before bound":  {at + 1, at, false, ErrForced},
		"both at once":        {at, at, false, ErrForced},
		"bound before grace":  {at, at + 1, false, ErrHoldExpired},
		"the leader expires":  {at, at, true, ErrHoldExpired},
		"an Extend may be it": {0, 0, false, ErrHoldExpired},
	} {
		bubble.Test(t, func(t *testing.T) {
			_, s := opened(t)
			h := newHold(s, "x", 9, 9, 9)
			if test.bound > 0 {
				h.held.bound(test.bound, 9)
			}
			if test.grace > 0 {
				h.held.grace(test.grace)
				h.held.rare.expires = test.expires
			}
			if test.bound+test.grace == 0 {
				h.held.extra().extends = []pendingExtend{{&call{}, at}, {&call{}, at + 1}}
				h.held.watchBound()
			}
			other := newHold(s, "y", 10, 10, 10)
			other.held.bound(at+time.Second, 10)
			if got := h.held.deadline(); got != at {
				t.Errorf("%s: it ends at %v", name, got)
			}
			s.expireHolds(at - 1)
			if h.ended != nil || s.boundAt != at {
				t.Errorf("%s: it ended early, or is not looked at in time: %v", name, s.boundAt)
			}
			s.expireHolds(at)
			if !errors.Is(h.ended, test.want) || other.ended != nil || s.boundAt != at+time.Second {
				t.Errorf("%s: it ended with %v, the next one at %v", name, h.ended, s.boundAt)
			}
		})
	}
}

// TestHeartbeatFailed checks that a heartbeat that failed is resent soon, with a growing backoff.
func TestHeartbeatFailed(t *testing.T) {
	for retries, most := range map[int]time.Duration{0: retryFirst, 3: 8 * retryFirst, 60: retryMost} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			s.heartbeat = &call{}
			c.retries = retries
			now := c.clock.Now()
			s.heartbeatFailed()
			if wait := s.heartbeatAt - now; wait <= 0 || wait > most+time.Millisecond || s.heartbeat != nil || c.retries != retries+1 {
				t.Errorf("after %d: again in %v, at most %v", retries, wait, most)
			}
			if s.wakeAt != s.heartbeatAt || c.alarmAt != s.heartbeatAt {
				t.Errorf("after %d: woken at %v", retries, s.wakeAt)
			}
			s.wakeBy(s.wakeAt + 1)
			if s.wakeAt != s.heartbeatAt {
				t.Error("it is woken later for another event")
			}
			s.ttl = 20 * time.Millisecond
			if s.heartbeatFailed(); s.heartbeatAt-now > s.ttl/20 {
				t.Errorf("again in %v with a TTL of %v", s.heartbeatAt-now, s.ttl)
			}
		})
	}
}

// TestHeartbeatThatWasDueIsSentNext verifies that a heartbeat that becomes due while another one is unanswered
// is sent as soon as that is answered: a slow leader must not cost half of the heartbeats.
func TestHeartbeatThatWasDueIsSentNext(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		const trip = 800 * time.Millisecond
		s, err := c.NewSession(context.Background(), SessionOptions{TTL: 5 * time.Second})
		ok(t, err)
		f.set(func() { f.lag = func() time.Duration { return trip } })
		time.Sleep(time.Minute)
		ok(t, s.Err())
		last := time.Duration(0)
		f.set(func() {
			for _, r := range f.seen {
				if gap := r.at - last; heartbeats(r) && last > 10*time.Second && gap > 2*trip+s.ttl/24 {
					t.Errorf("%v without a heartbeat", gap)
				}
				if heartbeats(r) {
					last = r.at
				}
			}
		})
		if last < 50*time.Second {
			t.Errorf("the last heartbeat came after %v", last)
		}
	})
}
