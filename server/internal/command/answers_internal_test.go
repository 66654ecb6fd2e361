package command

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/expiry"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/internal/metrics"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// leading is a processor without raft that leads term 1 of a cluster.
type leading struct {
	*Processor
	halted error
}

func newLeading(t *testing.T) *leading {
	t.Helper()
	l := &leading{}
	l.Processor = New(Config{
		Machine: fsm.NewReplicated(fsm.Level, func(err error) { t.Error(err) }), Metrics: metrics.New(nil), Logger: hclog.NewNullLogger(),
		Refusal: func() *wire.Result { return status.Result(wire.Status_NOT_LEADER, "") }, Halt: func(err error) { l.halted = err },
	})
	l.applyNow(t, &wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Settings: fsm.DefaultSettings()}}},
		&wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: 1, LeaderId: "n1"}}})
	l.Proposer.Begin(1)
	l.cfg.Machine.View(func(m *fsm.Machine) { l.Deadlines.Start(1, m) })
	l.Notifier.Open()
	l.Proposer.Serve(1, 1)
	return l
}

// applyNow makes the state machine apply one entry with these commands.
func (p *Processor) applyNow(t *testing.T, commands ...*wire.Command) *fsm.Applied {
	t.Helper()
	data, err := proto.Marshal(&wire.Entry{Level: 1, Commands: commands})
	if err != nil {
		t.Fatal(err)
	}
	switch applied := p.cfg.Machine.Apply(&raft.Log{Index: p.cfg.Machine.AppliedIndex() + 1, Data: data}).(type) {
	case *fsm.Applied:
		return applied
	default:
		t.Fatal(applied)
		return nil
	}
}

// opening returns a command that opens a session with a TTL of one minute.
func opening(name string) *wire.Command {
	hash := make([]byte, 32)
	copy(hash, name)
	return &wire.Command{Op: &wire.Command_OpenSession{OpenSession: &wire.OpenSession{SecretHash: hash, TtlMs: 60_000}}}
}

// openNow opens a session in the state machine and in the deadlines.
func (p *Processor) openNow(t *testing.T, name string) uint64 {
	t.Helper()
	applied := p.applyNow(t, opening(name))
	p.Deadlines.Observe(applied.Events)
	return applied.Results[0].GetSession().GetSessionId()
}

// TestAnswersToAnEntry completes an entry with three commands, a proof and heartbeats.
func TestAnswersToAnEntry(t *testing.T) {
	r := newLeading(t)
	one, two := r.openNow(t, "one"), r.openNow(t, "two")
	var got statuses
	pushed := received{}
	r.Notifier.Bind(one, &pushed)
	exhausted := func(session uint64) bool {
		one := []Proposal{{Command: &wire.Command{SessionId: session}}}
		r.touchAll(one, time.Now())
		return one[0].Exhausted
	}
	r.Deadlines.SetExhausted(two, true)
	b := &groupcommit.Batch{
		Term:       1,
		Items:      []groupcommit.Item{{Command: acquireOf(one, 1), Done: got.done}, {Command: acquireOf(two, 1), Done: got.done}, {Command: acquireOf(two, 2)}},
		Proofs:     []func(*wire.Result){got.done},
		Heartbeats: []groupcommit.Heartbeat{{Session: one, Done: got.done}, {Session: 1 << 40, Done: got.done}},
		Future: committed{&fsm.Applied{
			Results: []*wire.Result{{Status: wire.Status_RESOURCE_EXHAUSTED}, {Status: wire.Status_GRANTED}, {Status: wire.Status_OK}},
			Events: []*wire.Event{
				{Type: wire.Event_FORCED, SessionId: one, HoldId: 7},
				{Type: wire.Event_SESSION_OPENED, SessionId: 99, TtlMs: 1_000},
			},
			Failures: []fsm.Failure{{Command: 2}},
		}},
	}
	r.completeBatch(b)
	got.want(t, "applied", wire.Status_RESOURCE_EXHAUSTED, wire.Status_GRANTED, wire.Status_OK, wire.Status_OK, wire.Status_SESSION_LOST)
	if !exhausted(one) || !exhausted(two) {
		t.Errorf("exhausted: %v, %v; only a refusal changes that", exhausted(one), exhausted(two))
	}
	if len(pushed) != 1 || r.Deadlines.Touch(99, time.Now()) != expiry.Alive {
		t.Errorf("pushed %v", pushed)
	}
	if r.Deadlines.SetExhausted(two, false); exhausted(two) {
		t.Error("it stays exhausted")
	}
}

// TestEntriesThatFailed completes entries that raft refused, that cannot be applied, or for which the state
// machine returns another number of results. Only the last kind stops the node.
func TestEntriesThatFailed(t *testing.T) {
	for name, c := range map[string]struct {
		future raft.ApplyFuture
		want   wire.Status_Code
		halts  error
	}{
		"refused":    {groupcommit.Failed{Err: raft.ErrNotLeader}, wire.Status_NOT_LEADER, nil},
		"lost":       {groupcommit.Failed{Err: raft.ErrLeadershipLost}, wire.Status_UNCERTAIN, nil},
		"malformed":  {committed{fsm.ErrMalformed}, wire.Status_INTERNAL, nil},
		"mismatched": {committed{&fsm.Applied{}}, wire.Status_UNCERTAIN, groupcommit.ErrMismatch},
	} {
		r := newLeading(t)
		var got statuses
		r.completeBatch(&groupcommit.Batch{
			Term: 1, Future: c.future, Items: []groupcommit.Item{{Command: acquireOf(1, 1), Done: got.done}, {Command: acquireOf(1, 2)}},
			Proofs: []func(*wire.Result){got.done}, Heartbeats: []groupcommit.Heartbeat{{Session: 1, Done: got.done}},
		})
		got.want(t, name, c.want, c.want, c.want)
		if (r.halted != nil) != (c.halts != nil) || r.halted != nil && !errors.Is(r.halted, c.halts) {
			t.Errorf("%s: halted with %v", name, r.halted)
		}
	}
}

// TestOnAnswered verifies that only the latest callback is called after each entry, and none after its cancel.
func TestOnAnswered(t *testing.T) {
	r := &Processor{}
	r.answered()
	first, second := 0, 0
	cancelFirst := r.OnAnswered(func() { first++ })
	cancelSecond := r.OnAnswered(func() { second++ })
	cancelFirst() // has no effect: it is not the latest
	r.answered()
	cancelSecond()
	r.answered()
	if first != 0 || second != 1 {
		t.Errorf("called %d and %d times", first, second)
	}
}

// TestHeartbeatsByTheStateOfTheirSession verifies heartbeats of sessions in each state, both when they arrive
// and when they are proved.
func TestHeartbeatsByTheStateOfTheirSession(t *testing.T) {
	r := newLeading(t)
	sessions := map[expiry.State]uint64{expiry.Unknown: 1 << 40}
	for _, state := range []expiry.State{expiry.Alive, expiry.Leased, expiry.Decided} {
		sessions[state] = r.openNow(t, string(rune('a'+state)))
	}
	r.Deadlines.Observe([]*wire.Event{{Type: wire.Event_SESSION_EXTENDED, SessionId: sessions[expiry.Leased], TtlMs: 60_000}})
	r.Deadlines.Observe(opened(sessions[expiry.Decided], time.Second))
	r.Deadlines.Decide(time.Now().Add(2 * time.Second))
	ahead := uint64(1 << 41) // the state machine has closed it, but the deadlines do not know that yet
	r.Deadlines.Observe(opened(ahead, time.Minute))
	order := []expiry.State{expiry.Unknown, expiry.Alive, expiry.Leased, expiry.Decided}

	var got statuses
	for _, state := range order {
		r.Heartbeat(sessions[state], nil, got.done)
	}
	got.want(t, "at once", wire.Status_SESSION_LOST, wire.Status_INVALID_ARGUMENT, wire.Status_SESSION_LOST)

	prove := func(term uint64) *groupcommit.Batch {
		b := &groupcommit.Batch{Term: term}
		for _, state := range order {
			b.Heartbeats = append(b.Heartbeats, groupcommit.Heartbeat{Session: sessions[state], Done: got.done})
		}
		b.Heartbeats = append(b.Heartbeats, groupcommit.Heartbeat{Session: ahead, Done: got.done})
		return b
	}
	lost := wire.Status_SESSION_LOST
	r.answerHeartbeats(prove(1))
	got.want(t, "proved", lost, wire.Status_OK, lost, lost, lost)
	r.answerHeartbeats(prove(2))
	got.want(t, "proved under another term", slices.Repeat([]wire.Status_Code{wire.Status_NOT_LEADER}, 5)...)
	r.Deadlines.Stop()
	r.Heartbeat(sessions[expiry.Alive], nil, got.done)
	got.want(t, "after the leadership", wire.Status_NOT_LEADER)
	r.Proposer.End(status.Result(wire.Status_NOT_LEADER, ""))
}

// received are the pushes that a connection got.
type received []*wire.Push

func (s *received) Push(p *wire.Push) { *s = append(*s, p) }

// statuses collects the statuses of results.
type statuses []wire.Status_Code

func (s *statuses) done(result *wire.Result) { *s = append(*s, result.GetStatus()) }

func (s *statuses) want(t *testing.T, when string, want ...wire.Status_Code) {
	t.Helper()
	if !slices.Equal(*s, want) {
		t.Errorf("%s: answered %v, want %v", when, *s, want)
	}
	*s = nil
}

// committed is the future of an entry that was committed.
type committed struct{ response any }

func (c committed) Error() error  { return nil }
func (c committed) Response() any { return c.response }
func (c committed) Index() uint64 { return 1 }

func acquireOf(session, seq uint64) *wire.Command {
	return &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_Acquire{Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{}}}}}
}
