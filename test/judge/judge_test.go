package judge

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const ttl = 10 * time.Second

// queue is a stage on which three clients held a lock one after the other.
func queue(t *testing.T) (*stage, []*history.Hold) {
	s := newStage(t)
	a, b, c := s.open(ttl), s.open(ttl), s.open(ttl)
	first := s.lock(a, "x")
	granted := s.now
	s.lock(b, "x")
	s.lock(c, "x")
	s.read("x")
	var held []*history.Hold
	for session, grant := a, first; grant != nil; session++ {
		h := s.holds(session, grant, history.Exclusive("x"), granted, s.now)
		held = append(held, h)
		pushes := len(s.pushes())
		s.release(session, grant)
		h.Released = true
		grant = nil
		if all := s.pushes(); len(all) > pushes {
			p := all[len(all)-1]
			grant, granted = p.Push.GetOutcome(), p.At
		}
		s.pass(5 * time.Millisecond)
	}
	s.release(b, first) // another client's hold: NOT_HELD
	for _, session := range []uint64{a, b, c} {
		s.closes(session)
	}
	return s, held
}

func (s *stage) pushes() []*history.Push {
	var all []*history.Push
	for _, r := range s.records {
		if r.Push != nil {
			all = append(all, r.Push)
		}
	}
	return all
}

func TestTrueHistory(t *testing.T) {
	s, _ := queue(t)
	counts := s.accepted()
	if err := counts.Enough(Counts{Operations: 12, Grants: 3, Contended: 2, Commands: 14, Entries: 14, Holds: 3, Reads: 1}); err != nil {
		t.Error(err)
	}
	if counts.Enough(Counts{Expiries: 1}) == nil {
		t.Error("a run without an expiry counts as one with")
	}
	counts.Add(Counts{Expiries: 1})
	if err := counts.Enough(Counts{Expiries: 1}); err != nil {
		t.Error(err)
	}
}

// TestForgedAnswers changes one detail that a client received or did, or that the log contains, and expects a
// fault.
func TestForgedAnswers(t *testing.T) {
	for what, forge := range map[string]struct {
		fault string
		forge func(s *stage)
	}{
		"another token":         {"by the log it is", func(s *stage) { s.ops("acquire")[0].Response.Result.Token++ }},
		"no revision":           {"by the log it is", func(s *stage) { s.ops("acquire")[0].Response.Result.Revision = 0 }},
		"another hold":          {"by the log it is", func(s *stage) { s.ops("acquire")[0].Response.Result.HoldId++ }},
		"granted, not queued":   {"by the log it is", func(s *stage) { s.ops("acquire")[1].Response.Result.Status = wire.Status_GRANTED }},
		"another place":         {"by the log it is", func(s *stage) { s.ops("acquire")[2].Response.Result.Position = 1 }},
		"another holder":        {"by the log it is", func(s *stage) { s.ops("acquire")[1].Response.Result.Holders[0].Token++ }},
		"another digest":        {"by the log it is", func(s *stage) { s.ops("acquire")[0].Response.Result.Digest++ }},
		"another lock":          {"by the log it is", func(s *stage) { s.ops("acquire")[0].Response.Result.Name = "b" }},
		"no digest":             {"by the log it is", func(s *stage) { s.ops("acquire")[0].Response.Result.Digest = 0 }},
		"a push with a digest":  {"by the log it is", func(s *stage) { s.pushes()[0].Push.GetOutcome().Digest++ }},
		"a push with a lock":    {"by the log it is", func(s *stage) { s.pushes()[0].Push.GetOutcome().Name = "b" }},
		"a push with a token":   {"by the log it is", func(s *stage) { s.pushes()[0].Push.GetOutcome().Token++ }},
		"a push for another":    {"by the log it is", func(s *stage) { s.pushes()[0].Push.SessionId = 3 }},
		"a request never made":  {"no such request", func(s *stage) { op := s.ops("acquire")[0]; op.Seq, op.Response.Result.Seq = 77, 77 }},
		"another's release":     {"by the log it is", func(s *stage) { s.ops("release")[3].Response.Result.Status = wire.Status_OK }},
		"an open of a session":  {"by the log it is", func(s *stage) { s.ops("open_session")[1].Response.Result.Session.TtlMs++ }},
		"a close at a revision": {"which is the revision of", func(s *stage) { s.ops("close_session")[0].Response.Result.Revision-- }},
		"a close in no log":     {"no such revision", func(s *stage) { s.ops("close_session")[0].Response.Result.Revision = 99 }},
		"an answer from a past": {"already", func(s *stage) { s.ops("acquire")[0].Call = s.now; s.ops("acquire")[0].Return = s.now + 1 }},
		"a read of another":     {"it was", func(s *stage) { s.ops("get_lock")[0].Response.GetGetLock().Holders[0].SessionId++ }},
		"a read of a shorter":   {"it was", func(s *stage) { s.ops("get_lock")[0].Response.GetGetLock().QueueLength-- }},
		"a stale read":          {"a read, get_lock", func(s *stage) { s.ops("get_lock")[0].Call = s.now; s.ops("get_lock")[0].Return = s.now }},
		"a read of no state":    {"that of no entry", func(s *stage) { s.ops("get_lock")[0].Response.GetGetLock().Revision = 99 }},
		"what the log has lost": {"no such", func(s *stage) { s.entries = s.entries[:len(s.entries)-4] }},
		"an entry twice":        {"by the log it is", func(s *stage) { s.entries = append(s.entries[:6:6], s.entries[5:]...) }},
		"a damaged entry":       {"entry 5", func(s *stage) { s.entries[4].Data = []byte{1} }},
		"what a client saw":     {"wrong", func(s *stage) { s.records = append(s.records, history.Record{Fault: &history.Fault{Text: "wrong"}}) }},
	} {
		t.Run(what, func(t *testing.T) {
			s, _ := queue(t)
			forge.forge(s)
			s.refused(forge.fault)
		})
	}
}

func TestForgedHolds(t *testing.T) {
	for what, forge := range map[string]struct {
		fault string
		forge func(s *stage, held []*history.Hold)
	}{
		"two at once":          {"is held at", func(s *stage, held []*history.Hold) { held[0].Ended = held[1].Granted + 1 }},
		"for ever":             {"is held at", func(s *stage, held []*history.Hold) { held[1].Ended = history.Never }},
		"under no token":       {"no such grant", func(s *stage, held []*history.Hold) { held[1].Token += 100 }},
		"of another session":   {"by the log it is", func(s *stage, held []*history.Hold) { held[1].Session = 1 }},
		"of another lock":      {"by the log it is", func(s *stage, held []*history.Hold) { held[1].Locks[0].Lock = "y" }},
		"released and is held": {"is held by the log", func(s *stage, held []*history.Hold) { s.entries = s.entries[:len(s.entries)-5] }},
	} {
		t.Run(what, func(t *testing.T) {
			s, held := queue(t)
			forge.forge(s, held)
			s.refused(forge.fault)
		})
	}
}

// TestHoldsByMode verifies that readers may coexist, permits up to the limit, and writers not at all.
func TestHoldsByMode(t *testing.T) {
	share := func(locks []history.Share, from, to time.Duration) claimed {
		return claimed{Hold: &history.Hold{Locks: locks, Granted: from, Ended: to}}
	}
	r := &replay{}
	for i, c := range []struct {
		lock  string
		holds []claimed
		wrong int
	}{
		{"r", []claimed{share(history.Shared("r"), 1, 9), share(history.Shared("r"), 2, 8), share(history.Exclusive("r"), 9, 10)}, 0},
		{"r", []claimed{share(history.Shared("r"), 1, 9), share(history.Exclusive("r"), 8, 10)}, 1},
		{"s", []claimed{share(history.Permits("s", 2, 3), 1, 9), share(history.Permits("s", 1, 3), 2, 8)}, 0},
		{"s", []claimed{share(history.Permits("s", 2, 3), 1, 9), share(history.Permits("s", 1, 3), 2, 8), share(history.Permits("s", 1, 3), 7, 8)}, 1},
		{"b", []claimed{share(append(history.Exclusive("a"), history.Exclusive("b")...), 1, 9), share(history.Exclusive("b"), 3, 4)}, 1},
	} {
		if faults := r.conflicts(c.lock, c.holds, 0); len(faults) != c.wrong {
			t.Errorf("case %d: %v", i, faults)
		}
	}
	if faults := r.conflicts("s", []claimed{share(history.Permits("s", 2, 2), 1, 9), share(history.Permits("s", 2, 2), 2, 8)}, 4); len(faults) != 0 {
		t.Errorf("resized: %v", faults)
	}
}

// TestForcedHoldIsExcused verifies that an operator's force may grant a lock before the old holder learns of
// it.
func TestForcedHoldIsExcused(t *testing.T) {
	s := newStage(t)
	a, b := s.open(ttl), s.open(ttl)
	first := s.lock(a, "x")
	from := s.now
	s.lock(b, "x")
	force := &wire.ForceRelease{HoldId: first.HoldId, Token: first.Token, Reason: "test"}
	s.ask(&wire.Request{Body: &wire.Request_ForceRelease{ForceRelease: force}}, &wire.Command{Op: &wire.Command_ForceRelease{ForceRelease: force}})
	push := s.pushes()[0]
	s.holds(a, first, history.Exclusive("x"), from, push.At+oneWay)
	s.holds(b, push.Push.GetOutcome(), history.Exclusive("x"), push.At, s.now)
	s.accepted()
	s.ops("force_release")[0].Response.Result.Status = wire.Status_NOT_HELD
	s.refused("by the log it is")
}

// TestOutcomePushedSeveralTimes verifies that a retry, an attach and a push may all contain the same
// outcome.
func TestOutcomePushedSeveralTimes(t *testing.T) {
	s := newStage(t)
	a, b := s.open(ttl), s.open(ttl)
	first := s.lock(a, "x")
	s.lock(b, "x")
	s.release(a, first)
	again := s.ops("acquire")[1].Request
	s.ask(again, &wire.Command{SessionId: b, Seq: 1, Op: &wire.Command_Acquire{Acquire: again.GetAcquire()}})
	s.attach(b)
	if c := s.accepted(); c.Repeated != 1 {
		t.Errorf("%d repeated", c.Repeated)
	}
	s.ops("attach")[0].Response.Result.Session.Outcomes[0].Token++
	s.refused("by the log it is")
}

func (s *stage) attach(session uint64) {
	s.t.Helper()
	view, _ := s.machine.Session(session)
	s.ask(&wire.Request{SessionId: session, Body: &wire.Request_Attach{Attach: &wire.AttachRequest{}}},
		&wire.Command{SessionId: session, Op: &wire.Command_AttachSession{AttachSession: &wire.AttachSession{SecretHash: view.SecretHash, Address: "here"}}})
}

// TestGrantsWithAnEarlierRevision verifies that a second acquire of an own hold, and an upgrade of an
// exclusive hold, may return the revision of the grant.
func TestGrantsWithAnEarlierRevision(t *testing.T) {
	s := newStage(t)
	a := s.open(ttl)
	op := &wire.Acquire{Locks: []*wire.LockRequest{{Name: "x"}}, Reentrant: true}
	grant := s.acquire(a, op)
	s.acquire(a, proto.CloneOf(op))
	up := &wire.Upgrade{HoldId: grant.HoldId, Token: grant.Token}
	r := s.request(a, &wire.Request{Body: &wire.Request_Upgrade{Upgrade: up}}, &wire.Command{Op: &wire.Command_Upgrade{Upgrade: up}})
	if r.Status != wire.Status_GRANTED || r.Revision != grant.Revision {
		t.Fatalf("%v after %v", r, grant)
	}
	s.accepted()
	s.ops("acquire")[1].Response.Result.Count = 1
	s.refused("by the log it is")
}

func TestVerdictNamesTheFirstFaults(t *testing.T) {
	if err := (Verdict{}).Err(); err != nil {
		t.Error(err)
	}
	v := Verdict{Faults: strings.Split(strings.Repeat("fault ", 30), " ")}
	if err := v.Err(); err == nil || !strings.Contains(err.Error(), "31 faults") {
		t.Error(err)
	}
	if got := most(make([]string, 130)); len(got) != 101 || !strings.Contains(got[100], "30 more") {
		t.Errorf("%d faults are left of 130", len(got))
	}
}
