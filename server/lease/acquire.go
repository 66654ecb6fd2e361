package lease

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Node is what has the commands applied: the replica, or a double in tests.
type Node interface {
	// ProposeFrom has a command that came over a connection applied, and calls done exactly
	// once.
	ProposeFrom(connection any, cmd *wire.Command, done func(*wire.Result))
	// Await calls done with the final outcome of a request that is QUEUED.
	Await(session, seq uint64, done func(*wire.Result)) (cancel func())
	// View runs f on the applied state.
	View(f func(*fsm.Machine))
}

const (
	// Seq is the number of a lease's acquire within its implicit session.
	Seq = 1
	// A wait is renewed so many times within the TTL.
	renewals = 3
)

// Acquire asks for the lease and returns the final outcome: never QUEUED, and UNCERTAIN
// if this node ceased to lead while it waited. The outcome of a wait carries the implicit
// session as well. If ctx ends before, its error is returned, and the wait ends by its
// time unless somebody asks again.
func Acquire(ctx context.Context, node Node, connection any, open *wire.OpenLease) (*wire.Result, error) {
	w := &wait{node: node, connection: connection, cmd: &wire.Command{Op: &wire.Command_OpenLease{OpenLease: open}}, final: make(chan *wire.Result, 1)}
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

// wait is one acquire that may take long.
type wait struct {
	node       Node
	connection any
	cmd        *wire.Command
	final      chan *wire.Result

	mu      sync.Mutex // guards what follows
	cancel  func()
	stopped bool
}

// ask proposes the acquire, or repeats it.
func (w *wait) ask(ctx context.Context) (*wire.Result, error) {
	answered := make(chan *wire.Result, 1)
	w.node.ProposeFrom(w.connection, w.cmd, func(res *wire.Result) {
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

// listen waits for the outcome, once. It runs where the answer is given, which is before
// any grant of later can be told.
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

// opened tells whether the answer is that of a lease that lives.
func opened(res *wire.Result) bool {
	return res.GetStatus() == wire.Status_QUEUED || res.GetStatus() == wire.Status_GRANTED
}

// late gives back what a repetition acquired that came after the end of the wait: the
// caller had not asked for another one.
func (w *wait) late(ctx context.Context, session uint64, res *wire.Result) (*wire.Result, error) {
	w.node.ProposeFrom(w.connection, &wire.Command{Op: &wire.Command_ReleaseLease{ReleaseLease: &wire.ReleaseLease{
		SecretHash: w.cmd.GetOpenLease().GetSecretHash(), HoldId: res.GetHoldId(),
	}}}, func(*wire.Result) {})
	select {
	case res := <-w.final:
		return ofSession(res, session), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ofSession is an outcome as the answer to a lease's request. Others may be told of the
// same outcome, so it is copied.
func ofSession(res *wire.Result, session uint64) *wire.Result {
	res = proto.CloneOf(res)
	res.SessionId = session
	if res.GetStatus() == wire.Status_NOT_LEADER {
		res.Status = wire.Status_UNCERTAIN // it ceased to lead, but the wait had begun
	}
	return res
}

// interval is how long to wait before the next repetition. The session may just have
// ended: then there is nothing to repeat, and the outcome is on its way.
func (w *wait) interval(session uint64) time.Duration {
	ttl := time.Duration(fsm.DefaultSettings().GetDefaultTtlMs()) * time.Millisecond
	w.node.View(func(m *fsm.Machine) {
		if s, found := m.Session(session); found {
			ttl = time.Duration(s.TTL) * time.Millisecond
		}
	})
	return ttl / renewals
}
