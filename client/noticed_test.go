package client

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestWhatIsNews checks which reports about a hold are passed on: a pushed revocation always, one in the
// answer to an attach only if it differs.
func TestWhatIsNews(t *testing.T) {
	asked := &wire.Revocation{Reason: "deploy", GraceMs: 4000}
	known := Revocation{Reason: "deploy", Grace: 4 * time.Second}
	tests := map[string]struct {
		waited     bool       // another owner waited before
		before     Revocation // the last one; zero if there was none
		wanted     bool
		revocation *wire.Revocation
		pushed     bool
		waits      bool // the user is notified of a waiter
		revoked    bool // the user is notified of a revocation
		after      Revocation
	}{
		"nothing":                  {},
		"wanted":                   {wanted: true, pushed: true, waits: true},
		"wanted, again":            {waited: true, wanted: true, pushed: true},
		"revoked":                  {revocation: asked, pushed: true, revoked: true, after: known},
		"revoked, at attach":       {revocation: asked, revoked: true, after: known},
		"revoked again":            {before: known, revocation: asked, pushed: true, revoked: true, after: known},
		"revoked, told at attach":  {before: known, revocation: asked, after: known},
		"another reason at attach": {before: Revocation{"x", known.Grace}, revocation: asked, revoked: true, after: known},
		"another grace at attach":  {before: Revocation{Reason: "deploy"}, revocation: asked, revoked: true, after: known},
		"wanted, told at attach":   {before: known, wanted: true, revocation: asked, waits: true, after: known},
		"wanted was told, revoked": {waited: true, wanted: true, revocation: asked, pushed: true, revoked: true, after: known},
		"without a grace":          {revocation: &wire.Revocation{Reason: "r"}, pushed: true, revoked: true, after: Revocation{Reason: "r"}},
	}
	for name, test := range tests {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			h := newHold(s, "x", 9, 9, 9)
			n, before := &h.held.extra().notices, 0
			waiters := 0
			n.wanted.came, n.wanted.call = test.waited, func() { waiters++ }
			if test.before != (Revocation{}) {
				n.revoked.last, n.revoked.count, before = test.before, 1, 1
			}
			told := h.Revoked()
			if before > 0 {
				<-told
			}
			asked, until := 0, c.clock.Now()+time.Second
			c.mu.Lock()
			h.held.noticed(test.wanted, test.revocation, test.pushed, 0, func(grace uint32) time.Duration {
				if asked++; grace != test.revocation.GetGraceMs() {
					t.Errorf("%s: a grace of %d ms", name, grace)
				}
				return until
			})
			c.unlock()
			synctest.Wait()
			if (waiters == 1) != test.waits || n.wanted.came != (test.waited || test.waits) {
				t.Errorf("%s: told of %d waiters, %v", name, waiters, n.wanted.came)
			}
			if n.revoked.last != test.after || (len(told) == 1) != test.revoked || (n.revoked.count > before) != test.revoked {
				t.Errorf("%s: %+v, told %v, %d revocations", name, n.revoked.last, len(told), n.revoked.count)
			}
			r := h.held.rare
			graced := test.revoked && test.after.Grace > 0
			if (asked == 1) != graced || r.graced != graced || graced && h.held.deadline() != until {
				t.Errorf("%s: it ends at %v, asked %d times", name, h.held.deadline(), asked)
			}
			if verify := c.flight.n > 0; verify != graced {
				t.Errorf("%s: the leader is asked how much is left: %v", name, verify)
			}
		})
	}
}

// TestNoNewsOfALostHold checks that a hold that is gone has no news.
func TestNoNewsOfALostHold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, s := opened(t)
		h := newHold(s, "x", 9, 9, 9)
		h.held.gone = ErrForced
		h.held.noticed(true, &wire.Revocation{Reason: "deploy", GraceMs: 4000}, true, 0, nil)
		if h.held.rare != nil {
			t.Error("a hold that is gone has news")
		}
	})
}

// TestRemainingGracePeriod checks that the leader's answer determines the rest of a grace, and that an answer
// without it changes nothing.
func TestRemainingGracePeriod(t *testing.T) {
	left := func(id uint64, ms uint64) *wire.VerifyTokenResponse {
		return &wire.VerifyTokenResponse{Held: true, Holder: &wire.HolderInfo{HoldId: id, Token: 9, RemainingHoldMs: &ms}}
	}
	for name, test := range map[string]struct {
		answer  *wire.VerifyTokenResponse
		status  wire.Status_Code
		change  func(h *Hold)
		ends    time.Duration // after the request
		expires bool
	}{
		"it says":          {left(9, 3000), wire.Status_OK, nil, 3*time.Second - 40*time.Millisecond, false},
		"another hold":     {left(8, 3000), wire.Status_OK, nil, time.Minute, false},
		"no time":          {&wire.VerifyTokenResponse{Holder: &wire.HolderInfo{HoldId: 9}}, wire.Status_OK, nil, time.Minute, false},
		"no holder":        {&wire.VerifyTokenResponse{}, wire.Status_OK, nil, time.Minute, false},
		"refused":          {left(9, 3000), wire.Status_INTERNAL, nil, time.Minute, false},
		"another was told": {left(9, 3000), wire.Status_OK, func(h *Hold) { h.held.rare.revoked.count++ }, time.Minute, false},
		"its bound, later": {left(9, 3000), wire.Status_OK, func(h *Hold) { h.held.bound(time.Hour, 9) }, 3*time.Second - 40*time.Millisecond, false},
		"its bound":        {left(9, 3000), wire.Status_OK, func(h *Hold) { h.held.bound(4*time.Second, 9) }, 3*time.Second - 40*time.Millisecond, true},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			h := newHold(s, "x", 9, 9, 9)
			asked := c.clock.Now()
			h.held.noticed(false, &wire.Revocation{Reason: "r", GraceMs: 4000}, true, 0, func(uint32) time.Duration { return asked + time.Minute })
			k := c.flight.head
			if v := k.request.GetVerifyToken(); v.GetName() != "x" || v.GetToken() != 9 {
				t.Fatalf("%s: asked is %v", name, &k.request)
			}
			if test.change != nil {
				test.change(h)
			}
			c.answered(c.conn, k, &wire.Response{Result: status(test.status), Body: &wire.Response_VerifyToken{VerifyToken: test.answer}})
			r := h.held.rare
			if r.graceEnd != asked+test.ends || r.expires != test.expires {
				t.Errorf("%s: it ends after %v, by its bound: %v", name, r.graceEnd-asked, r.expires)
			}
		})
	}
}

// TestGraceThatIsPushed checks that a pushed grace counts from the last proof, but has at least half of it
// left.
func TestGraceThatIsPushed(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{
		time.Second:             3*time.Second - 40*time.Millisecond,
		1900 * time.Millisecond: 2100*time.Millisecond - 40*time.Millisecond,
		3 * time.Second:         2 * time.Second,
	} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			h := newHold(s, "x", 9, 9, 9)
			time.Sleep(age)
			s.noticePushed(&wire.HoldNotice{HoldId: 8, Revocation: &wire.Revocation{GraceMs: 4000}})
			s.noticePushed(&wire.HoldNotice{HoldId: 9, Revocation: &wire.Revocation{GraceMs: 4000}})
			if left := h.held.deadline() - c.clock.Now(); left != want {
				t.Errorf("%v after the last proof: %v are left, want %v", age, left, want)
			}
		})
	}
}

// TestEndsBeforeTheirGrants checks that the reported end of an unknown hold is kept while its grant may
// still arrive, in bounded numbers.
func TestEndsBeforeTheirGrants(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, s := opened(t)
		lost := func(id uint64, reason wire.HoldLost_Reason) {
			s.holdLost(&wire.HoldLost{HoldId: id, Reason: reason, Message: "m"})
		}
		lost(9, wire.HoldLost_EXPIRED)
		if len(s.early) != 0 {
			t.Error("nothing may be granted, and it is kept")
		}
		k := s.asked("x")
		lost(9, wire.HoldLost_EXPIRED)
		lost(10, wire.HoldLost_FORCED)
		if !errors.Is(s.early[9], ErrHoldExpired) || !errors.Is(s.early[10], ErrForced) || len(s.early) != 2 {
			t.Errorf("kept is %v", s.early)
		}
		s.acquireAnswered(k, grants(k, 10))
		if !errors.Is(k.err, ErrForced) || k.hold != nil || s.holds.count() != 0 || len(s.early) != 1 {
			t.Errorf("the grant gave %v, %v; kept is %v", k.hold, k.err, s.early)
		}
		s.unanswered.pop()
		s.queued("y", 3)
		for id := range uint64(2 * maxEarly) {
			lost(100+id, wire.HoldLost_EXPIRED)
		}
		if len(s.early) != maxEarly {
			t.Errorf("%d are kept", len(s.early))
		}
		h := newHold(s, "z", 50, 50, 50)
		releasing := newHold(s, "w", 51, 51, 51)
		releasing.release = &releaseCall{}
		lost(50, wire.HoldLost_EXPIRED)
		lost(51, wire.HoldLost_FORCED)
		if !errors.Is(h.ended, ErrHoldExpired) || s.holds.find(50) != nil || !errors.Is(releasing.ended, ErrForced) || s.holds.find(51) == nil {
			t.Errorf("ended with %v and %v", h.ended, releasing.ended)
		}
	})
}

// TestGrantThatAnAttachDoesNotName checks that a grant missing from the answer to an attach was taken away
// or has expired.
func TestGrantThatAnAttachDoesNotName(t *testing.T) {
	for name, test := range map[string]struct {
		revision uint64 // of the grant; that of the attach is 100
		named    bool
		maxHold  uint32
		want     error
	}{
		"named":            {100, true, 0, nil},
		"later":            {101, false, 0, nil},
		"not named":        {100, false, 0, ErrForced},
		"may have expired": {100, false, 1000, ErrHoldExpired},
		"too early":        {100, false, 60_000, ErrForced},
	} {
		bubble.Test(t, func(t *testing.T) {
			_, s := opened(t)
			k := s.asked("x")
			k.acquired.acquire.MaxHoldMs = test.maxHold
			s.resumed = resumption{revision: 100, holds: map[uint64]bool{9: test.named}}
			time.Sleep(980 * time.Millisecond)
			r := grants(k, 9)
			r.Revision = test.revision
			if err := s.lostAlready(k, r); !errors.Is(err, test.want) {
				t.Errorf("%s: %v", name, err)
			}
			s.resumed.holds = nil
			if err := s.lostAlready(k, r); err != nil {
				t.Errorf("%s: %v though no request was unanswered then", name, err)
			}
		})
	}
}
