package replica

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
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
		p := newProposer(nil, func() *wire.Result { return refused(wire.Status_NOT_LEADER, "") })
		ask := func() {
			p.prove(got.done)
			p.heartbeat(heartbeat{session: 1, done: got.done})
			p.submit([]Proposal{{Command: &wire.Command{}, Size: 1, Done: got.done}}, nil, nil)
			p.mark(7)
		}
		no := []wire.Status_Code{wire.Status_NOT_LEADER, wire.Status_NOT_LEADER}
		ask()
		got.want(t, "before a leadership", no...) // submit returns its refusals instead
		p.begin(7)
		if p.urge(6, item{}) || !p.urge(7, item{size: 3, work: 2}) || p.bytes != 3 || p.work != 2 {
			t.Errorf("the urgent queue has %d, of %d bytes and work %d", len(p.urgent), p.bytes, p.work)
		}
		p.serve(6, 9)
		ask()
		got.want(t, "before it serves", no...)
		if p.timer != nil || p.marks || p.level != 0 {
			t.Error("something was queued")
		}
		p.serve(7, 2)
		p.mark(6)
		if p.marks {
			t.Error("marked for another term")
		}
		ask()
		ask()
		got.want(t, "while it serves")
		if waiting, due := lingering(p); p.queued() != 3 || len(p.proofs) != 2 || len(p.heartbeats) != 2 || !p.marks || !waiting || due {
			t.Errorf("queued: %d commands, %d proofs, %d heartbeats", p.queued(), len(p.proofs), len(p.heartbeats))
		}
		time.Sleep(linger)
		synctest.Wait()
		if waiting, due := lingering(p); !due || waiting {
			t.Error("the heartbeats do not become due")
		}
		p.heartbeat(heartbeat{done: got.done})
		if waiting, _ := lingering(p); waiting {
			t.Error("they linger again")
		}
		p.end(refused(wire.Status_UNCERTAIN, ""))
		got.want(t, "at its end", slices.Repeat([]wire.Status_Code{wire.Status_UNCERTAIN}, 7)...)
		if _, due := lingering(p); p.queued() != 0 || due || p.marks || p.bytes != 0 || p.work != 0 || p.backlog != 0 || p.growth.Load() != 0 || p.term != 0 {
			t.Error("something is left of the leadership")
		}
		p.stop()
		if p.urge(9, item{}) {
			t.Error("queued after the end")
		}
		p.end(nil)
	})
}

// TestHeartbeatsOfTheNextLeadershipLinger ends a leadership while heartbeats linger, and verifies that those of
// the next one linger in full.
func TestHeartbeatsOfTheNextLeadershipLinger(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var got statuses
		p := newProposer(nil, func() *wire.Result { return refused(wire.Status_NOT_LEADER, "") })
		p.begin(8)
		p.serve(8, 2)
		p.heartbeat(heartbeat{done: got.done})
		p.end(refused(wire.Status_UNCERTAIN, ""))
		p.begin(9)
		p.serve(9, 2)
		p.heartbeat(heartbeat{done: got.done})
		if waiting, _ := lingering(p); !waiting {
			t.Error("heartbeats of the next leadership do not become due")
		}
		time.Sleep(linger)
		synctest.Wait()
		if _, due := lingering(p); !due {
			t.Error("the heartbeat of the next leadership is not due")
		}
		p.end(nil)
	})
}

// lingering reports whether heartbeats are lingering, and whether they have lingered long enough.
func lingering(p *proposer) (waiting, due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.timer != nil, p.due
}

// TestProofsAndHeartbeatsAreBounded fills both queues to their limits.
func TestProofsAndHeartbeatsAreBounded(t *testing.T) {
	p, answers := queueing(), 0
	done := func(result *wire.Result) {
		if answers++; result.GetStatus() != wire.Status_UNAVAILABLE {
			t.Errorf("answered %v", result)
		}
	}
	p.proofs = make([]func(*wire.Result), maxQueued-1)
	p.heartbeats = make([]heartbeat, maxHeartbeats-1)
	p.prove(done)
	p.heartbeat(heartbeat{done: done})
	if answers != 0 || len(p.proofs) != maxQueued || len(p.heartbeats) != maxHeartbeats {
		t.Errorf("the last place is not taken: %d, %d", len(p.proofs), len(p.heartbeats))
	}
	p.prove(done)
	p.heartbeat(heartbeat{done: done})
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
	p.resume(1)
	if p.pauses != 0 {
		t.Errorf("%d pauses", p.pauses)
	}
	p.inflight = 2
	first, second, other := p.pause(1), p.pause(1), p.pause(2)
	if p.pauses != 2 || closed(first) || closed(second) || closed(other) {
		t.Errorf("%d pauses", p.pauses)
	}
	p.growth.Store(9)
	p.finished(&batch{growth: 4}, appliedEntry{})
	if closed(first) || p.growth.Load() != 5 {
		t.Error("drained with an entry in flight")
	}
	p.finished(&batch{}, appliedEntry{})
	if !closed(first) || !closed(second) || !closed(p.pause(1)) {
		t.Error("not drained")
	}
	p.resume(2)
	if p.pauses != 3 {
		t.Error("another term resumes")
	}
	p.resume(1)
	p.end(nil)
	if p.pauses != 0 {
		t.Error("the pause outlasts the leadership")
	}
}

// TestEntryLevels verifies that an entry's level is the replicated one, or that of a command with a higher
// one.
func TestEntryLevels(t *testing.T) {
	p := newProposer(nil, nil)
	for _, c := range []struct {
		raised, item uint32
		want         uint32
	}{{0, 0, 1}, {2, 0, 2}, {1, 0, 2}, {0, 3, 3}, {0, 1, 2}, {4, 3, 4}} {
		p.raised(c.raised)
		if got := p.entryLevel(&batch{items: []item{{}, {level: c.item}, {}}}); got != c.want {
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
		"too few":       {answering(1), errMismatch, wire.Status_UNCERTAIN},
		"too many":      {answering(3), errMismatch, wire.Status_UNCERTAIN},
		"nothing":       {nil, errMismatch, wire.Status_UNCERTAIN},
		"an error":      {broken, broken, wire.Status_UNCERTAIN},
		"a malformed":   {fmt.Errorf("%w: x", fsm.ErrMalformed), fsm.ErrMalformed, wire.Status_INTERNAL},
		"a newer level": {fsm.ErrUpgrade, fsm.ErrUpgrade, wire.Status_UNCERTAIN},
	} {
		applied, err := outcome(&batch{items: make([]item, 2), future: committed{c.response}})
		if !errors.Is(err, c.want) || (err == nil) != (applied.Applied != nil) {
			t.Errorf("%s: %v, %v", name, applied, err)
		}
		if err != nil && fateUnapplied(err).GetStatus() != c.fate {
			t.Errorf("%s is answered %v", name, fateUnapplied(err))
		}
	}
}

var _ raft.ApplyFuture = committed{}

// TestFailedWrites verifies that a failed write comes with advice only if there is a remedy.
func TestFailedWrites(t *testing.T) {
	for err, room := range map[error]bool{syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EIO: false} {
		if got := advice(fmt.Errorf("write: %w", err)) != ""; got != room {
			t.Errorf("%v: advice to make room: %v", err, got)
		}
		var failures []error
		g := newWatchdog(raft.NewInmemStore(), raft.NewInmemStore(), time.Hour, func(err error) { failures = append(failures, err) })
		if got := g.write("try", func() error { return err }); !errors.Is(got, ErrStore) || !errors.Is(got, err) {
			t.Errorf("the write returns %v", got)
		}
		for name, later := range map[string]error{"write": g.write("try", nil), "beside": g.beside("try", nil), "store": g.StoreLog(&raft.Log{Index: 1})} {
			if !errors.Is(later, errBroken) {
				t.Errorf("after a failure %s returns %v", name, later)
			}
		}
		if len(failures) != 1 || !errors.Is(failures[0], err) {
			t.Errorf("reported %v", failures)
		}
	}
}

// TestWhatReadingReturns verifies that reading damage stops the node, and that no other error does.
func TestWhatReadingReturns(t *testing.T) {
	for err, stops := range map[error]bool{nil: false, raft.ErrLogNotFound: false, fmt.Errorf("%w: x", ErrDamaged): true} {
		stopped := false
		g := newWatchdog(nil, nil, time.Hour, func(error) { stopped = true })
		if got := g.read(err); got != err || stopped != stops || g.broken.Load() != stops {
			t.Errorf("%v: returned %v, stopped %v", err, got, stopped)
		}
	}
}

// TestSlowDisks verifies that a disk counts as slow while a write is late, and for some time after one that
// took very long.
func TestSlowDisks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := newWatchdog(nil, nil, 7*time.Second, nil)
		want := func(when string, slow bool, told int) {
			t.Helper()
			if g.isSlow(time.Minute) != slow || len(g.slow) != told {
				t.Errorf("%s: slow %v, told %d", when, !slow, len(g.slow))
			}
		}
		want("at first", false, 0)
		g.passed(1)
		want("late", true, 0)
		g.late.Store(0)
		want("in time again", false, 0)
		g.passed(handOverSteps(g.timeout) - 1)
		g.late.Store(0)
		want("almost as late as a hand-over takes", false, 0)
		g.passed(handOverSteps(g.timeout))
		g.late.Store(0)
		want("as late as a hand-over takes", true, 1)
		g.passed(handOverSteps(g.timeout) + 1)
		g.late.Store(0)
		want("very late", true, 1)
		time.Sleep(time.Minute - 1)
		want("within a minute", true, 1)
		time.Sleep(time.Nanosecond)
		want("after a minute", false, 1)
	})
}

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
	p.recycle(b)
	runtime.GC()
	if answered.Value() != nil {
		t.Error("the proposer holds on to a command that was answered")
	}
	runtime.KeepAlive(p)
}

// TestHaltedNodeProposesNothing verifies that a node that has failed proposes no entries.
func TestHaltedNodeProposesNothing(t *testing.T) {
	r := &Replica{}
	r.halted.Store(&errDisk)
	if got := fate(r.apply([]byte("entry"), time.Minute).Error()); got.GetStatus() != wire.Status_NOT_LEADER {
		t.Errorf("answered %v", got)
	}
}
