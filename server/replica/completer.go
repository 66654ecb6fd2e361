package replica

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// complete answers the proposer's entries in log order until proposed is closed. It matches results to
// requests through the future of the entry itself. An id would not do, since it could occur again when a log
// is replayed.
func (r *Replica) complete() {
	for b := range r.proposer.proposed {
		if err := b.future.Error(); err != nil {
			r.proposer.finished(b, appliedEntry{})
			r.metrics.failed(b, err)
			b.answer(fate(err))
		} else {
			r.completeApplied(b)
		}
		r.proposer.recycle(b)
		r.told()
	}
}

// told calls onAnswered: everything that waited for the entry has been answered.
func (r *Replica) told() {
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

// fate returns the result for everything in an entry that raft did not complete. Only what raft certainly
// refused is reported as not executed.
func fate(err error) *wire.Result {
	switch {
	case errors.Is(err, raft.ErrNotLeader):
		return refused(wire.Status_NOT_LEADER, "")
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return refused(wire.Status_UNAVAILABLE, "the leader is too busy, or its disk hangs")
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return refused(wire.Status_UNAVAILABLE, "leadership is being handed over")
	}
	return refused(wire.Status_UNCERTAIN, err.Error())
}

func (r *Replica) completeApplied(b *batch) {
	applied, err := outcome(b)
	r.proposer.finished(b, applied)
	if err != nil {
		r.log.Error("an entry was not applied", "error", err, "commands", len(b.items))
		r.metrics.failed(b, err)
		b.answer(fateUnapplied(err))
		if errors.Is(err, errMismatch) {
			r.halt(err)
		}
		return
	}
	r.metrics.applied(b, applied.Applied)
	// Deadlines learn of a session before its client does.
	r.deadlines.Observe(applied.Events)
	r.logDiscarded(b, applied.Failures)
	for i, it := range b.items {
		status := applied.Results[i].GetStatus()
		r.metrics.answered(it.cmd, status)
		if status == wire.Status_RESOURCE_EXHAUSTED {
			r.deadlines.SetExhausted(it.cmd.GetSessionId(), true)
		}
		it.answer(applied.Results[i]) // from here on, the command belongs to its sender
	}
	r.notifier.Publish(applied.Events)
	for _, done := range b.proofs {
		done(&wire.Result{Status: wire.Status_OK})
	}
	r.answerHeartbeats(b)
}

// errMismatch is returned when the state machine broke its contract.
var errMismatch = errors.New("the machine answered another number of commands than it was given")

type appliedEntry struct{ *fsm.Applied }

// outcome returns the state machine's response to the batch.
func outcome(b *batch) (appliedEntry, error) {
	switch response := b.future.Response().(type) {
	case *fsm.Applied:
		if len(response.Results) != len(b.items) {
			return appliedEntry{}, fmt.Errorf("%w: %d instead of %d", errMismatch, len(response.Results), len(b.items))
		}
		return appliedEntry{response}, nil
	case error:
		return appliedEntry{}, response
	}
	return appliedEntry{}, fmt.Errorf("%w: none", errMismatch)
}

// fateUnapplied returns the result for an entry that was committed but not applied here. A malformed entry is
// malformed on every node. In all other cases, the other nodes may have applied it.
func fateUnapplied(err error) *wire.Result {
	if errors.Is(err, fsm.ErrMalformed) {
		return refused(wire.Status_INTERNAL, err.Error())
	}
	return refused(wire.Status_UNCERTAIN, err.Error())
}

func (r *Replica) logDiscarded(b *batch, failures []fsm.Failure) {
	for _, f := range failures {
		r.log.Error("A COMMAND'S HANDLER FAILED: the command was discarded, please report this",
			"op", f.Operation, "session", b.items[f.Command].cmd.GetSessionId(), "panic", f.Panic)
	}
}

func (it item) answer(result *wire.Result) {
	if it.done != nil {
		it.done(result)
	}
}

// answer gives all waiters of the batch the same result.
func (b *batch) answer(result *wire.Result) {
	for _, it := range b.items {
		it.answer(result)
	}
	for _, done := range b.proofs {
		done(result)
	}
	for _, heartbeat := range b.heartbeats {
		heartbeat.done(result)
	}
}
