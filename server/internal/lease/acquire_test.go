package lease

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a scripted Node: answers are its answers to the acquire, in order, and the last one repeats.
type node struct {
	machine *fsm.Machine
	answers []*wire.Result
	asked   int
	gone    []uint64 // released holds
	await   func(*wire.Result)
	stopped bool
	silent  bool
	// silentAfter is the number of answers before the node stops answering; 0 means never.
	silentAfter int
}

func newNode(answers ...*wire.Result) *node {
	return &node{machine: fsm.New(fsm.Level), answers: answers}
}

func (n *node) ProposeFrom(_ identity.Sender, cmd *wire.Command, done func(*wire.Result)) {
	if op := cmd.GetReleaseLease(); op != nil {
		n.gone = append(n.gone, op.GetHoldId())
		done(&wire.Result{Status: wire.Status_OK})
		return
	}
	if n.silent || n.silentAfter > 0 && n.asked == n.silentAfter {
		return
	}
	res := n.answers[min(n.asked, len(n.answers)-1)]
	n.asked++
	done(res)
}

func (n *node) Await(_, seq uint64, done func(*wire.Result)) (cancel func()) {
	if seq != Seq || n.await != nil {
		panic("awaits another request, or the same twice")
	}
	n.await = done
	return func() { n.stopped = true }
}

func (n *node) View(look func(*fsm.Machine)) { look(n.machine) }

func queued(session uint64) *wire.Result {
	return &wire.Result{Status: wire.Status_QUEUED, SessionId: session, HoldId: 10 * session}
}

func granted(session uint64) *wire.Result {
	return &wire.Result{Status: wire.Status_GRANTED, SessionId: session, HoldId: 10 * session, Token: 3}
}

var request = &wire.OpenLease{SecretHash: make([]byte, 32)}

// begin acquires in the background.
func begin(ctx context.Context, n *node) (answered chan *wire.Result) {
	answered = make(chan *wire.Result, 1)
	go func() {
		defer close(answered)
		if res, err := acquire(ctx, n, identity.Sender{}, request); err == nil {
			answered <- res
		}
	}()
	synctest.Wait()
	return answered
}

func TestAnswerAtOnce(t *testing.T) {
	for _, status := range []wire.Status_Code{wire.Status_GRANTED, wire.Status_NOT_ACQUIRED, wire.Status_NOT_LEADER} {
		n := newNode(&wire.Result{Status: status})
		if res, err := acquire(t.Context(), n, identity.Sender{}, request); err != nil || res.GetStatus() != status || n.asked != 1 {
			t.Errorf("%v: %v, %v", status, res, err)
		}
	}
}

func TestWaitIsRenewedUntilItsOutcome(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := newNode(queued(7))
		answered := begin(t.Context(), n)
		<-time.After(5*time.Second + time.Millisecond) // the TTL of a wait
		synctest.Wait()
		if n.asked != 4 {
			t.Errorf("asked %d times in 5 s, want once and three times per TTL", n.asked)
		}
		shared := &wire.Result{Status: wire.Status_GRANTED, HoldId: 70, Token: 3}
		n.await(shared)
		if res := <-answered; res.GetStatus() != wire.Status_GRANTED || res.GetSessionId() != 7 || res.GetHoldId() != 70 {
			t.Errorf("got %v", res)
		}
		if shared.GetSessionId() != 0 {
			t.Error("a result that others are told as well was changed")
		}
		if !n.stopped {
			t.Error("it still awaits the outcome")
		}
	})
}

func TestRepetitionSeesTheOutcome(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := newNode(queued(7), granted(7))
		if res := <-begin(t.Context(), n); res.GetStatus() != wire.Status_GRANTED || !n.stopped || len(n.gone) != 0 {
			t.Errorf("got %v", res)
		}
	})
}

// TestRepetitionThatCameTooLateIsGivenBack covers a wait that ends just before a repetition is applied: the
// repetition then acquires a second lease, which the caller did not request.
func TestRepetitionThatCameTooLateIsGivenBack(t *testing.T) {
	for _, late := range []*wire.Result{granted(8), queued(8)} {
		bubble.Test(t, func(t *testing.T) {
			n := newNode(queued(7), late)
			answered := begin(t.Context(), n)
			<-time.After(6 * time.Second)
			synctest.Wait()
			if len(n.gone) != 1 || n.gone[0] != 80 {
				t.Errorf("given back: %v", n.gone)
			}
			n.await(&wire.Result{Status: wire.Status_TIMEOUT})
			if res := <-answered; res.GetStatus() != wire.Status_TIMEOUT || res.GetSessionId() != 7 {
				t.Errorf("got %v", res)
			}
		})
	}
}

func TestCallerHangsUp(t *testing.T) {
	for what, n := range map[string]*node{"while it waits": newNode(queued(7)), "without an answer": {machine: fsm.New(fsm.Level), silent: true}} {
		bubble.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			answered := begin(ctx, n)
			cancel()
			if res, ok := <-answered; ok {
				t.Errorf("%s: answered %v", what, res)
			}
			asked := n.asked
			<-time.After(time.Minute)
			if n.asked != asked {
				t.Errorf("%s: asked again for nobody", what)
			}
		})
	}
}

// TestCallerHangsUpLate covers callers that leave while they wait for a repetition's answer, or for the
// outcome of a wait that ended before the repetition.
func TestCallerHangsUpLate(t *testing.T) {
	unanswered, tooLate := newNode(queued(7)), newNode(queued(7), queued(8))
	unanswered.silentAfter = 1
	for what, n := range map[string]*node{"unanswered": unanswered, "too late": tooLate} {
		bubble.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			answered := begin(ctx, n)
			<-time.After(6 * time.Second)
			cancel()
			if res, ok := <-answered; ok {
				t.Errorf("%s: answered %v", what, res)
			}
		})
	}
}

// TestRefusedRepetition verifies that a wait goes on when a repetition is refused for want of room, and is uncertain when
// this node no longer leads. Nothing is released.
func TestRefusedRepetition(t *testing.T) {
	for status, want := range map[wire.Status_Code]wire.Status_Code{
		wire.Status_UNAVAILABLE: wire.Status_GRANTED, wire.Status_RESOURCE_EXHAUSTED: wire.Status_GRANTED, wire.Status_NOT_LEADER: wire.Status_UNCERTAIN,
	} {
		bubble.Test(t, func(t *testing.T) {
			n := newNode(queued(7), &wire.Result{Status: status}, granted(7))
			if res := <-begin(t.Context(), n); res.GetStatus() != want || res.GetSessionId() != 7 || len(n.gone) != 0 {
				t.Errorf("%v: got %v, given back: %v", status, res, n.gone)
			}
		})
	}
}

// TestLeaderThatStepsDownLeavesAWaitUncertain verifies that a wait at a former leader is UNCERTAIN, since it
// may have been granted.
func TestLeaderThatStepsDownLeavesAWaitUncertain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := newNode(queued(7))
		answered := begin(t.Context(), n)
		n.await(&wire.Result{Status: wire.Status_NOT_LEADER})
		if res := <-answered; res.GetStatus() != wire.Status_UNCERTAIN || res.GetSessionId() != 7 {
			t.Errorf("got %v", res)
		}
	})
}

// TestLateAnswerListensToNothing verifies that an answer that arrives after the wait was stopped leaves no
// listener behind.
func TestLateAnswerListensToNothing(t *testing.T) {
	n := newNode(queued(7))
	w := &wait{node: n, cmd: &wire.Command{}, final: make(chan *wire.Result, 1)}
	w.stop()
	w.listen(7)
	if n.await != nil {
		t.Error("it listens")
	}
}
