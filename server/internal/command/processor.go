package command

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/expiry"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/internal/metrics"
	"github.com/quorumlock/quorumlock/server/internal/notify"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Config configures a Processor. All fields are required.
type Config struct {
	Machine *fsm.Replicated
	Metrics *metrics.Metrics
	Logger  hclog.Logger
	// Apply hands an entry to raft.
	Apply func(data []byte, timeout time.Duration) raft.ApplyFuture
	// Refusal returns the result for commands that this node does not accept at present.
	Refusal func() *wire.Result
	// Halt stops the node, because an invariant is violated.
	Halt func(error)
}

// Processor takes commands through a node. Its methods are safe for concurrent use.
type Processor struct {
	cfg Config

	Proposer  *groupcommit.Proposer
	Deadlines *expiry.Deadlines
	Notifier  *notify.Notifier

	// full are the identities that were refused something by a quota.
	full fullIdentities

	// onAnswered is called after each entry; see OnAnswered.
	onAnswered atomic.Pointer[func()]
}

// New creates a Processor. Its parts run until they are stopped: Proposer.Run, Deadlines.Run and Complete.
func New(cfg Config) *Processor {
	p := &Processor{cfg: cfg, Proposer: groupcommit.New(cfg.Apply, cfg.Refusal), Notifier: notify.New(cfg.Machine.View)}
	p.Deadlines = expiry.New(p.proposeEnding)
	return p
}

// Complete answers the waiters of the proposer's entries, in log order, until the proposer ends.
func (p *Processor) Complete() {
	for b := range p.Proposer.Batches() {
		p.completeBatch(b)
		p.Proposer.Recycle(b)
		p.answered()
	}
}

// OnAnswered makes the processor call f after each entry, when every Done of the entry has been called and
// every push of a grant delivered. So all messages that result from an entry can be sent together. f is
// called on one goroutine, and the next entry waits for it. Only the latest f is called. cancel removes it.
func (p *Processor) OnAnswered(f func()) (cancel func()) {
	p.onAnswered.Store(&f)
	return func() { p.onAnswered.CompareAndSwap(&f, nil) }
}

// Bind makes s the receiver of the session's pushes. A previously bound sink gets SessionLost{SUPERSEDED} for
// the session. Bindings end with the leadership: every bound session then gets a push with a leader hint,
// which may be empty, and has to attach again, even if the same node leads again.
func (p *Processor) Bind(session uint64, s notify.Sink) { p.Notifier.Bind(session, s) }

// Unbind removes the binding, unless another sink has taken over the session.
func (p *Processor) Unbind(session uint64, s notify.Sink) { p.Notifier.Unbind(session, s) }

// Await calls done once with the final outcome of a request that is QUEUED or about to be: call it before
// proposing the request. cancel stops waiting, but done may be running concurrently. If the leadership ends
// first, done gets UNCERTAIN.
func (p *Processor) Await(session, seq uint64, done func(*wire.Result)) (cancel func()) {
	return p.Notifier.Await(session, seq, done)
}
