package replica

import (
	"errors"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// complete answers the waiters of the proposer's entries, in log order, until the proposer ends.
func (r *Replica) complete() {
	for b := range r.proposer.Batches() {
		r.completeBatch(b)
		r.proposer.Recycle(b)
		r.answered()
	}
}

// answered calls onAnswered: everything that waited for the entry has been answered.
func (r *Replica) answered() {
	if f := r.onAnswered.Load(); f != nil {
		(*f)()
	}
}

// OnAnswered makes the replica call f after each entry, when every Done of the entry has been called and
// every push of a grant delivered. So all messages that result from an entry can be sent together. f is
// called on one goroutine, and the next entry waits for it. Only the latest f is called. cancel removes it.
func (r *Replica) OnAnswered(f func()) (cancel func()) {
	r.onAnswered.Store(&f)
	return func() { r.onAnswered.CompareAndSwap(&f, nil) }
}

// completeBatch waits for the outcome of an entry and answers its waiters.
func (r *Replica) completeBatch(b *groupcommit.Batch) {
	if err := b.Future.Error(); err != nil {
		r.proposer.Finished(b, nil)
		r.metrics.Failed(b, err)
		b.Answer(groupcommit.Uncommitted(err))
		return
	}
	applied, err := b.Applied()
	r.proposer.Finished(b, applied)
	if err != nil {
		r.log.Error("an entry was not applied", "error", err, "commands", len(b.Items))
		r.metrics.Failed(b, err)
		b.Answer(groupcommit.Unapplied(err))
		if errors.Is(err, groupcommit.ErrMismatch) {
			r.halt(err)
		}
		return
	}
	r.completeApplied(b, applied)
}

func (r *Replica) completeApplied(b *groupcommit.Batch, applied *fsm.Applied) {
	r.metrics.Applied(b, applied)
	// Deadlines learn of a session before its client does.
	r.deadlines.Observe(applied.Events)
	r.logDiscarded(b, applied.Failures)
	for i, it := range b.Items {
		status := applied.Results[i].GetStatus()
		r.metrics.Answered(it.Command, status)
		if status == wire.Status_RESOURCE_EXHAUSTED {
			r.deadlines.SetExhausted(it.Command.GetSessionId(), true)
		}
		it.Answer(applied.Results[i])
	}
	r.notifier.Publish(applied.Events)
	for _, done := range b.Proofs {
		done(&wire.Result{Status: wire.Status_OK})
	}
	r.answerHeartbeats(b)
}

func (r *Replica) logDiscarded(b *groupcommit.Batch, failures []fsm.Failure) {
	for _, f := range failures {
		r.log.Error("A COMMAND'S HANDLER FAILED: the command was discarded, please report this",
			"op", f.Operation, "session", b.Items[f.Command].Command.GetSessionId(), "panic", f.Panic)
	}
}
