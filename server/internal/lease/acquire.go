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
	// renewals is how often a wait is renewed per TTL.
	renewals = 3
)

// Acquire acquires the lease and returns the final outcome. The outcome is never QUEUED. It is UNCERTAIN if
// this node lost leadership while it waited. The outcome of a wait includes the implicit session. If ctx ends
// first, Acquire returns its error, and the wait expires with its session unless the request is sent again.
func Acquire(ctx context.Context, node Node, from identity.Sender, open *wire.OpenLease) (*wire.Result, error) {
	w := &wait{node: node, from: from, cmd: &wire.Command{Caller: identity.FromContext(ctx), Op: &wire.Command_OpenLease{OpenLease: open}}, final: make(chan *wire.Result, 1)}
	defer w.stop()
	res, err := w.ask(ctx)
	if err != nil || res.GetStatus() != wire.Status_QUEUED {
		return res, err
	}
	session := res.GetSessionId()
	for {
		renew := time.NewTimer(w.interval(session))
		select {
		case res = <-w.final:
			renew.Stop()
			return ofSession(res, session), nil
		case <-ctx.Done():
			renew.Stop()
			return nil, ctx.Err()
		case <-renew.C:
		}
		if res, err = w.ask(ctx); err != nil {
			return nil, err
		}
		switch {
		case opened(res) && res.GetSessionId() != session:
			return w.late(ctx, session, res)
		case res.GetStatus() != wire.Status_QUEUED:
			return res, nil
		}
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

// ask proposes the acquire, or repeats it.
func (w *wait) ask(ctx context.Context) (*wire.Result, error) {
	answered := make(chan *wire.Result, 1)
	w.node.ProposeFrom(w.from, w.cmd, func(res *wire.Result) {
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

// interval returns the time until the next repetition. If the session has just ended, there is nothing to
// repeat, and the outcome is about to arrive.
func (w *wait) interval(session uint64) time.Duration {
	ttl := time.Duration(fsm.DefaultSettings().GetDefaultTtlMs()) * time.Millisecond
	w.node.View(func(m *fsm.Machine) {
		if s, found := m.Session(session); found {
			ttl = time.Duration(s.TTL) * time.Millisecond
		}
	})
	return ttl / renewals
}
