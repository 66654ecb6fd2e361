package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// opened returns a session, attached to a node that leads, of a client whose goroutine does not run.
func opened(t *testing.T) (*Client, *Session) {
	c, cn := still(t)
	leading(c, cn)
	clear(c.sessions)
	s := newSession(c)
	s.id, s.ttl, s.conn = 7, ttl, cn
	c.sessions[s.id] = s
	s.enter(Active)
	s.begin(c.clock.Now())
	return c, s
}

// asked returns an acquire of the session that was sent under the next sequence number.
func (s *Session) asked(name string) *call {
	k := newAcquire(context.Background(), s.client).one(name)
	s.addCall(&k.call)
	s.number(&k.call)
	k.sends, k.firstAt, k.sentAt = 1, s.client.clock.Now(), s.client.clock.Now()
	return &k.call
}

// queued returns an acquire that was answered QUEUED as of a revision.
func (s *Session) queued(name string, revision uint64) *call {
	k := s.asked(name)
	k.revision = revision
	s.acquireAnswered(k, &wire.Result{Status: wire.Status_QUEUED})
	return k
}

// grants returns an answer that grants an acquire as the given hold.
func grants(k *call, hold uint64) *wire.Result {
	return &wire.Result{
		Status: wire.Status_GRANTED, Seq: k.request.Seq, HoldId: hold, Token: hold, Revision: hold, Count: 1,
		Digest: k.request.Digest(), Name: k.firstLock(),
	}
}

// TestWaitsThatTheClusterDoesNotKnow checks that a wait missing from the answer to an attach is requested
// again, unless it began after that answer. A wait in the answer continues.
func TestWaitsThatTheClusterDoesNotKnow(t *testing.T) {
	for name, test := range map[string]struct {
		revision     uint64 // of the wait; that of the answer is 100
		named        bool
		asked, waits bool
	}{
		"named":         {50, true, false, true},
		"not named":     {50, false, true, false},
		"at that":       {100, false, true, false},
		"after that":    {101, false, false, true},
		"named, though": {101, true, false, true},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			k := s.queued("x", test.revision)
			state := &wire.SessionState{SessionId: s.id}
			if test.named {
				state.Outcomes = []*wire.Result{{Status: wire.Status_QUEUED, Seq: k.request.Seq}}
			}
			s.reconcile(&wire.Result{Status: wire.Status_OK, Revision: 100, Session: state}, 0)
			if again := k.list != nil && s.open(k.request.Seq); again != test.asked || k.queued != test.waits || (s.waits[1] == k) != test.waits {
				t.Errorf("%s: asked again %v, waits %v", name, again, k.queued)
			}
			if k.request.Seq != 1 || c.ready.n > 1 {
				t.Errorf("%s: it has the number %d", name, k.request.Seq)
			}
		})
	}
}

// TestHoldsThatTheClusterDoesNotKnow checks that a hold missing from the answer to an attach is lost,
// unless it was granted after that answer. A hold without a caller is released.
func TestHoldsThatTheClusterDoesNotKnow(t *testing.T) {
	for name, test := range map[string]struct {
		revision uint64 // of the hold; that of the answer is 100
		named    bool
		gone     bool
	}{
		"named":      {50, true, false},
		"not named":  {50, false, true},
		"at that":    {100, false, true},
		"after that": {101, false, false},
	} {
		bubble.Test(t, func(t *testing.T) {
			_, s := opened(t)
			h := newHold(s, "x", 9, 9, test.revision)
			releasing := newHold(s, "y", 10, 10, test.revision)
			releasing.release = &releaseCall{}
			state := &wire.SessionState{SessionId: s.id}
			if test.named {
				state.Holds = []*wire.HeldLock{{Name: "x", HoldId: 9, Token: 9, Seq: 3}, {Name: "y", HoldId: 10, Token: 10, Seq: 4}}
			}
			s.reconcile(&wire.Result{Status: wire.Status_OK, Revision: 100, Session: state}, 0)
			if (h.ended != nil) != test.gone || (s.holds.find(9) == nil) != test.gone {
				t.Errorf("%s: it ended for %v, and is kept: %v", name, h.ended, s.holds.find(9) != nil)
			}
			if s.holds.find(10) == nil || (releasing.ended != nil) != test.gone {
				t.Errorf("%s: what is being released is left to that answer", name)
			}
		})
	}
	bubble.Test(t, func(t *testing.T) {
		c, s := opened(t)
		waiting, open := s.queued("a", 50), s.asked("b")
		state := &wire.SessionState{SessionId: s.id, Holds: []*wire.HeldLock{
			{Name: "a", HoldId: 20, Token: 20, Seq: waiting.request.Seq},
			{Name: "b", HoldId: 21, Token: 21, Seq: open.request.Seq},
			{Name: "c", HoldId: 22, Token: 22, Seq: 99},
		}, Outcomes: []*wire.Result{{Status: wire.Status_QUEUED, Seq: waiting.request.Seq}}}
		s.reconcile(&wire.Result{Status: wire.Status_OK, Revision: 100, Session: state}, 0)
		var given []uint64
		for _, k := range slices.Concat(c.flight.all(), c.urgent.all()) {
			if r := k.request.GetRelease(); r != nil {
				given = append(given, r.GetHoldId())
			}
		}
		if !slices.Equal(given, []uint64{22}) {
			t.Errorf("given back: %v, want 22 alone", given)
		}
		if want := map[uint64]bool{20: true, 21: true, 22: true}; len(s.resumed.holds) != len(want) {
			t.Errorf("the answer named %v, want %v", s.resumed.holds, want)
		}
		s.unanswered.remove(open)
		for k := s.unanswered.pop(); k != nil; k = s.unanswered.pop() {
		}
		s.early = map[uint64]error{5: ErrForced}
		s.reconcile(&wire.Result{Status: wire.Status_OK, Revision: 101, Session: state}, 0)
		if len(s.early) != 0 {
			t.Errorf("word of ends from before the answer is kept: %v", s.early)
		}
	})
}

// TestWhatIsAcknowledged checks that repeated pushes are acknowledged once, but not those for requests that
// are unanswered or were never made.
func TestWhatIsAcknowledged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, s := opened(t)
		over, open, waits := s.asked("a"), s.asked("b"), s.queued("c", 3)
		s.outcome(over, grants(over, 11), 0)
		for name, test := range map[string]struct {
			seq    uint64
			status wire.Status_Code
			acked  bool
		}{
			"none":                  {0, wire.Status_GRANTED, false},
			"answered":              {over.request.Seq, wire.Status_GRANTED, true},
			"answered, waits":       {over.request.Seq, wire.Status_QUEUED, false},
			"not answered":          {open.request.Seq, wire.Status_GRANTED, false},
			"it waits":              {waits.request.Seq, wire.Status_QUEUED, false},
			"the next one":          {s.nextSeq, wire.Status_GRANTED, false},
			"one of the far future": {s.nextSeq + 9, wire.Status_GRANTED, false},
		} {
			s.acks = nil
			for range 2 {
				s.pushed(&wire.Result{Seq: test.seq, Status: test.status}, 0)
			}
			if want := []uint64{test.seq}; slices.Equal(s.acks, want) != test.acked || len(s.acks) > 1 {
				t.Errorf("%s: %v is to be acknowledged", name, s.acks)
			}
		}
		s.acks = nil
		s.pushed(grants(waits, 12), 0)
		if !waits.finished || waits.hold.ID() != 12 || !slices.Equal(s.acks, []uint64{waits.request.Seq}) || len(s.waits) != 0 {
			t.Errorf("the wait is over: %v, to be acknowledged: %v", waits.finished, s.acks)
		}
		s.state = Lost
		if s.acknowledge(over.request.Seq); len(s.acks) != 1 {
			t.Error("a lost session acknowledges")
		}
		s.state = Active
	})
}

// TestHowIsAcknowledged checks that any request carries acknowledgements, only for outcomes below the mark
// and in bounded numbers, and that many of them get a request of their own, one at a time.
func TestHowIsAcknowledged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, s := opened(t)
		first := s.asked("open") // sequence number 1, which holds back the mark
		s.nextSeq = 2000
		for seq := uint64(2); seq < 2+ackBatch; seq++ {
			s.acknowledge(seq)
		}
		if s.acknowledging != nil {
			t.Error("they have a request of their own too soon")
		}
		s.acknowledge(2 + ackBatch)
		if s.acknowledging != nil {
			t.Error("nothing is below the mark, and asked")
		}
		k := &call{kind: kindAcquire, session: s}
		if s.stamp(k); k.request.AckedBelow != 1 || len(k.request.Acked) != 0 {
			t.Errorf("below %d, %v", k.request.AckedBelow, k.request.Acked)
		}
		s.unanswered.remove(first)
		s.acknowledge(3 + ackBatch)
		own := s.acknowledging
		if own == nil || own.list != &c.flight || len(own.request.Acked) != 2+ackBatch || own.request.AckedBelow != 2000 {
			t.Fatalf("%+v acknowledges", own)
		}
		for seq := uint64(500); seq < 1500; seq++ {
			s.acknowledge(seq)
		}
		if s.acknowledging != own {
			t.Error("a second one beside the first")
		}
		k = &call{kind: kindAcquire, session: s}
		s.stamp(k)
		before := slices.Clone(k.request.Acked)
		s.stamp(k) // sent again
		if len(k.request.Acked) != ackMost || !slices.Equal(k.request.Acked, before) || len(s.acks) != 1000-ackMost {
			t.Errorf("%d and %d are left", len(k.request.Acked), len(s.acks))
		}
		s.forget(k) // it was not answered
		if len(k.request.Acked) != 0 || len(s.acks) != 1000 {
			t.Errorf("%d are left of 1000", len(s.acks))
		}
		c.finish(own)
		if s.acknowledging != nil || len(s.acks) != 1000+2+ackBatch {
			t.Errorf("%d are left", len(s.acks))
		}
	})
}

// TestCancelIsSentOnce checks that a cancel is sent once, and again only after it was refused.
func TestCancelIsSentOnce(t *testing.T) {
	refused := []wire.Status_Code{wire.Status_INTERNAL, wire.Status_INVALID_ARGUMENT, wire.Status_UNSUPPORTED}
	for _, code := range refused {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			k := s.queued("x", 3)
			cancels := func() (found []*call) {
				for _, k := range c.flight.all() {
					if k.kind == kindCancel && !k.finished {
						found = append(found, k)
					}
				}
				return found
			}
			s.cancel(k)
			s.cancel(k)
			sent := cancels()
			if len(sent) != 1 || sent[0].request.GetCancel().GetAcquireSeq() != k.request.Seq {
				t.Fatalf("%d cancels", len(sent))
			}
			s.cancelAnswered(sent[0], &wire.Result{Status: code})
			if k.finished || k.cancelled || !sent[0].finished {
				t.Errorf("%v: the wait is over, or cannot be cancelled any more", code)
			}
			s.cancel(k)
			if sent = cancels(); len(sent) != 1 {
				t.Fatalf("%v: %d cancels", code, len(sent))
			}
			number := sent[0].request.Seq
			s.cancelAnswered(sent[0], &wire.Result{Status: wire.Status_RESOURCE_EXHAUSTED})
			if sent[0].finished || sent[0].request.Seq == number {
				t.Error("a full window ends a cancel")
			}
			s.cancelAnswered(sent[0], &wire.Result{Status: wire.Status_CANCELLED})
			if !k.finished || !errors.Is(k.err, ErrCancelled) || len(s.waits) != 0 {
				t.Errorf("the wait ended with %v", k.err)
			}
		})
	}
}

// TestDisconnectedCallerKeepsNothing checks that whatever an abandoned acquire is granted is released, whenever the
// grant arrives.
func TestDisconnectedCallerKeepsNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		_, s := opened(t)
		k := s.asked("x")
		k.abandoned = true
		s.acquireAnswered(k, grants(k, 9))
		if k.hold == nil || k.hold.release == nil || !k.finished {
			t.Error("it is held for nobody")
		}
		waits := s.asked("y")
		waits.abandoned = true
		s.acquireAnswered(waits, &wire.Result{Status: wire.Status_QUEUED})
		if !waits.cancelled {
			t.Error("it waits for nobody")
		}
		late := s.asked("z")
		s.client.finish(late)
		s.outcome(late, grants(late, 10), 0)
		if late.hold != nil || s.holds.find(10) != nil {
			t.Error("a call that is over is granted something")
		}
	})
}

// TestSinceWhenAGrantMayBeHeld checks from when the time of a grant counts: from the resumption if the
// grant is newer than that, otherwise from the first request.
func TestSinceWhenAGrantMayBeHeld(t *testing.T) {
	for revision, want := range map[uint64]time.Duration{99: time.Second, 100: time.Second, 101: 30 * time.Second} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			s.resumed = resumption{sentAt: 30 * time.Second, revision: 100}
			k := s.asked("x")
			k.acquired.acquire.MaxHoldMs = 60_000
			k.firstAt = time.Second
			time.Sleep(40*time.Second - c.clock.Now())
			r := grants(k, 9)
			r.Revision, r.Digest = revision, k.request.Digest()
			s.acquireAnswered(k, r)
			if until := untilOf(want, 60_000); k.hold == nil || k.hold.held.deadline() != until {
				t.Errorf("revision %d: %+v, want until %v", revision, k.hold, until)
			}
		})
	}
}

// TestAttach checks that a session is attached once to each connection.
func TestAttach(t *testing.T) {
	for name, test := range map[string]struct {
		change func(c *Client, s *Session)
		sent   bool
	}{
		"attached":         {func(*Client, *Session) {}, false},
		"not attached":     {func(_ *Client, s *Session) { s.conn = nil }, true},
		"elsewhere":        {func(_ *Client, s *Session) { s.conn = &conn{} }, true},
		"under way":        {func(_ *Client, s *Session) { s.conn, s.attaching = nil, &call{} }, false},
		"no connection":    {func(c *Client, s *Session) { c.conn, s.conn = nil, nil }, true}, // as soon as there is one
		"of another place": {func(c *Client, _ *Session) { c.conn = nil }, true},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, s := opened(t)
			test.change(c, s)
			before := s.attaching
			s.attach()
			if sent := s.attaching != before; sent != test.sent || sent && s.attaching.request.GetAttach().GetSecret() == nil {
				t.Errorf("%s: attached %v", name, sent)
			}
		})
	}
}
