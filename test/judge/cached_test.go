package judge

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const rangeSize = 8

// caching is a stage on which a session granted a cached hold to three callers, and another session held the lock after
// that.
type caching struct {
	*stage
	a, b  uint64
	grant *wire.Result
	held  []*history.Hold // of a
}

func newCaching(t *testing.T) *caching {
	s := &caching{stage: newStage(t)}
	s.raise()
	s.a, s.b = s.open(ttl), s.open(ttl)
	s.grant = s.acquireCached(s.a, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "x"}}, WaitForever: true, Owner: 1})
	for i := range 3 {
		s.locally(uint64(i))
	}
	s.heartbeat(s.a)
	at := s.now
	s.lock(s.b, "x")
	s.records = append(s.records, history.Record{Push: &history.Push{
		Client: client(s.a), At: at + 2*oneWay, Push: &wire.Push{SessionId: s.a, Body: &wire.Push_HoldNotice{HoldNotice: &wire.HoldNotice{HoldId: s.grant.HoldId, Wanted: true}}},
	}})
	s.release(s.a, &wire.Result{HoldId: s.grant.HoldId, Token: s.held[2].Token})
	next := s.pushes()[len(s.pushes())-1]
	s.pass(5 * time.Millisecond)
	s.holds(s.b, next.Push.GetOutcome(), history.Exclusive("x"), next.At, s.now)
	for _, session := range []uint64{s.b, s.a} {
		s.closes(session)
	}
	return s
}

// raise raises the cluster's feature level to that of cached holds.
func (s *stage) raise() {
	s.t.Helper()
	s.apply(&wire.Command{Op: &wire.Command_PutMember{PutMember: &wire.PutMember{Member: &wire.Member{Id: "n1", Incarnation: "i1", Level: 2}}}})
	if r := s.apply(&wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: 2}}}); r.Status != wire.Status_OK {
		s.t.Fatal(r)
	}
}

func (s *stage) acquireCached(session uint64, op *wire.Acquire) *wire.Result {
	s.t.Helper()
	as := &wire.AcquireCached{Acquire: op, Tokens: rangeSize, IdleMs: 1000}
	return s.request(session, &wire.Request{Body: &wire.Request_AcquireCached{AcquireCached: as}}, &wire.Command{Op: &wire.Command_AcquireCached{AcquireCached: as}})
}

// locally records a hold with the token at that place of the range.
func (s *caching) locally(place uint64) {
	h := s.holds(s.a, s.grant, history.Exclusive("x"), s.now, s.now+5*time.Millisecond)
	h.Token, h.Released = s.grant.Token+place, true
	s.held = append(s.held, h)
	s.pass(10 * time.Millisecond)
}

func TestCachedHolds(t *testing.T) {
	s := newCaching(t)
	c := s.open(ttl)
	never := s.acquireCached(c, &wire.Acquire{Locks: []*wire.LockRequest{{Name: "z"}}}) // is never recalled
	s.holds(c, never, history.Exclusive("z"), s.now, s.now+1).Token++
	s.bounds.Slack = time.Second
	if err := s.accepted().Enough(Counts{Grants: 3, Holds: 5, Local: 3, Recalls: 1, Windows: 1}); err != nil {
		t.Error(err)
	}
}

func TestForgedCachedHolds(t *testing.T) {
	for what, forge := range map[string]struct {
		fault string
		forge func(s *caching)
	}{
		"a token beyond the range":     {"no such grant", func(s *caching) { s.held[2].Token += rangeSize }},
		"a token of another session":   {"by the log it is", func(s *caching) { s.held[2].Session = s.b }},
		"a token of another hold":      {"by the log it is", func(s *caching) { s.held[2].ID++ }},
		"a token of another lock":      {"by the log it is", func(s *caching) { s.held[2].Locks = history.Exclusive("y") }},
		"a token twice":                {"is that of", func(s *caching) { s.held[2].Token-- }},
		"tokens that fall":             {"was granted before the end of", func(s *caching) { s.held[1].Token, s.held[2].Token = s.held[2].Token, s.held[1].Token }},
		"two local holders":            {"was granted before the end of", func(s *caching) { s.held[1].Ended = s.held[2].Granted + 1 }},
		"out of turn":                  {"and had to wait for", func(s *caching) { s.held[2].Asked = s.held[1].Asked - 1 }},
		"held after its release":       {"requested its release at", func(s *caching) { s.held[2].Ended = s.ops("release")[0].Call + 1 }},
		"held beside the next session": {"is held at", func(s *caching) { s.held[2].Ended = s.now }},
		"after the recall": {"after the recall", func(s *caching) {
			at := s.pushes()[0].At
			s.held[2].Asked, s.held[2].Granted, s.held[2].Ended = at+1, at+1, at+1
		}},
		"after an attach that repeats the recall": {"after the recall", func(s *caching) {
			s.pushes()[0].Push.GetHoldNotice().HoldId = 0
			s.attached(s.held[2].Asked-1, &wire.HeldLock{HoldId: s.grant.HoldId, Wanted: true})
		}},
		"after a revocation": {"after the recall", func(s *caching) {
			s.attached(s.held[2].Asked-1, &wire.HeldLock{HoldId: s.grant.HoldId, Revocation: &wire.Revocation{Reason: "test"}})
		}},
		"after an attach without the hold": {"after the recall", func(s *caching) { s.attached(s.held[2].Asked - 1) }},
		"after its loss": {"after the recall", func(s *caching) {
			s.pushes()[0].At = s.held[2].Asked - 1
			s.pushes()[0].Push.Body = &wire.Push_HoldLost{HoldLost: &wire.HoldLost{HoldId: s.grant.HoldId}}
		}},
		"long after the last answer": {"the last request that was answered", func(s *caching) {
			for _, op := range s.ops("acquire_cached") {
				op.Call -= ttl / 2
			}
			s.ops("open_session")[0].Call -= ttl / 2
		}},
	} {
		t.Run(what, func(t *testing.T) {
			s := newCaching(t)
			forge.forge(s)
			s.refused(forge.fault)
		})
	}
}

// attached records an attach of the session that was answered at that time with those holds.
func (s *caching) attached(at time.Duration, holds ...*wire.HeldLock) {
	s.records = append(s.records, history.Record{Op: &history.Op{
		Client: client(s.a), Kind: "attach", Session: s.a, Call: at, Return: at, Outcome: history.OK,
		Request: &wire.Request{SessionId: s.a, Body: &wire.Request_Attach{Attach: &wire.AttachRequest{}}},
		Response: &wire.Response{Result: &wire.Result{
			Status: wire.Status_OK, Revision: s.grant.Revision, Session: &wire.SessionState{SessionId: s.a, Holds: holds},
		}},
	}})
}
