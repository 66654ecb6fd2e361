package judge

import (
	"bytes"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// compact replaces the log by a snapshot of what was committed so far.
func (s *stage) compact() {
	s.t.Helper()
	var state bytes.Buffer
	must(s.t, s.machine.WriteSnapshot(&state))
	s.snapshot, s.compacted = state.Bytes(), len(s.entries)
}

// stored writes and reads the data directories of three nodes, each with the snapshot and the entries after
// it.
func (s *stage) stored() {
	s.t.Helper()
	var logs []*raft.Log
	for _, e := range s.entries {
		logs = append(logs, &raft.Log{Index: e.Index, Term: e.Term, Type: raft.LogCommand, Data: e.Data})
	}
	last := s.entries[s.compacted-1]
	var dirs []string
	for range 3 {
		dir := dataDir(s.t, logs[s.compacted:])
		saveState(s.t, dir, "1-1-1", last.Index, last.Term, s.snapshot)
		dirs = append(dirs, dir)
	}
	entries, snapshot, err := ReadLogs(dirs...)
	must(s.t, err)
	s.entries, s.snapshot, s.compacted = entries, snapshot, 0
}

// midway is a stage whose log was compacted in the middle of activity: a lock is held and waited for, one
// session has expired, another is closed, and a third will expire.
func midway(t *testing.T) (s *stage, held []*history.Hold) {
	s = newStage(t)
	lost, closed, a, b, idle := s.open(ttl), s.open(ttl), s.open(ttl), s.open(ttl), s.open(ttl)
	first := s.lock(a, "x")
	from := s.now
	s.lock(b, "x")
	reading := &wire.Acquire{Locks: []*wire.LockRequest{shared("r")}}
	reader := s.acquire(closed, reading)
	s.release(idle, s.acquire(idle, reading))
	s.release(closed, reader)
	s.closes(closed)
	for range 4 {
		s.pass(ttl / 4)
		for _, session := range []uint64{a, b, idle} {
			s.heartbeat(session)
		}
	}
	s.pass(time.Second)
	s.expire(lost)
	s.lead()
	s.compact()

	held = append(held, s.holds(a, first, history.Exclusive("x"), from, s.now))
	s.release(a, first)
	held[0].Released = true
	second := s.pushes()[0]
	s.read("x")
	held = append(held, s.holds(b, second.Push.GetOutcome(), history.Exclusive("x"), second.At, s.now))
	s.release(b, second.Push.GetOutcome())
	held[1].Released = true
	s.release(b, s.lock(b, "r"))
	s.release(b, s.lock(b, "new"))
	for range 8 {
		s.pass(ttl / 4)
		s.heartbeat(a)
		s.heartbeat(b)
	}
	s.pass(ttl / 20)
	s.expire(idle) // in time, since the leader changed
	s.closes(a)
	s.pass(time.Second)
	s.closes(b)
	return s, held
}

// TestCompactedHistory verifies that a run is checked from the snapshot on that its log begins with, and that
// correct answers from before it are not reported as faults.
func TestCompactedHistory(t *testing.T) {
	s, _ := midway(t)
	s.stored()
	counts := s.accepted()
	if err := counts.Enough(Counts{Operations: 20, Grants: 2, Contended: 1, Expiries: 1, Holds: 2, Reads: 1, Windows: 1}); err != nil {
		t.Error(err)
	}
}

func TestForgedCompactedHistory(t *testing.T) {
	for what, forge := range map[string]struct {
		fault string
		forge func(s *stage, held []*history.Hold)
	}{
		"a push with a token": {"no such request", func(s *stage, _ []*history.Hold) { s.pushes()[0].Push.GetOutcome().Token++ }},
		"a grant afterwards":  {"by the log it is", func(s *stage, _ []*history.Hold) { s.ops("acquire")[5].Response.Result.Token++ }},
		"another's release":   {"by the log it is", func(s *stage, _ []*history.Hold) { s.ops("release")[2].Response.Result.Status = wire.Status_NOT_HELD }},
		"a read of another":   {"it was", func(s *stage, _ []*history.Hold) { s.ops("get_lock")[0].Response.GetGetLock().Holders[0].SessionId++ }},
		"a close in no log":   {"no such revision", func(s *stage, _ []*history.Hold) { s.ops("close_session")[1].Response.Result.Revision = 99 }},
		"two at once":         {"is held at", func(_ *stage, held []*history.Hold) { held[0].Ended = held[1].Granted + 1 }},
		"under no token":      {"no such grant", func(_ *stage, held []*history.Hold) { held[1].Token += 100 }},
		"too early": {"before its client's deadline", func(s *stage, _ []*history.Hold) {
			expired := s.ops("close_session")[1].Call
			s.heartbeatAt(5, expired-ttl*3/2)
			s.heartbeatAt(5, expired-ttl*3/4)
		}},
		"a lost entry":      {"by the log it is", func(s *stage, _ []*history.Hold) { s.entries = s.entries[1:] }},
		"another snapshot":  {"the snapshot before the log", func(s *stage, _ []*history.Hold) { s.snapshot[len(s.snapshot)/2] ^= 1 }},
		"an older snapshot": {"entry", func(s *stage, _ []*history.Hold) { s.snapshot = youngState(t) }},
	} {
		t.Run(what, func(t *testing.T) {
			s, held := midway(t)
			s.stored()
			forge.forge(s, held)
			s.refused(forge.fault)
		})
	}
}

// youngState is a snapshot of a new cluster.
func youngState(t *testing.T) []byte {
	s := newStage(t)
	s.open(ttl)
	s.compact()
	return s.snapshot
}
