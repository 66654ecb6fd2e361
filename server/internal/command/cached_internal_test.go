package command

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// caching returns an acquire of a cached hold of one lock.
func caching(session, seq uint64, name string) *wire.Command {
	return &wire.Command{SessionId: session, Seq: seq, Op: &wire.Command_AcquireCached{AcquireCached: &wire.AcquireCached{
		Acquire: &wire.Acquire{Locks: []*wire.LockRequest{{Name: name}}, Notify: true}, Tokens: 64, IdleMs: 60_000,
	}}}
}

// raiseLevel raises the cluster's feature level to that of this program.
func (l *leading) raiseLevel(t *testing.T) {
	t.Helper()
	l.applyNow(t, &wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: fsm.Level}}})
}

// events is what a client gets on its connection, in order: recalls by their hold, and answers to heartbeats.
type events []string

func (e *events) Push(p *wire.Push) {
	*e = append(*e, fmt.Sprint("recall of ", p.GetHoldNotice().GetHoldId(), p.GetHoldNotice().GetWanted()))
}

func (e *events) done(result *wire.Result) { *e = append(*e, result.GetStatus().String()) }

// TestRecallsAreRepeatedWithHeartbeats verifies that each acknowledged heartbeat repeats the recalls of the session's
// cached holds, before the answer, until the holds are released, and that other sessions get none.
func TestRecallsAreRepeatedWithHeartbeats(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newLeading(t)
		r.raiseLevel(t)
		one, two := r.openNow(t, "one"), r.openNow(t, "two")
		granted := r.applyNow(t, caching(one, 1, "a"), caching(one, 2, "b"), caching(one, 3, "c")).Results
		var got, other events
		r.Notifier.Bind(one, &got)
		r.Notifier.Bind(two, &other)
		heartbeat := func(term uint64, want ...string) {
			t.Helper()
			got, other = nil, nil
			r.answerHeartbeats(&groupcommit.Batch{Term: term, Heartbeats: []groupcommit.Heartbeat{{Session: one, Done: got.done}, {Session: two, Done: other.done}}})
			if !slices.Equal(got, want) || !slices.Equal(other, []string{want[len(want)-1]}) {
				t.Errorf("got %q, the other session %q, want %q", got, other, want)
			}
		}
		heartbeat(1, "OK")
		wait := r.applyNow(t, acquiring(two, 1, "a", forever), acquiring(two, 2, "c", forever)).Results
		for range 2 {
			heartbeat(1, fmt.Sprint("recall of ", granted[0].GetHoldId(), true), fmt.Sprint("recall of ", granted[2].GetHoldId(), true), "OK")
		}
		heartbeat(2, "NOT_LEADER")
		release := func(seq uint64, hold *wire.Result) *wire.Command {
			return &wire.Command{SessionId: one, Seq: seq, Op: &wire.Command_Release{Release: &wire.Release{HoldId: hold.GetHoldId(), Token: hold.GetToken()}}}
		}
		r.applyNow(t, release(4, granted[0]))
		heartbeat(1, fmt.Sprint("recall of ", granted[2].GetHoldId(), true), "OK")
		r.applyNow(t, release(5, granted[2]))
		heartbeat(1, "OK")
		if wait[0].GetStatus() != wire.Status_QUEUED {
			t.Error(wait)
		}
	})
}

// TestRepeatedRecallsAreBounded verifies that a heartbeat repeats the recalls of at most maxRecalls holds, the first ones.
func TestRepeatedRecallsAreBounded(t *testing.T) {
	r := newLeading(t)
	recalled := make([]*wire.HoldNotice, maxRecalls+1)
	for i := range recalled {
		recalled[i] = &wire.HoldNotice{HoldId: uint64(i), Wanted: true}
	}
	for _, n := range []int{maxRecalls, maxRecalls + 1} {
		var got events
		r.Notifier.Bind(1, &got)
		r.recall(groupcommit.Heartbeat{Session: 1, Recalled: recalled[:n]})
		if last := fmt.Sprint("recall of ", maxRecalls-1, true); len(got) != maxRecalls || got[maxRecalls-1] != last {
			t.Errorf("%d of %d recalls are repeated, the last one is %q, want %d and %q", len(got), n, got[len(got)-1], maxRecalls, last)
		}
	}
}

func forever(a *wire.Acquire) { a.WaitForever = true }

// TestHeartbeatsReportIdleHolds verifies that a heartbeat replaces what is known of the session's idle holds once it is
// acknowledged, and that it says nothing about the holds of others, holds that are not cached and ended holds.
func TestHeartbeatsReportIdleHolds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newLeading(t)
		r.raiseLevel(t)
		one, two := r.openNow(t, "one"), r.openNow(t, "two")
		granted := r.applyNow(t, caching(one, 1, "a"), caching(one, 2, "b"), acquiring(one, 3, "c", nil), caching(two, 1, "d")).Results
		sessions := []uint64{one, one, one, two}
		idle := func(holds ...int) (all []*wire.IdleHold) {
			for _, i := range holds {
				all = append(all, &wire.IdleHold{HoldId: granted[i].GetHoldId(), IdleMs: 1_000})
			}
			return append(all, &wire.IdleHold{HoldId: 1 << 40, IdleMs: 1_000})
		}
		want := func(what string, want ...int) {
			t.Helper()
			var known []int
			for i := range granted {
				for _, session := range []uint64{one, two} {
					if age, ok := r.IdleFor(session, granted[i].GetHoldId()); ok {
						known = append(known, i)
						if age != 2*time.Second || session != sessions[i] {
							t.Errorf("%s: hold %d is idle for %v, reported by %d", what, i, age, session)
						}
					}
				}
			}
			if !slices.Equal(known, want) {
				t.Errorf("%s: %v are idle, want %v", what, known, want)
			}
		}
		heartbeat := func(idle []*wire.IdleHold) *groupcommit.Batch {
			h := groupcommit.Heartbeat{Session: one, Done: func(*wire.Result) {}, Idle: idle, Arrived: time.Now()}
			time.Sleep(time.Second)
			return &groupcommit.Batch{Term: 1, Heartbeats: []groupcommit.Heartbeat{h}}
		}
		first := heartbeat(idle(0, 1, 2, 3))
		want("before the acknowledgement")
		r.answerHeartbeats(first)
		want("all reported", 0, 1)
		r.answerHeartbeats(heartbeat(idle(1)))
		want("one omitted", 1)
		r.answerHeartbeats(heartbeat(nil))
		want("all omitted")
	})
}

// TestHeartbeatsAreBounded verifies that a heartbeat with too many idle holds is refused, and is no sign of life.
func TestHeartbeatsAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newLeading(t)
		session := r.openNow(t, "one")
		time.Sleep(time.Second)
		var got []*wire.Result
		r.Heartbeat(session, make([]*wire.IdleHold, maxIdle+1), func(res *wire.Result) { got = append(got, res) })
		if len(got) != 1 || got[0].GetStatus() != wire.Status_INVALID_ARGUMENT || !strings.Contains(got[0].GetMessage(), "1025 idle holds: 1024 are allowed") {
			t.Errorf("answered %v", got)
		}
		if age, _ := r.HeartbeatAge(session); age != time.Second {
			t.Errorf("the last sign of life is %v old", age)
		}
		r.Heartbeat(session, make([]*wire.IdleHold, maxIdle), func(res *wire.Result) { got = append(got, res) })
		if age, _ := r.HeartbeatAge(session); len(got) != 1 || age != 0 {
			t.Errorf("answered %v, the last sign of life is %v old", got, age)
		}
		r.Proposer.End(&wire.Result{})
	})
}

// TestHeartbeatsOfOthersAllocateNothingMore verifies that recalls and idle reports cost sessions without cached holds no
// allocation. The lookup of a session costs one, and the answer one for all heartbeats.
func TestHeartbeatsOfOthersAllocateNothingMore(t *testing.T) {
	r := newLeading(t)
	r.raiseLevel(t)
	session := r.openNow(t, "one")
	r.applyNow(t, acquiring(session, 1, "a", nil))
	b := &groupcommit.Batch{Term: 1, Heartbeats: slices.Repeat([]groupcommit.Heartbeat{{Session: session, Done: func(*wire.Result) {}}}, 1_000)}
	if n := testing.AllocsPerRun(20, func() { r.answerHeartbeats(b) }); n > 1_010 {
		t.Errorf("%v allocations for 1,000 heartbeats", n)
	}
}

// TestCommandsBeyondTheLevel verifies that a cached hold is refused before the log while the cluster's level is too low.
func TestCommandsBeyondTheLevel(t *testing.T) {
	r := newLeading(t)
	session := r.openNow(t, "one")
	refused := func() string {
		cmd := caching(session, 1, "a")
		if faults := r.faults([]Proposal{{Command: cmd, Size: 100}}); faults != nil {
			return fmt.Sprint(faults[0].GetStatus(), ": ", faults[0].GetMessage())
		}
		return ""
	}
	if got, want := refused(), "UNSUPPORTED: the request needs feature level 2, the cluster is at 1: upgrade all nodes"; got != want {
		t.Errorf("refused with %q, want %q", got, want)
	}
	r.raiseLevel(t)
	if got := refused(); got != "" {
		t.Errorf("with the level, refused with %q", got)
	}
}
