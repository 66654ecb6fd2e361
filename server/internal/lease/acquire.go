package lease

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Node is the node that applies the commands: the replica, or a fake in tests.
type Node interface {
	// ProposeFrom proposes a command that came from a sender and calls done exactly once.
	ProposeFrom(from identity.Sender, cmd *wire.Command, done func(*wire.Result))
	// Await calls done with the final outcome of a request that is QUEUED.
	Await(session, seq uint64, done func(*wire.Result)) (cancel func())
	// View runs f on the applied state.
	View(f func(*fsm.Machine))
}

const (
	// Seq is the sequence number of a lease's acquire within its implicit session.
	Seq = 1
	// renewInterval is how often a wait is renewed: three times per TTL.
	renewInterval = fsm.LeaseWaitTTL * time.Millisecond / 3
)

// acquire acquires the lease and returns the final outcome. The outcome is never QUEUED. It is UNCERTAIN if
// this node lost leadership while it waited. The outcome of a wait includes the implicit session. A grant is confirmed:
// the answer says nothing that is not committed. If ctx ends first, acquire returns its error, and the wait, or the
// grant that is not confirmed, expires with its session unless the request is sent again.
func acquire(ctx context.Context, node Node, from identity.Sender, open *wire.OpenLease) (*wire.Result, error) {
	w := &wait{node: node, from: from, cmd: &wire.Command{Caller: identity.FromContext(ctx), Op: &wire.Command_OpenLease{OpenLease: open}}, final: make(chan *wire.Result, 1)}
	defer w.stop()
	res, err := w.outcome(ctx)
	if err != nil || res.GetStatus() != wire.Status_GRANTED || !w.unconfirmed(res.GetSessionId()) {
		return res, err
	}
	return w.confirm(ctx, res)
}

// outcome returns the final outcome of the acquire, which it keeps waiting meanwhile.
func (w *wait) outcome(ctx context.Context) (*wire.Result, error) {
	res, err := w.ask(ctx, w.cmd)
	if err != nil || res.GetStatus() != wire.Status_QUEUED {
		return res, err
	}
	session := res.GetSessionId()
	renew := time.NewTicker(renewInterval)
	defer renew.Stop()
	for {
		select {
		case res = <-w.final:
			return ofSession(res, session), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-renew.C:
		}
		if res, err = w.ask(ctx, w.cmd); err != nil {
			return nil, err
		}
		switch status := res.GetStatus(); {
		case opened(res) && res.GetSessionId() != session:
			return w.late(ctx, session, res)
		case status == wire.Status_QUEUED, status == wire.Status_UNAVAILABLE, status == wire.Status_RESOURCE_EXHAUSTED:
			continue // also if it was refused for want of room: the wait goes on until its TTL ends
		}
		return ofSession(res, session), nil
	}
}

// wait is an acquire in progress.
type wait struct {
	node  Node
	from  identity.Sender
	cmd   *wire.Command
	final chan *wire.Result

	mu      sync.Mutex // guards the fields below
	cancel  func()
	stopped bool
}

// unconfirmed reports whether a grant still has the TTL of its wait.
func (w *wait) unconfirmed(session uint64) (unconfirmed bool) {
	w.node.View(func(m *fsm.Machine) {
		s, _ := m.Session(session)
		unconfirmed = s.Unconfirmed
	})
	return unconfirmed
}

// confirm gives a grant its TTL, because the caller is still there, and returns the committed answer.
func (w *wait) confirm(ctx context.Context, granted *wire.Result) (*wire.Result, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	res, err := w.ask(ctx, &wire.Command{Caller: w.cmd.Caller, Op: &wire.Command_ConfirmLease{ConfirmLease: &wire.ConfirmLease{
		SecretHash: w.cmd.GetOpenLease().GetSecretHash(), HoldId: granted.GetHoldId(),
	}}})
	if err != nil {
		return nil, err
	}
	switch res.GetStatus() {
	case wire.Status_NOT_LEADER, wire.Status_UNAVAILABLE, wire.Status_RESOURCE_EXHAUSTED:
		return &wire.Result{Status: wire.Status_UNCERTAIN, Message: "granted, and not confirmed: send the same request again, to keep the lease: " + res.GetMessage()}, nil
	case wire.Status_NOT_HELD:
		return &wire.Result{Status: wire.Status_SESSION_LOST, Message: "the lease ended before its grant could be answered: acquire again"}, nil
	}
	return res, nil
}

// ask proposes a command and returns its result.
func (w *wait) ask(ctx context.Context, cmd *wire.Command) (*wire.Result, error) {
	answered := make(chan *wire.Result, 1)
	w.node.ProposeFrom(w.from, cmd, func(res *wire.Result) {
		if res.GetStatus() == wire.Status_QUEUED {
			w.listen(res.GetSessionId())
		}
		answered <- res
	})
	select {
	case res := <-answered:
		return res, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// listen subscribes to the outcome, once. It runs in the callback of the QUEUED result, and so before any
// later grant can be delivered.
func (w *wait) listen(session uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || w.cancel != nil {
		return
	}
	w.cancel = w.node.Await(session, Seq, func(res *wire.Result) { w.final <- res })
}

func (w *wait) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.cancel != nil {
		w.cancel()
	}
}

// opened reports whether the result is that of a live lease.
func opened(res *wire.Result) bool {
	return res.GetStatus() == wire.Status_QUEUED || res.GetStatus() == wire.Status_GRANTED
}

// late releases a lease that was acquired by a repetition after the wait had ended, since the caller did not
// ask for a second one. It returns the outcome of the wait.
func (w *wait) late(ctx context.Context, session uint64, res *wire.Result) (*wire.Result, error) {
	w.node.ProposeFrom(w.from, &wire.Command{Caller: w.cmd.Caller, Op: &wire.Command_ReleaseLease{ReleaseLease: &wire.ReleaseLease{
		SecretHash: w.cmd.GetOpenLease().GetSecretHash(), HoldId: res.GetHoldId(),
	}}}, func(*wire.Result) {})
	select {
	case res := <-w.final:
		return ofSession(res, session), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ofSession converts an outcome to the answer of a lease request. It copies the outcome, which may be shared
// with other receivers.
func ofSession(res *wire.Result, session uint64) *wire.Result {
	res = proto.CloneOf(res)
	res.SessionId = session
	if res.GetStatus() == wire.Status_NOT_LEADER {
		res.Status = wire.Status_UNCERTAIN // the node lost leadership, but the wait had begun
	}
	return res
}
