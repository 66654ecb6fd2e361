package command

import (
	"errors"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// answered calls onAnswered: everything that waited for the entry has been answered.
func (p *Processor) answered() {
	if f := p.onAnswered.Load(); f != nil {
		(*f)()
	}
}

// completeBatch waits for the outcome of an entry and answers its waiters.
func (p *Processor) completeBatch(b *groupcommit.Batch) {
	if err := b.Future.Error(); err != nil {
		p.Proposer.Finished(b, nil)
		p.cfg.Metrics.Failed(b, err)
		b.Answer(groupcommit.Uncommitted(err))
		return
	}
	applied, err := b.Applied()
	p.Proposer.Finished(b, applied)
	if err != nil {
		p.cfg.Logger.Error("an entry was not applied", "error", err, "commands", len(b.Items))
		p.cfg.Metrics.Failed(b, err)
		b.Answer(groupcommit.Unapplied(err))
		if errors.Is(err, groupcommit.ErrMismatch) {
			p.cfg.Halt(err)
		}
		return
	}
	p.completeApplied(b, applied)
}

func (p *Processor) completeApplied(b *groupcommit.Batch, applied *fsm.Applied) {
	p.cfg.Metrics.Applied(b, applied)
	// Deadlines learn of a session before its client does.
	p.Deadlines.Observe(applied.Events)
	p.logDiscarded(b, applied.Failures)
	for i, it := range b.Items {
		status := applied.Results[i].GetStatus()
		p.cfg.Metrics.Answered(it.Command, status)
		if status == wire.Status_RESOURCE_EXHAUSTED {
			p.Deadlines.SetExhausted(it.Command.GetSessionId(), true)
			p.noteFull(it.Identity)
		}
		it.Answer(applied.Results[i])
	}
	p.Notifier.Publish(applied.Events)
	for _, done := range b.Proofs {
		done(&wire.Result{Status: wire.Status_OK})
	}
	p.answerHeartbeats(b)
}

// noteFull makes the door check the quotas and the share of an identity from now on, if there is a policy.
func (p *Processor) noteFull(identity string) {
	if p.cfg.Machine.Access().Rights() != nil {
		p.full.add(identity)
	}
}

func (p *Processor) logDiscarded(b *groupcommit.Batch, failures []fsm.Failure) {
	for _, f := range failures {
		p.cfg.Logger.Error("A COMMAND'S HANDLER FAILED: the command was discarded, please report this",
			"op", f.Operation, "session", b.Items[f.Command].Command.GetSessionId(), "panic", f.Panic)
	}
}
