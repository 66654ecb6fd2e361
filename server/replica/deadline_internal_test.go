package replica

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// decisions records what deadlines decide, and answers in place of the log.
type decisions struct {
	mu     sync.Mutex
	made   []ending
	at     []time.Time
	answer *wire.Result
}

func (k *decisions) expire(_ uint64, e ending, answered func(*wire.Result)) bool {
	k.mu.Lock()
	k.made, k.at = append(k.made, e), append(k.at, time.Now())
	answer := k.answer
	k.mu.Unlock()
	answered(answer)
	return true
}

func (k *decisions) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.made)
}

func openDeadlines(t *testing.T, answer wire.Status_Code) (*deadlines, *decisions) {
	k := &decisions{answer: refused(answer, "")}
	d := newDeadlines(k.expire)
	var running sync.WaitGroup
	running.Go(d.run)
	t.Cleanup(func() {
		d.close()
		running.Wait()
	})
	d.start(7, fsm.New(1))
	return d, k
}

func opened(session uint64, ttl time.Duration) []*wire.Event {
	return []*wire.Event{{Type: wire.Event_SESSION_OPENED, SessionId: session, Generation: 1, TtlMs: uint32(ttl.Milliseconds())}}
}

func TestRefusedEndsAreProposedAgainUntilTheReignEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d, k := openDeadlines(t, wire.Status_UNAVAILABLE)
		d.observe(opened(1, time.Second))
		time.Sleep(2 * time.Second)
		if n := k.count(); n < 40 || n > 60 {
			t.Errorf("proposed %d times in a second", n)
		}
		if s := d.touch(1, time.Now()); s != decided {
			t.Errorf("a decided session is %v", s)
		}
		d.stop()
		n := k.count()
		time.Sleep(time.Second)
		if k.count() != n {
			t.Error("decided after the reign")
		}
	})
}

// TestNewGenerationLives verifies that an attach that was in the log before the expiry wins, because it has a
// newer generation.
func TestNewGenerationLives(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d, k := openDeadlines(t, wire.Status_FAILED_PRECONDITION)
		d.observe(opened(1, time.Second))
		time.Sleep(time.Second)
		synctest.Wait()
		d.observe([]*wire.Event{{Type: wire.Event_SESSION_ATTACHED, SessionId: 1, Generation: 2, TtlMs: 1000}})
		if s := d.touch(1, time.Now()); s != alive {
			t.Errorf("attached, it is %v", s)
		}
		time.Sleep(900 * time.Millisecond)
		if n := k.count(); n != 1 {
			t.Errorf("decided %d times", n)
		}
		time.Sleep(200 * time.Millisecond)
		if k.count() != 2 || k.made[1].generation != 2 {
			t.Errorf("decided %v", k.made)
		}
	})
}

// TestStallForgives verifies that deadlines which are due after the process stood still are extended a
// little, since what the clients sent is still unread.
func TestStallForgives(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := &decisions{answer: refused(wire.Status_OK, "")}
		d := newDeadlines(k.expire) // not running, as if the process were stopped
		d.start(7, fsm.New(1))
		d.observe(opened(1, 8*time.Second))
		d.observe(opened(2, 8*time.Second))
		time.Sleep(9 * time.Second) // SIGSTOP until a second after the end
		d.forgive(time.Now())
		d.decide(time.Now())
		if k.count() != 0 {
			t.Fatal("decided before anybody could be heard")
		}
		d.touch(1, time.Now()) // what was still unread
		time.Sleep(time.Second)
		d.decide(time.Now())
		if k.count() != 1 || k.made[0].id != 2 {
			t.Errorf("decided %v, want session 2 alone", k.made)
		}
	})
}

// TestStallsForgiveOnce verifies that an end is decided even if every timer fires late.
func TestStallsForgiveOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := &decisions{answer: refused(wire.Status_OK, "")}
		d := newDeadlines(k.expire)
		d.start(7, fsm.New(1))
		d.observe(opened(1, 8*time.Second))
		next := 8 * time.Second
		for begin := time.Now(); k.count() == 0; next = d.decide(time.Now()) {
			time.Sleep(next + time.Second) // always late
			if time.Since(begin) > 16*time.Second {
				t.Fatal("twice its TTL after its last sign of life a session has not expired")
			}
			d.forgive(time.Now())
		}
	})
}

// TestEndedWaitsLeaveTheHeap verifies that deadlines of waits that ended otherwise leave nothing behind.
func TestEndedWaitsLeaveTheHeap(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d, _ := openDeadlines(t, wire.Status_OK)
		for i := range uint64(1000) {
			d.observe([]*wire.Event{{Type: wire.Event_QUEUED, SessionId: 1, HoldId: i + 1, Generation: 1, WaitMs: 600_000}})
			d.observe([]*wire.Event{{Type: []wire.Event_Type{wire.Event_GRANTED, wire.Event_CANCELLED}[i%2], SessionId: 1, HoldId: i + 1}})
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.heap) != 0 || len(d.tables[ofWait]) != 0 {
			t.Errorf("%d in the heap, %d waits", len(d.heap), len(d.tables[ofWait]))
		}
	})
}

// TestEndedHoldsLeaveTheHeap verifies the same for holds and lock-delays, even if each was started several
// times.
func TestEndedHoldsLeaveTheHeap(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d, k := openDeadlines(t, wire.Status_OK)
		for i := range uint64(999) {
			hold := func(what wire.Event_Type, ms uint32) *wire.Event {
				return &wire.Event{Type: what, SessionId: 1, HoldId: i + 1, Generation: 1, MaxHoldMs: ms, LockDelayMs: 60_000}
			}
			d.observe([]*wire.Event{
				hold(wire.Event_GRANTED, 60_000), hold(wire.Event_EXTENDED, 60_000), hold(wire.Event_REVOKED, 0), hold(wire.Event_REVOKED, 60_000),
				hold([]wire.Event_Type{wire.Event_RELEASED, wire.Event_EXPIRED, wire.Event_FORCED}[i%3], 0),
				hold(wire.Event_DELAYED, 0), hold(wire.Event_DELAY_ENDED, 0),
			})
		}
		time.Sleep(2 * time.Minute)
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.heap)+len(d.tables[ofHold])+len(d.tables[ofDelay]) != 0 || k.count() != 0 {
			t.Errorf("%d in the heap, %d decided", len(d.heap), k.count())
		}
	})
}

// TestEndsCarryTheirTerm verifies that an end carries the term in which it was decided and is not proposed in
// another one.
func TestEndsCarryTheirTerm(t *testing.T) {
	r := &Replica{proposer: newProposer(nil, nil), machine: fsm.NewReplicated(1, nil)}
	r.proposer.begin(7)
	if r.proposeEnding(6, ending{ofSession, 1, 2}, nil) {
		t.Error("an end of term 6 was proposed under term 7")
	}
	for of := range kinds {
		r.proposeEnding(7, ending{of, 3, 4}, nil)
	}
	b := r.proposer.take()
	if len(b.items) != int(kinds) {
		t.Fatalf("proposed %v", b.items)
	}
	if e := b.items[ofSession].cmd.GetExpireSession(); e.GetTerm() != 7 || e.GetSessionId() != 3 || e.GetGeneration() != 4 {
		t.Errorf("proposed %v", e)
	}
	if w := b.items[ofWait].cmd.GetTimeoutWait(); w.GetTerm() != 7 || w.GetWaitId() != 3 || w.GetGeneration() != 4 {
		t.Errorf("proposed %v", w)
	}
	if h := b.items[ofHold].cmd.GetExpireHold(); h.GetTerm() != 7 || h.GetHoldId() != 3 || h.GetGeneration() != 4 {
		t.Errorf("proposed %v", h)
	}
	if l := b.items[ofDelay].cmd.GetEndDelay(); l.GetTerm() != 7 || l.GetHoldId() != 3 || l.GetGeneration() != 4 {
		t.Errorf("proposed %v", l)
	}
}

// TestHoldRemaining verifies that the earlier of a hold's deadlines counts.
func TestHoldRemaining(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d, _ := openDeadlines(t, wire.Status_OK)
		r := &Replica{deadlines: d}
		for i, c := range []struct{ bound, grace, want time.Duration }{
			{0, 0, 0}, {time.Minute, 0, time.Minute}, {0, time.Hour, time.Hour}, {time.Minute, time.Hour, time.Minute}, {time.Hour, time.Minute, time.Minute},
		} {
			hold := uint64(i + 1)
			d.observe([]*wire.Event{
				{Type: wire.Event_GRANTED, HoldId: hold, MaxHoldMs: uint32(c.bound.Milliseconds())},
				{Type: wire.Event_REVOKED, HoldId: hold, MaxHoldMs: uint32(c.grace.Milliseconds())},
			})
			if left, ends := r.HoldRemaining(hold); left != c.want || ends != (c.want > 0) {
				t.Errorf("max_hold %v, grace %v: %v is left, %v", c.bound, c.grace, left, ends)
			}
		}
	})
}
