package command

import (
	"fmt"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/expiry"
	"github.com/quorumlock/quorumlock/server/groupcommit"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// A heartbeat counts from its receipt but is acknowledged only with proof of leadership: an entry that was
// proposed after the heartbeat arrived has been committed and applied, and the session is alive in that
// state. So no other leader could have decided the session's end when the heartbeat arrived. Raft's
// VerifyLeader would not do: it also counts answers to older requests.

// maxIdle bounds the cached holds that a heartbeat reports as not in use.
const maxIdle = 1_024

// maxRecalls bounds the recalls that are repeated with one heartbeat, so that they take little of the connection's
// outbox even if the settings allow a session many more holds than by default. The others are repeated when the holds
// before them have been released.
const maxRecalls = 1_024

// Heartbeat counts immediately as a sign of life. It calls done with OK once there is proof of leadership
// that is newer than the call, if the session is then alive, and with SESSION_LOST if the session is unknown
// or its expiry is decided. Results are shared between calls and must not be changed.
//
// idle are the session's cached holds that are not in use. With the answer OK, they replace those of its previous
// heartbeat, and the session is notified again of its cached holds for which others wait: a notice may have been lost.
func (p *Processor) Heartbeat(session uint64, idle []*wire.IdleHold, done func(*wire.Result)) {
	if len(idle) > maxIdle {
		done(status.Result(wire.Status_INVALID_ARGUMENT, fmt.Sprintf("the heartbeat reports %d idle holds: %d are allowed", len(idle), maxIdle)))
		return
	}
	now := time.Now()
	switch p.Deadlines.Touch(session, now) {
	case expiry.Inactive:
		done(p.cfg.Refusal())
	case expiry.Unknown, expiry.Decided:
		done(p.lost(session))
	case expiry.Leased:
		done(status.Result(wire.Status_INVALID_ARGUMENT, "the session belongs to a lease: extend the lease instead of sending heartbeats"))
	default:
		p.Proposer.AddHeartbeat(groupcommit.Heartbeat{Session: session, Done: done, Idle: idle, Arrived: now})
	}
}

// lost returns the result for a session that is unknown or whose expiry is decided.
func (p *Processor) lost(session uint64) (answer *wire.Result) {
	p.cfg.Machine.View(func(m *fsm.Machine) { answer = m.SessionLost(session) })
	return answer
}

// Prove calls done with OK once an entry that was proposed after this call has been committed and applied
// here. From then on, View is linearizable with respect to the call.
func (p *Processor) Prove(done func(*wire.Result)) { p.Proposer.Prove(done) }

// answerHeartbeats acknowledges the heartbeats for which the batch is the proof.
func (p *Processor) answerHeartbeats(b *groupcommit.Batch) {
	if len(b.Heartbeats) == 0 {
		return
	}
	well := &wire.Result{Status: wire.Status_OK} // shared by all of them
	p.cfg.Machine.View(func(m *fsm.Machine) {
		well.Revision = m.Revision()
		for i := range b.Heartbeats {
			h := &b.Heartbeats[i]
			_, h.Alive = m.Session(h.Session)
			h.Recalled = m.Recalled(h.Session)
			h.Idle = ownIdle(m, h)
		}
	})
	for _, h := range b.Heartbeats {
		switch state := p.Deadlines.Report(b.Term, h.Session, h.Idle, h.Arrived); {
		case state == expiry.Inactive:
			h.Done(p.cfg.Refusal())
		case state == expiry.Alive && h.Alive:
			p.recall(h)
			h.Done(well)
		default:
			h.Done(p.lost(h.Session))
		}
	}
}

// recall notifies a session again of its cached holds for which others wait. That comes before the answer to the
// heartbeat, which allows the session to grant them locally.
func (p *Processor) recall(h groupcommit.Heartbeat) {
	if repeated := h.Recalled[:min(len(h.Recalled), maxRecalls)]; len(repeated) > 0 {
		p.Notifier.Recall(h.Session, repeated)
		p.cfg.Metrics.Recalled(len(repeated))
	}
}

// ownIdle returns the reported holds that are cached holds of the session.
func ownIdle(m *fsm.Machine, h *groupcommit.Heartbeat) []*wire.IdleHold {
	return slices.DeleteFunc(h.Idle, func(one *wire.IdleHold) bool { return !m.Caches(h.Session, one.GetHoldId()) })
}

// IdleFor returns the time since the last use of a cached hold that its session's last heartbeat reported as not in
// use. Leader only.
func (p *Processor) IdleFor(session, hold uint64) (time.Duration, bool) {
	return p.Deadlines.IdleFor(session, hold)
}

// HeartbeatAge returns the time since the session's last sign of life or, for a lease, since its grant or
// last extension. Leader only.
func (p *Processor) HeartbeatAge(session uint64) (time.Duration, bool) {
	return p.Deadlines.Age(session)
}

// Remaining returns how much longer the leader waits for the session's next sign of life. Leader only.
func (p *Processor) Remaining(session uint64) (time.Duration, bool) {
	return p.Deadlines.Remaining(expiry.Session, session)
}

// HoldRemaining returns the time until a hold ends by its max_hold or by the grace of a revocation, whichever
// is earlier. It returns false if the hold has neither. Leader only.
func (p *Processor) HoldRemaining(hold uint64) (time.Duration, bool) {
	left, bounded := p.Deadlines.Remaining(expiry.Hold, hold)
	grace, revoked := p.Deadlines.Remaining(expiry.Grace, hold)
	if revoked && (!bounded || grace < left) {
		left = grace
	}
	return left, bounded || revoked
}

// DelayRemaining returns the time until the lock-delay of an ended hold is over. Leader only.
func (p *Processor) DelayRemaining(hold uint64) (time.Duration, bool) {
	return p.Deadlines.Remaining(expiry.Delay, hold)
}

// proposeEnding proposes a decided end.
func (p *Processor) proposeEnding(term uint64, cmd *wire.Command, answered func(*wire.Result)) bool {
	it := groupcommit.NewItem(cmd, answered)
	it.Work = groupcommit.WorkOf(cmd, p.locksOf)
	return p.Proposer.ProposeUrgent(term, it)
}
