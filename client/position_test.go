package client

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestPosition checks what a position records, and what contradicts it.
func TestPosition(t *testing.T) {
	var p position
	p.advance(0, 0, 1000) // a read of any node
	if p.message() != nil || p != (position{}) {
		t.Errorf("an answer that nobody vouches for counts: %+v", p)
	}
	p.advance(3, 8, 50)
	p.advance(3, 8, 20) // a remembered outcome
	p.advance(2, 7, 40) // an answer of a former leader
	if p != (position{3, 8, 50}) {
		t.Errorf("%+v", p)
	}
	p.advance(4, 9, 30) // a remembered outcome under a new leader
	if p != (position{4, 9, 50}) {
		t.Errorf("%+v", p)
	}
	for answer, want := range map[position]bool{
		{4, 9, 50}: false,
		{4, 9, 51}: false,
		{5, 1, 60}: false,
		{0, 0, 10}: false,
		{4, 9, 49}: true,
		{4, 8, 90}: true,
		{3, 8, 90}: true,
	} {
		if got := p.contradicts(answer.term, answer.nonce, answer.revision); got != want {
			t.Errorf("%+v: %v", answer, got)
		}
	}
}

// heartbeatAt sends a heartbeat when this was known, and answers it as of that position.
func heartbeatAt(c *Client, s *Session, known, answer position) {
	c.conn.seen = known
	s.sendHeartbeat()
	k := s.heartbeat
	c.flight.remove(k)
	c.byID.remove(k)
	c.conn.seen.advance(9, 9, 90) // another answer that overtakes it
	k.session.answered(c.conn, k, &wire.Response{Result: &wire.Result{Status: wire.Status_OK, Revision: answer.revision}, Term: answer.term, Nonce: answer.nonce})
}

// TestHeartbeatOfAnotherHistory checks that the answer to a heartbeat is compared with what was known when it was sent.
// What arrived in the meantime may be newer.
func TestHeartbeatOfAnotherHistory(t *testing.T) {
	for answer, ends := range map[position]bool{{2, 5, 20}: false, {3, 1, 30}: false, {2, 5, 19}: true, {2, 6, 40}: true, {1, 5, 40}: true} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			h := newHold(s, "x", 9, 9, 9)
			heartbeatAt(c, s, position{2, 5, 20}, answer)
			if got := errors.Is(s.reason, ErrRolledBack); got != ends || got != (h.ended == ErrRolledBack) || got != (s.closing != nil) {
				t.Errorf("%+v: the session ended with %v, the hold with %v", answer, s.reason, h.ended)
			}
		})
	}
}

// TestRememberedOutcomeIsNoProof checks that an outcome from before what the session has seen does not end it.
func TestRememberedOutcomeIsNoProof(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := opened(t)
		c.conn.seen = position{2, 5, 100}
		k := s.asked("x")
		result := grants(k, 9)
		s.answered(c.conn, k, &wire.Response{Result: result, Term: 2, Nonce: 5})
		if s.state == Lost || k.hold == nil {
			t.Errorf("the session ended with %v", s.reason)
		}
	})
}

// TestAttachTellsWhatWasSeen checks that the attach to the next connection carries what the last one has shown, and that
// a session that the cluster is only to close carries nothing.
func TestAttachTellsWhatWasSeen(t *testing.T) {
	for _, closing := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			c.conn.seen = position{2, 5, 100}
			if closing {
				s.startClose(ErrClosed)
			}
			s.detach()
			c.conn.seen = position{3, 6, 200} // of the next connection
			s.attach()
			if seen := s.attaching.request.GetAttach().GetSeen(); (seen == nil) != closing || !closing && (seen.Term != 2 || seen.Nonce != 5 || seen.Revision != 100) {
				t.Errorf("closing %v: %v", closing, seen)
			}
		})
	}
}

// attachAnswered answers the session's attach.
func attachAnswered(c *Client, s *Session, resp *wire.Response) {
	s.conn = nil
	s.attach()
	k := s.attaching
	c.flight.remove(k)
	c.byID.remove(k)
	s.answered(c.conn, k, resp)
}

// TestRolledBackAtAttach checks how a session ends that the cluster has in an older state, does not have, or has given to
// another client.
func TestRolledBackAtAttach(t *testing.T) {
	for name, test := range map[string]struct {
		result *wire.Result
		why    error
		closes bool
	}{
		"older state":    {&wire.Result{Status: wire.Status_OK, Revision: 5, Session: &wire.SessionState{}}, ErrRolledBack, true},
		"unknown":        {&wire.Result{Status: wire.Status_SESSION_LOST, Revision: 5}, ErrRolledBack, false},
		"restored":       {&wire.Result{Status: wire.Status_SESSION_LOST, Revision: 5, Restored: true}, ErrRestored, false},
		"of another one": {&wire.Result{Status: wire.Status_PERMISSION_DENIED, Revision: 5}, ErrRolledBack, false},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			h := newHold(s, "x", 9, 9, 9)
			h.asked = context.Background()
			waits, calls := s.queued("y", 8), s.asked("z")
			ctx := h.Context()
			attachAnswered(c, s, &wire.Response{Result: test.result, RolledBack: true})
			if !errors.Is(s.reason, test.why) || !errors.Is(context.Cause(ctx), test.why) {
				t.Errorf("%s: the session ended with %v, the hold with %v", name, s.reason, context.Cause(ctx))
			}
			for _, k := range []*call{waits, calls} {
				if !k.finished || !errors.Is(k.err, test.why) {
					t.Errorf("%s: a call ended with %v", name, k.err)
				}
			}
			if closes := s.closing != nil && s.closing.list == &c.flight; closes != test.closes {
				t.Errorf("%s: closed in the cluster: %v", name, closes)
			}
		})
	}
}

// TestSessionUnderTheSameID checks that a session ends if the cluster assigns its id again.
func TestSessionUnderTheSameID(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, older := opened(t)
		older.conn = nil // its attach is not answered yet
		k := &call{kind: kindOpen, opening: newSession(c)}
		c.opened(c.conn, k, &wire.Result{Status: wire.Status_OK, Session: &wire.SessionState{SessionId: older.id, TtlMs: 15_000}})
		if k.err != nil || !errors.Is(older.reason, ErrRolledBack) || c.sessions[older.id] != k.opening {
			t.Errorf("opened: %v, the older one ended with %v", k.err, older.reason)
		}
	})
}

// TestOtherHoldsUnderTheSameIDs checks that holds and waits are compared by id and token.
func TestOtherHoldsUnderTheSameIDs(t *testing.T) {
	for name, test := range map[string]struct {
		held  *wire.HeldLock
		waits uint64 // the id of the claim that waits
		ends  bool
	}{
		"the same":                 {&wire.HeldLock{HoldId: 9, Token: 90}, 20, false},
		"a later token":            {&wire.HeldLock{HoldId: 9, Token: 91}, 20, true},
		"an earlier token":         {&wire.HeldLock{HoldId: 9, Token: 89}, 20, true},
		"of a range":               {&wire.HeldLock{HoldId: 9, Token: 80, Tokens: 11}, 20, false},
		"after a range":            {&wire.HeldLock{HoldId: 9, Token: 80, Tokens: 10}, 20, true},
		"another claim that waits": {&wire.HeldLock{HoldId: 9, Token: 90}, 21, true},
	} {
		bubble.Test(t, func(t *testing.T) {
			_, s := opened(t)
			newHold(s, "x", 9, 90, 50)
			k := s.asked("y")
			k.revision = 60
			s.acquireAnswered(k, &wire.Result{Status: wire.Status_QUEUED, HoldId: 20})
			state := &wire.SessionState{SessionId: s.id, Holds: []*wire.HeldLock{test.held},
				Outcomes: []*wire.Result{{Status: wire.Status_QUEUED, Seq: k.request.Seq, HoldId: test.waits}}}
			s.reconcile(&wire.Result{Status: wire.Status_OK, Revision: 100, Session: state}, 0)
			if got := errors.Is(s.reason, ErrRolledBack); got != test.ends {
				t.Errorf("%s: the session ended with %v", name, s.reason)
			}
		})
	}
}

// TestUpgradeInFlightChangesTheToken checks that a token that an upgrade may have changed is no contradiction.
func TestUpgradeInFlightChangesTheToken(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, s := opened(t)
		h := newHold(s, "x", 9, 90, 50)
		upgrading(h)
		state := &wire.SessionState{SessionId: s.id, Holds: []*wire.HeldLock{{HoldId: 9, Token: 95}}}
		s.reconcile(&wire.Result{Status: wire.Status_OK, Revision: 100, Session: state}, 0)
		if s.state == Lost {
			t.Errorf("the session ended with %v", s.reason)
		}
	})
}

// TestGrantThatNobodyAskedFor checks that a pushed grant to a request that is over is released and then acknowledged, and
// that the repeated outcome of a hold that the session has is only acknowledged.
func TestGrantThatNobodyAskedFor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := opened(t)
		known := s.asked("x")
		s.acquireAnswered(known, grants(known, 9))
		over := s.asked("y")
		s.acquireAnswered(over, &wire.Result{Status: wire.Status_TIMEOUT, Seq: over.request.Seq, Digest: over.request.Digest()})
		s.pushed(grants(known, 9), 0)
		if len(s.acks) != 1 || s.acks[0] != known.request.Seq || known.hold.release != nil {
			t.Fatalf("a repeated outcome: acknowledged %v", s.acks)
		}
		s.pushed(grants(over, 10), 0)
		d := s.holds.find(10)
		if d == nil || d.first.release == nil || slices.Contains(append(s.acks, d.first.release.request.Acked...), over.request.Seq) {
			t.Fatalf("a grant that nobody asked for: %+v, acknowledged %v", d, s.acks)
		}
		k := &d.first.release.call
		c.flight.remove(k)
		c.byID.remove(k)
		s.answered(c.conn, k, &wire.Response{Result: &wire.Result{Status: wire.Status_OK}})
		if s.holds.find(10) != nil || !slices.Contains(s.acks, over.request.Seq) {
			t.Errorf("after its release: acknowledged %v", s.acks)
		}
		later := grants(known, 9)
		later.Token, later.Revision = 12, 12
		s.acks = nil
		s.pushed(later, 0)
		if !errors.Is(s.reason, ErrRolledBack) {
			t.Errorf("another token for the same hold: %v", s.reason)
		}
	})
}
