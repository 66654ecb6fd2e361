package replica

import (
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// A heartbeat counts from its receipt, but is acknowledged only on proof: some entry
// that was proposed after it arrived has been committed and applied, so at that time no
// other leader could have decided the session's end, and the session lives in that
// state. Raft's VerifyLeader would not do: it counts answers to older questions.

// Heartbeat counts as a sign of life at once and answers OK on proof of leadership
// newer than the call, if the session lives then; SESSION_LOST if it is unknown or its
// expiry is decided. Answers are shared: they are only for reading.
func (r *Replica) Heartbeat(session uint64, done func(*wire.Result)) {
	switch r.deadlines.touch(session, time.Now()) {
	case inactive:
		done(r.refusal())
	case unknown, decided:
		done(r.lost(session))
	case leased:
		done(refused(wire.Status_INVALID_ARGUMENT, "the session is a lease's: heartbeats do not prolong it, an extension does"))
	default:
		r.proposer.beat(beat{session: session, done: done})
	}
}

// lost is the answer to a session that is unknown or whose expiry is decided.
func (r *Replica) lost(session uint64) (answer *wire.Result) {
	r.machine.View(func(m *fsm.Machine) { answer = m.SessionLost(session) })
	return answer
}

// Prove calls done with OK once an entry that was proposed after this call has been
// committed and applied here: what View shows then is linearizable.
func (r *Replica) Prove(done func(*wire.Result)) { r.proposer.prove(done) }

// answerBeats acknowledges the heartbeats that the batch proves.
func (r *Replica) answerBeats(b *batch) {
	if len(b.beats) == 0 {
		return
	}
	r.machine.View(func(m *fsm.Machine) {
		for i := range b.beats {
			_, b.beats[i].lives = m.Session(b.beats[i].session)
		}
	})
	well := &wire.Result{Status: wire.Status_OK} // for all of them
	for _, beat := range b.beats {
		switch state := r.deadlines.state(b.term, beat.session); {
		case state == inactive:
			beat.done(r.refusal())
		case state == alive && beat.lives:
			beat.done(well)
		default:
			beat.done(r.lost(beat.session))
		}
	}
}

// HeartbeatAge is the time since the session's last sign of life, or since the grant or
// last extension of a lease; leader only.
func (r *Replica) HeartbeatAge(session uint64) (time.Duration, bool) {
	return r.deadlines.age(session)
}

// Remaining is how long the leader waits for the session's next sign of life from now
// on; leader only.
func (r *Replica) Remaining(session uint64) (time.Duration, bool) {
	return r.deadlines.remaining(ofSession, session)
}

// HoldRemaining is how long until a hold ends by the earlier of its own deadlines: its
// max_hold's, and that of a revocation's grace. False without one; leader only.
func (r *Replica) HoldRemaining(hold uint64) (time.Duration, bool) {
	left, bounded := r.deadlines.remaining(ofHold, hold)
	grace, revoked := r.deadlines.remaining(ofGrace, hold)
	if revoked && (!bounded || grace < left) {
		left = grace
	}
	return left, bounded || revoked
}

// DelayRemaining is how long until the lock-delay of a hold that ended is over; leader
// only.
func (r *Replica) DelayRemaining(hold uint64) (time.Duration, bool) {
	return r.deadlines.remaining(ofDelay, hold)
}
