package groupcommit

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

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

// TestQueueIsOpenForItsLeadershipOnly uses the queue before, during and after a leadership, and with another term.
func TestQueueIsOpenForItsLeadershipOnly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var got statuses
		p := New(nil, func() *wire.Result { return status.Result(wire.Status_NOT_LEADER, "") })
		ask := func() {
			p.Prove(got.done)
			p.AddHeartbeat(Heartbeat{Session: 1, Done: got.done})
			p.Submit([]Proposal{{Command: &wire.Command{}, Size: 1, Done: got.done}}, nil, nil)
			p.Mark(7)
		}
		no := []wire.Status_Code{wire.Status_NOT_LEADER, wire.Status_NOT_LEADER}
		ask()
		got.want(t, "before a leadership", no...) // submit returns its refusals instead
		p.Begin(7)
		if p.ProposeUrgent(6, Item{}) || !p.ProposeUrgent(7, Item{size: 3, Work: 2}) || p.bytes != 3 || p.work != 2 {
			t.Errorf("the urgent queue has %d, of %d bytes and work %d", len(p.urgent), p.bytes, p.work)
		}
		p.Serve(6, 9)
		ask()
		got.want(t, "before it serves", no...)
		if p.timer != nil || p.marks || p.level != 0 {
			t.Error("something was queued")
		}
		p.Serve(7, 2)
		p.Mark(6)
		if p.marks {
			t.Error("marked for another term")
		}
		ask()
		ask()
		got.want(t, "while it serves")
		if waiting, due := lingering(p); p.Queued() != 3 || len(p.proofs) != 2 || len(p.heartbeats) != 2 || !p.marks || !waiting || due {
			t.Errorf("queued: %d commands, %d proofs, %d heartbeats", p.Queued(), len(p.proofs), len(p.heartbeats))
		}
		time.Sleep(linger)
		synctest.Wait()
		if waiting, due := lingering(p); !due || waiting {
			t.Error("the heartbeats do not become due")
		}
		p.AddHeartbeat(Heartbeat{Done: got.done})
		if waiting, _ := lingering(p); waiting {
			t.Error("they linger again")
		}
		p.End(status.Result(wire.Status_UNCERTAIN, ""))
		got.want(t, "at its end", slices.Repeat([]wire.Status_Code{wire.Status_UNCERTAIN}, 7)...)
		if _, due := lingering(p); p.Queued() != 0 || due || p.marks || p.bytes != 0 || p.work != 0 || p.backlog != 0 || p.growth.Load() != 0 || p.term != 0 {
			t.Error("something is left of the leadership")
		}
		p.Stop()
		if p.ProposeUrgent(9, Item{}) {
			t.Error("queued after the end")
		}
		p.End(nil)
	})
}

// TestHeartbeatsOfTheNextLeadershipLinger ends a leadership while heartbeats linger, and verifies that those of
// the next one linger in full.
func TestHeartbeatsOfTheNextLeadershipLinger(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var got statuses
		p := New(nil, func() *wire.Result { return status.Result(wire.Status_NOT_LEADER, "") })
		p.Begin(8)
		p.Serve(8, 2)
		p.AddHeartbeat(Heartbeat{Done: got.done})
		p.End(status.Result(wire.Status_UNCERTAIN, ""))
		p.Begin(9)
		p.Serve(9, 2)
		p.AddHeartbeat(Heartbeat{Done: got.done})
		if waiting, _ := lingering(p); !waiting {
			t.Error("heartbeats of the next leadership do not become due")
		}
		time.Sleep(linger)
		synctest.Wait()
		if _, due := lingering(p); !due {
			t.Error("the heartbeat of the next leadership is not due")
		}
		p.End(nil)
	})
}

// lingering reports whether heartbeats are lingering, and whether they have lingered long enough.
func lingering(p *Proposer) (waiting, due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.timer != nil, p.due
}

// TestBarriersAndHeartbeatsAreBounded fills both queues to their limits.
func TestBarriersAndHeartbeatsAreBounded(t *testing.T) {
	p, answers := queueing(), 0
	done := func(result *wire.Result) {
		if answers++; result.GetStatus() != wire.Status_UNAVAILABLE {
			t.Errorf("answered %v", result)
		}
	}
	p.proofs = make([]func(*wire.Result), maxQueued-1)
	p.heartbeats = make([]Heartbeat, maxHeartbeats-1)
	p.Prove(done)
	p.AddHeartbeat(Heartbeat{Done: done})
	if answers != 0 || len(p.proofs) != maxQueued || len(p.heartbeats) != maxHeartbeats {
		t.Errorf("the last place is not taken: %d, %d", len(p.proofs), len(p.heartbeats))
	}
	p.Prove(done)
	p.AddHeartbeat(Heartbeat{Done: done})
	if answers != 2 || len(p.proofs) != maxQueued || len(p.heartbeats) != maxHeartbeats {
		t.Errorf("beyond the last place: %d answers", answers)
	}
	p.timer.Stop()
}

// TestPausesAreCounted pauses twice, with an entry in flight.
func TestPausesAreCounted(t *testing.T) {
	p := queueing()
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	p.Resume(1)
	if p.pauses != 0 {
		t.Errorf("%d pauses", p.pauses)
	}
	p.inflight = 2
	first, second, other := p.Pause(1), p.Pause(1), p.Pause(2)
	if p.pauses != 2 || closed(first) || closed(second) || closed(other) {
		t.Errorf("%d pauses", p.pauses)
	}
	p.growth.Store(9)
	p.Finished(&Batch{growth: 4}, nil)
	if closed(first) || p.growth.Load() != 5 {
		t.Error("drained with an entry in flight")
	}
	p.Finished(&Batch{}, nil)
	if !closed(first) || !closed(second) || !closed(p.Pause(1)) {
		t.Error("not drained")
	}
	p.Resume(2)
	if p.pauses != 3 {
		t.Error("another term resumes")
	}
	p.Resume(1)
	p.End(nil)
	if p.pauses != 0 {
		t.Error("the pause outlasts the leadership")
	}
}

// TestEntryLevels verifies that an entry's level is the replicated one, or that of a command with a higher
// one.
func TestEntryLevels(t *testing.T) {
	p := New(nil, nil)
	for _, c := range []struct {
		raised, item uint32
		want         uint32
	}{{0, 0, 1}, {2, 0, 2}, {1, 0, 2}, {0, 3, 3}, {0, 1, 2}, {4, 3, 4}} {
		p.RaiseLevel(c.raised)
		if got := p.entryLevel(&Batch{Items: []Item{{}, {Level: c.item}, {}}}); got != c.want {
			t.Errorf("raised to %d, with a command of %d: %d, want %d", c.raised, c.item, got, c.want)
		}
	}
}

// committed is the future of an entry that was committed.
type committed struct{ response any }

func (c committed) Error() error  { return nil }
func (c committed) Response() any { return c.response }
func (c committed) Index() uint64 { return 1 }

// TestOutcomeOfAnEntry checks a state machine that returns too few results, too many, an error, and nothing.
func TestOutcomeOfAnEntry(t *testing.T) {
	broken := errors.New("broken")
	answering := func(n int) *fsm.Applied { return &fsm.Applied{Results: make([]*wire.Result, n)} }
	for name, c := range map[string]struct {
		response any
		want     error
		fate     wire.Status_Code
	}{
		"each command":  {answering(2), nil, 0},
		"too few":       {answering(1), ErrMismatch, wire.Status_UNCERTAIN},
		"too many":      {answering(3), ErrMismatch, wire.Status_UNCERTAIN},
		"nothing":       {nil, ErrMismatch, wire.Status_UNCERTAIN},
		"an error":      {broken, broken, wire.Status_UNCERTAIN},
		"a malformed":   {fmt.Errorf("%w: x", fsm.ErrMalformed), fsm.ErrMalformed, wire.Status_INTERNAL},
		"a newer level": {fsm.ErrUpgrade, fsm.ErrUpgrade, wire.Status_UNCERTAIN},
	} {
		applied, err := (&Batch{Items: make([]Item, 2), Future: committed{c.response}}).Applied()
		if !errors.Is(err, c.want) || (err == nil) != (applied != nil) {
			t.Errorf("%s: %v, %v", name, applied, err)
		}
		if err != nil && Unapplied(err).GetStatus() != c.fate {
			t.Errorf("%s is answered %v", name, Unapplied(err))
		}
	}
}

var _ raft.ApplyFuture = committed{}

// TestAnsweredCommandsAreForgotten verifies that nothing of a command is kept once it is answered.
func TestAnsweredCommandsAreForgotten(t *testing.T) {
	p := queueing()
	p.apply = func([]byte, time.Duration) raft.ApplyFuture { return committed{} }
	cmd := acquireOf(1, 1, 1)
	answered := weak.Make(cmd)
	p.queue(cmd, 1)
	cmd = nil
	b := p.take()
	p.propose(b)
	p.Recycle(b)
	runtime.GC()
	if answered.Value() != nil {
		t.Error("the proposer holds on to a command that was answered")
	}
	runtime.KeepAlive(p)
}

func expireSession(id uint64) *wire.Command {
	return &wire.Command{Op: &wire.Command_ExpireSession{ExpireSession: &wire.ExpireSession{SessionId: id, Term: 1, Generation: 1}}}
}

// TestLargestCommand verifies that a command may be exactly as large as an entry.
func TestLargestCommand(t *testing.T) {
	p := queueing()
	for size, want := range map[int]int{MaxEntryBytes - itemOverhead: 0, MaxEntryBytes - itemOverhead + 1: 1} {
		no := p.Submit([]Proposal{{Command: acquireOf(1, 1, 1), Size: size, Work: 1}}, nil, nil)
		if len(no) != want || want == 1 && no[0].result.GetStatus() != wire.Status_RESOURCE_EXHAUSTED {
			t.Errorf("%d bytes: refused %v", size, no)
		}
	}
}

// TestWhichRefusalCounts verifies which reason counts if there are several: a faulty command displaces no
// other one, and a node that accepts no commands does not report their faults.
func TestWhichRefusalCounts(t *testing.T) {
	p, fault := queueing(), status.Result(wire.Status_INVALID_ARGUMENT, "")
	submit := func(faults []*wire.Result, want wire.Status_Code) {
		t.Helper()
		no := p.Submit([]Proposal{{Command: acquireOf(1, 1, 1), Size: 20, Work: 1, Done: func(*wire.Result) {}}}, faults, nil)
		if len(no) != 1 || no[0].result.GetStatus() != want {
			t.Errorf("refused %v, want %v", no, want)
		}
	}
	p.backlog = maxBacklog // of no sender that could make room
	submit([]*wire.Result{fault}, wire.Status_INVALID_ARGUMENT)
	if p.shed {
		t.Error("room was made for a faulty command")
	}
	submit([]*wire.Result{nil}, wire.Status_UNAVAILABLE)
	p.End(status.Result(wire.Status_NOT_LEADER, ""))
	submit([]*wire.Result{fault}, wire.Status_NOT_LEADER)
}

// TestUncommitted verifies that only what raft certainly refused is reported as not executed.
func TestUncommitted(t *testing.T) {
	for err, want := range map[error]wire.Status_Code{
		raft.ErrNotLeader:                    wire.Status_NOT_LEADER,
		raft.ErrEnqueueTimeout:               wire.Status_UNAVAILABLE,
		raft.ErrLeadershipTransferInProgress: wire.Status_UNAVAILABLE,
		raft.ErrLeadershipLost:               wire.Status_UNCERTAIN,
		raft.ErrRaftShutdown:                 wire.Status_UNCERTAIN,
		raft.ErrAbortedByRestore:             wire.Status_UNCERTAIN,
		errors.New("no space left"):          wire.Status_UNCERTAIN,
	} {
		if got := Uncommitted(err).Status; got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}
