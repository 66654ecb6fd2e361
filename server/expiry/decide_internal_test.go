package expiry

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

func openDeadlines(t *testing.T, answer wire.Status_Code) (*Deadlines, *decisions) {
	k := &decisions{answer: &wire.Result{Status: answer}}
	d := newDeadlines(k.expire)
	var running sync.WaitGroup
	running.Go(d.Run)
	t.Cleanup(func() {
		d.Close()
		running.Wait()
	})
	d.Start(7, fsm.New(1))
	return d, k
}

func opened(session uint64, ttl time.Duration) []*wire.Event {
	return []*wire.Event{{Type: wire.Event_SESSION_OPENED, SessionId: session, Generation: 1, TtlMs: uint32(ttl.Milliseconds())}}
}

func TestRefusedEndsAreProposedAgainUntilTheLeadershipEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d, k := openDeadlines(t, wire.Status_UNAVAILABLE)
		d.Observe(opened(1, time.Second))
		time.Sleep(2 * time.Second)
		if n := k.count(); n < 40 || n > 60 {
			t.Errorf("proposed %d times in a second", n)
		}
		if s := d.Touch(1, time.Now()); s != Decided {
			t.Errorf("a decided session is %v", s)
		}
		d.Stop()
		n := k.count()
		time.Sleep(time.Second)
		if k.count() != n {
			t.Error("decided after the leadership")
		}
	})
}

// TestNewGenerationLives verifies that an attach that was in the log before the expiry wins, because it has a
// newer generation.
func TestNewGenerationLives(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d, k := openDeadlines(t, wire.Status_FAILED_PRECONDITION)
		d.Observe(opened(1, time.Second))
		time.Sleep(time.Second)
		synctest.Wait()
		d.Observe([]*wire.Event{{Type: wire.Event_SESSION_ATTACHED, SessionId: 1, Generation: 2, TtlMs: 1000}})
		if s := d.Touch(1, time.Now()); s != Alive {
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

// TestStallExtendsDeadlines verifies that deadlines which are due after the process stood still are extended a
// little, since what the clients sent is still unread.
func TestStallExtendsDeadlines(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := &decisions{answer: &wire.Result{Status: wire.Status_OK}}
		d := newDeadlines(k.expire) // not running, as if the process were stopped
		d.Start(7, fsm.New(1))
		d.Observe(opened(1, 8*time.Second))
		d.Observe(opened(2, 8*time.Second))
		time.Sleep(9 * time.Second) // SIGSTOP until a second after the end
		d.extendAfterStall(time.Now())
		d.Decide(time.Now())
		if k.count() != 0 {
			t.Fatal("decided before anybody could be heard")
		}
		d.Touch(1, time.Now()) // what was still unread
		time.Sleep(time.Second)
		d.Decide(time.Now())
		if k.count() != 1 || k.made[0].id != 2 {
			t.Errorf("decided %v, want session 2 alone", k.made)
		}
	})
}

// TestStallsExtendDeadlinesOnce verifies that an end is decided even if every timer fires late.
func TestStallsExtendDeadlinesOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		k := &decisions{answer: &wire.Result{Status: wire.Status_OK}}
		d := newDeadlines(k.expire)
		d.Start(7, fsm.New(1))
		d.Observe(opened(1, 8*time.Second))
		next := 8 * time.Second
		for begin := time.Now(); k.count() == 0; next = d.Decide(time.Now()) {
			time.Sleep(next + time.Second) // always late
			if time.Since(begin) > 16*time.Second {
				t.Fatal("twice its TTL after its last sign of life a session has not expired")
			}
			d.extendAfterStall(time.Now())
		}
	})
}

// TestEndedWaitsLeaveTheHeap verifies that deadlines of waits that ended otherwise leave nothing behind.
func TestEndedWaitsLeaveTheHeap(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d, _ := openDeadlines(t, wire.Status_OK)
		for i := range uint64(1000) {
			d.Observe([]*wire.Event{{Type: wire.Event_QUEUED, SessionId: 1, HoldId: i + 1, Generation: 1, WaitMs: 600_000}})
			d.Observe([]*wire.Event{{Type: []wire.Event_Type{wire.Event_GRANTED, wire.Event_CANCELLED}[i%2], SessionId: 1, HoldId: i + 1}})
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.heap) != 0 || len(d.tables[Wait]) != 0 {
			t.Errorf("%d in the heap, %d waits", len(d.heap), len(d.tables[Wait]))
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
			d.Observe([]*wire.Event{
				hold(wire.Event_GRANTED, 60_000), hold(wire.Event_EXTENDED, 60_000), hold(wire.Event_REVOKED, 0), hold(wire.Event_REVOKED, 60_000),
				hold([]wire.Event_Type{wire.Event_RELEASED, wire.Event_EXPIRED, wire.Event_FORCED}[i%3], 0),
				hold(wire.Event_DELAYED, 0), hold(wire.Event_DELAY_ENDED, 0),
			})
		}
		time.Sleep(2 * time.Minute)
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.heap)+len(d.tables[Hold])+len(d.tables[Delay]) != 0 || k.count() != 0 {
			t.Errorf("%d in the heap, %d decided", len(d.heap), k.count())
		}
	})
}

// TestEndsCarryTheirTerm verifies that an end carries the term in which it was decided.
func TestEndsCarryTheirTerm(t *testing.T) {
	var ends [kinds]*wire.Command
	for of := range kinds {
		ends[of] = ending{of, 3, 4}.command(7)
	}
	if e := ends[Session].GetExpireSession(); e.GetTerm() != 7 || e.GetSessionId() != 3 || e.GetGeneration() != 4 {
		t.Errorf("proposed %v", e)
	}
	if w := ends[Wait].GetTimeoutWait(); w.GetTerm() != 7 || w.GetWaitId() != 3 || w.GetGeneration() != 4 {
		t.Errorf("proposed %v", w)
	}
	for of, grace := range map[Kind]bool{Hold: false, Grace: true} {
		if h := ends[of].GetExpireHold(); h.GetTerm() != 7 || h.GetHoldId() != 3 || h.GetGeneration() != 4 || h.GetGrace() != grace {
			t.Errorf("proposed %v", h)
		}
	}
	if l := ends[Delay].GetEndDelay(); l.GetTerm() != 7 || l.GetHoldId() != 3 || l.GetGeneration() != 4 {
		t.Errorf("proposed %v", l)
	}
}

// TestTouchAll verifies that signs of life count up to a session whose end is decided.
func TestTouchAll(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d, _ := openDeadlines(t, wire.Status_UNAVAILABLE)
		d.Observe(opened(1, time.Second))
		d.Observe(opened(2, 10*time.Millisecond))
		d.SetExhausted(1, true)
		d.SetExhausted(9, true)
		time.Sleep(300 * time.Millisecond) // the end of the second session is decided
		now, met := time.Now(), []int{}
		sessions := []uint64{0, 1, 9, 2, 1}
		n := d.TouchAll(len(sessions), now, func(i int) uint64 { return sessions[i] }, func(i int, exhausted bool, until time.Time) {
			if met = append(met, i); !exhausted || until != now.Add(time.Second) {
				t.Errorf("session %d: exhausted %v, until %v", sessions[i], exhausted, until)
			}
		})
		if n != 3 || len(met) != 1 || met[0] != 1 {
			t.Errorf("%d count, alive are %v", n, met)
		}
	})
}
