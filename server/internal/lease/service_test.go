package lease

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/expiry"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// leader is a node with a state machine and deadlines. Results of commands of one kind can be held back.
type leader struct {
	deadlines *expiry.Deadlines

	mu      sync.Mutex // guards the fields below
	machine *fsm.Machine
	waiting map[uint64][]func(*wire.Result) // by session
	// hold is the kind of commands whose results are held back in held.
	hold string
	held []func()
	term uint64
}

func newLeader(t *testing.T) *leader {
	l := &leader{machine: fsm.New(fsm.Level), waiting: map[uint64][]func(*wire.Result){}}
	l.deadlines = expiry.New(func(term uint64, cmd *wire.Command, answered func(*wire.Result)) bool {
		answered(l.apply(cmd))
		return true
	})
	l.apply(&wire.Command{Op: &wire.Command_Bootstrap{Bootstrap: &wire.Bootstrap{ClusterId: "c", Settings: fsm.DefaultSettings()}}})
	l.lead()
	go l.deadlines.Run()
	t.Cleanup(l.deadlines.Close)
	return l
}

// lead begins the next term.
func (l *leader) lead() {
	l.deadlines.Stop()
	l.term++
	l.apply(&wire.Command{Op: &wire.Command_BeginTerm{BeginTerm: &wire.BeginTerm{Term: l.term, LeaderId: "n1"}}})
	l.View(func(m *fsm.Machine) { l.deadlines.Start(l.term, m) })
}

func (l *leader) apply(cmd *wire.Command) *wire.Result {
	data, err := wire.AppendEntry(nil, &wire.Entry{Level: 1, Commands: []*wire.Command{cmd}})
	if err != nil {
		panic(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	applied, err := l.machine.Apply(data)
	if err != nil {
		panic(err)
	}
	l.deadlines.Observe(applied.Events)
	for _, e := range applied.Events {
		if e.GetType() != wire.Event_GRANTED && e.GetType() != wire.Event_CANCELLED {
			continue
		}
		outcome, known := l.machine.Outcome(e.GetSessionId(), Seq)
		if !known {
			outcome = &wire.Result{Status: e.GetStatus()}
		}
		for _, done := range l.waiting[e.GetSessionId()] {
			done(outcome)
		}
		delete(l.waiting, e.GetSessionId())
	}
	return applied.Results[0]
}

func (l *leader) ProposeFrom(_ identity.Sender, cmd *wire.Command, done func(*wire.Result)) {
	res := l.apply(cmd)
	l.mu.Lock()
	held := l.hold == fmt.Sprintf("%T", cmd.Op)
	if held {
		l.held = append(l.held, func() { done(res) })
	}
	l.mu.Unlock()
	if !held {
		done(res)
	}
}

func (l *leader) Await(session, _ uint64, done func(*wire.Result)) (cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[session] = append(l.waiting[session], done)
	return func() {}
}

func (l *leader) View(look func(*fsm.Machine)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	look(l.machine)
}

// release returns the results that were held back.
func (l *leader) release() {
	l.mu.Lock()
	held := l.held
	l.hold, l.held = "", nil
	l.mu.Unlock()
	for _, done := range held {
		done()
	}
	synctest.Wait()
}

// lose loses the results that were held back.
func (l *leader) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold, l.held = "", nil
}

// holder returns the session that holds the lock, 0 if there is none, and what remains of its TTL.
func (l *leader) holder() (session uint64, left time.Duration) {
	l.View(func(m *fsm.Machine) {
		got, _ := m.GetLock(&wire.GetLockRequest{Name: "a"})
		for _, h := range got.GetHolders() {
			session = h.GetSessionId()
		}
	})
	left, _ = l.deadlines.Remaining(expiry.Session, session)
	return session, left
}

const hour = 3_600_000

// caller is a caller of the service.
type caller struct {
	hangUp   context.CancelCauseFunc
	answered chan *wire.Result
}

func call(s *Service, secret byte) *caller {
	ctx, hangUp := context.WithCancelCause(context.Background())
	c := &caller{hangUp, make(chan *wire.Result, 1)}
	go func() {
		defer close(c.answered)
		open := &wire.OpenLease{SecretHash: bytes.Repeat([]byte{secret}, 32), TtlMs: hour, Acquire: &wire.Acquire{
			Locks: []*wire.LockRequest{{Name: "a"}}, WaitForever: true,
		}}
		if res, err := s.Acquire(ctx, identity.Sender{}, open); err == nil {
			c.answered <- res
		}
	}()
	synctest.Wait()
	return c
}

func (c *caller) answer() *wire.Result {
	select {
	case res := <-c.answered:
		return res
	default:
		return nil
	}
}

// Kinds of commands.
const (
	opening    = "*wire.Command_OpenLease"
	confirming = "*wire.Command_ConfirmLease"
)

// moments are when a caller hangs up: each brings it there, behind a holder whose release is free.
var moments = []struct {
	name string
	// bring returns what happens after the caller has hung up.
	bring func(l *leader, free func()) (then func())
	// told is true if the caller has been told of its grant by then.
	told bool
}{
	{"while it waits", func(_ *leader, free func()) func() { return free }, false},
	{"long before its turn", func(_ *leader, free func()) func() { return func() { time.Sleep(time.Minute); free() } }, false},
	{"before its confirmation is answered", func(l *leader, free func()) func() { l.hold = confirming; free(); return l.release }, false},
	{"before its confirmation, and the answer is lost", func(l *leader, free func()) func() { l.hold = confirming; free(); return l.lose }, false},
	{"while the leader changes", func(l *leader, free func()) func() { return func() { l.lead(); free() } }, false},
	{"after its answer", func(_ *leader, free func()) func() { free(); return func() {} }, true},
}

// TestNobodyHoldsForACallerThatIsGone lets callers hang up at each moment of an acquire that waits. The next waiter gets
// the lock within the TTL of a wait and the grace period, unless the caller was told of its grant.
func TestNobodyHoldsForACallerThatIsGone(t *testing.T) {
	for _, moment := range moments {
		t.Run(moment.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				l := newLeader(t)
				s := NewService(l, Grace, hclog.NewNullLogger())
				first := call(s, 1).answer()
				dead, living := call(s, 2), call(s, 3)
				then := moment.bring(l, func() {
					l.apply(releaseOf(1, first))
					synctest.Wait()
				})
				dead.hangUp(nil)
				synctest.Wait()
				then()
				from := time.Now()
				for len(living.answered) == 0 && time.Since(from) <= Grace+fsm.LeaseWaitTTL*time.Millisecond {
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
				}
				res := living.answer()
				living.hangUp(nil)
				if moment.told != (res == nil) || res != nil && res.GetStatus() != wire.Status_GRANTED {
					t.Fatalf("the living waiter is answered %v after %v", res, time.Since(from))
				}
				holder, left := l.holder()
				if left < time.Hour-time.Minute || res != nil && holder != res.GetSessionId() {
					t.Errorf("session %d holds for another %v", holder, left)
				}
				s.Close()
			})
		})
	}
}

// TestARepetitionKeepsThePlace repeats the request of a caller that hung up, at each moment, within the TTL of the wait.
// It is told of the grant, once, with one token and with the TTL that was committed.
func TestARepetitionKeepsThePlace(t *testing.T) {
	for _, moment := range moments {
		t.Run(moment.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				l := newLeader(t)
				s := NewService(l, Grace, hclog.NewNullLogger())
				first := call(s, 1).answer()
				gone, behind := call(s, 2), call(s, 3)
				freed := false
				then := moment.bring(l, func() {
					if freed = true; moment.name == "long before its turn" {
						return
					}
					l.apply(releaseOf(1, first))
					synctest.Wait()
				})
				gone.hangUp(nil)
				time.Sleep(4 * time.Second)
				synctest.Wait()
				again := call(s, 2)
				then()
				if moment.name == "long before its turn" {
					l.apply(releaseOf(1, first))
				}
				l.release()
				time.Sleep(time.Minute)
				synctest.Wait()
				res, other := again.answer(), behind.answer()
				behind.hangUp(nil)
				if !freed || other != nil || res.GetStatus() != wire.Status_GRANTED {
					t.Fatalf("the repetition is answered %v, the waiter behind it %v", res, other)
				}
				if told := gone.answer(); moment.told && (told.GetToken() != res.GetToken() || told.GetHoldId() != res.GetHoldId()) {
					t.Errorf("told %v, and then %v", told, res)
				}
				if holder, left := l.holder(); holder != res.GetSessionId() || left < time.Hour-2*time.Minute {
					t.Errorf("session %d holds for another %v", holder, left)
				}
				s.Close()
			})
		})
	}
}

// TestAnAnswerSaysOnlyWhatIsCommitted verifies that a grant is not answered before its confirmation is.
func TestAnAnswerSaysOnlyWhatIsCommitted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := newLeader(t)
		s := NewService(l, Grace, hclog.NewNullLogger())
		first := call(s, 1).answer()
		waiter := call(s, 2)
		l.hold = confirming
		l.apply(releaseOf(1, first))
		synctest.Wait()
		if res := waiter.answer(); res != nil {
			t.Errorf("answered %v without a confirmation", res)
		}
		l.release()
		res := waiter.answer()
		if res.GetStatus() != wire.Status_GRANTED || res.GetSessionId() == 0 || res.GetDigest() == 0 || res.GetName() != "a" {
			t.Errorf("answered %v", res)
		}
		s.Close()
	})
}

// TestACallerOfAStoppingNodeKeepsItsPlace verifies that the place is left to the next leader.
func TestACallerOfAStoppingNodeKeepsItsPlace(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := newLeader(t)
		s := NewService(l, Grace, hclog.NewNullLogger())
		first := call(s, 1).answer()
		call(s, 2).hangUp(ErrStopping)
		synctest.Wait()
		s.Close()
		l.apply(releaseOf(1, first))
		if holder, left := l.holder(); holder == 0 || left > fsm.LeaseWaitTTL*time.Millisecond {
			t.Errorf("session %d holds for another %v", holder, left)
		}
	})
}

// TestAGrantAtOnceIsGivenBack hangs up before the answer to an acquire that does not wait.
func TestAGrantAtOnceIsGivenBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := newLeader(t)
		s := NewService(l, Grace, hclog.NewNullLogger())
		l.hold = opening
		one := call(s, 1)
		one.hangUp(nil)
		synctest.Wait()
		l.release()
		time.Sleep(Grace)
		synctest.Wait()
		if holder, _ := l.holder(); holder != 0 || one.answer() != nil {
			t.Errorf("session %d holds", holder)
		}
		s.Close()
	})
}

func releaseOf(secret byte, granted *wire.Result) *wire.Command {
	return &wire.Command{Op: &wire.Command_ReleaseLease{ReleaseLease: &wire.ReleaseLease{SecretHash: bytes.Repeat([]byte{secret}, 32), HoldId: granted.GetHoldId()}}}
}
