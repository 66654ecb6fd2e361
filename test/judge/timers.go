package judge

import (
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// timer is one of the leader's deadlines other than a session's: that of a wait, a bounded hold, a
// revocation's grace, a lease or a lock-delay.
type timer struct {
	what       string
	generation uint64
	began      time.Duration
	lasts      time.Duration
	// again is what remained of a key's TTL at recorded, which is how long it lasts after a later barrier. 0 if it was
	// not recorded, and then it lasts as long as at first.
	again, recorded time.Duration
}

// since returns when the deadline started last, given the barrier of the present leader, and how long it lasts since.
func (t timer) since(barrier time.Duration) (start, lasts time.Duration) {
	switch {
	case barrier <= t.began:
		return t.began, t.lasts
	case t.again != 0 && t.recorded <= barrier:
		return barrier, t.again
	}
	return barrier, t.lasts
}

// timers checks, by the leaders' timestamps, that each of these deadlines is enforced neither early nor late.
// A new leader restarts all of them.
func timers(r *replay) (faults []string) {
	if !r.in.Bounds.Stamps {
		return nil
	}
	running := map[string]timer{}
	barrier := time.Duration(0)
	for _, s := range r.steps {
		if s.cmd.GetBeginTerm() != nil && s.said.Status == wire.Status_OK {
			barrier = s.at
		}
		if key := ends(s); key != "" {
			if t, known := running[key]; known {
				faults = append(faults, r.judgeTimer(t, barrier, s)...)
			}
		}
		for _, e := range s.events {
			follow(running, e, s.at)
		}
		r.record(running, s)
	}
	for _, t := range running {
		start, lasts := t.since(barrier)
		if end := r.lastStamp(); end > r.latest(start, lasts, end, 0) {
			faults = append(faults, fmt.Sprintf("%s began at %v, lasts %v and is not over at %v", t.what, t.began, t.lasts, end))
		}
	}
	return faults
}

func (r *replay) judgeTimer(t timer, barrier time.Duration, s step) []string {
	start, lasts := t.since(barrier)
	if due := max(start+lasts, t.began+t.lasts); s.at < due-stampRound {
		return []string{fmt.Sprintf("%s began at %v, lasts %v and was ended at %v (revision %d)", t.what, start, lasts, s.at, s.revision)}
	}
	if s.at > r.latest(start, lasts, s.at, s.revision) {
		return []string{fmt.Sprintf("%s began at %v, lasts %v and was ended at %v only (revision %d)", t.what, start, lasts, s.at, s.revision)}
	}
	return nil
}

// record follows the records of what remains of the TTLs of keys.
func (r *replay) record(running map[string]timer, s step) {
	for _, one := range s.cmd.GetRecordRemaining().GetKeys() {
		name := keyOf(aLease, one.SessionId)
		if t, known := running[name]; known && s.said.Status == wire.Status_OK && one.Generation == t.generation {
			t.again, t.recorded = time.Duration(one.RemainingMs)*time.Millisecond, s.at
			running[name] = t
		}
	}
}

func (r *replay) lastStamp() time.Duration {
	if len(r.steps) == 0 {
		return 0
	}
	return r.steps[len(r.steps)-1].at
}

func keyOf(kind string, id uint64) string { return fmt.Sprint(kind, " ", id) }

const (
	aWait, aHold, aGrace, aDelay, aLease = "the wait of", "the bound of hold", "the grace of hold", "the lock-delay of", "the lease of session"
)

// ends names the deadline that a command enforced; empty if none.
func ends(s step) string {
	switch op := s.cmd.Op.(type) {
	case *wire.Command_TimeoutWait:
		if s.said.Status == wire.Status_TIMEOUT {
			return keyOf(aWait, op.TimeoutWait.WaitId)
		}
	case *wire.Command_ExpireHold:
		if s.said.Status == wire.Status_OK {
			if op.ExpireHold.Grace {
				return keyOf(aGrace, op.ExpireHold.HoldId)
			}
			return keyOf(aHold, op.ExpireHold.HoldId)
		}
	case *wire.Command_EndDelay:
		if s.said.Status == wire.Status_OK {
			return keyOf(aDelay, op.EndDelay.HoldId)
		}
	case *wire.Command_ExpireSession:
		if s.said.Status == wire.Status_OK {
			return keyOf(aLease, op.ExpireSession.SessionId)
		}
	}
	return ""
}

// follow starts and stops deadlines according to an event.
func follow(running map[string]timer, e *wire.Event, at time.Duration) {
	begin := func(kind string, id uint64, ms uint32) {
		key := keyOf(kind, id)
		running[key] = timer{what: key, generation: e.Generation, began: at, lasts: time.Duration(ms) * time.Millisecond}
	}
	stop := func(kinds ...string) {
		for _, kind := range kinds {
			delete(running, keyOf(kind, e.HoldId))
		}
	}
	switch e.Type {
	case wire.Event_QUEUED:
		if !e.WaitForever {
			begin(aWait, e.HoldId, e.WaitMs)
		}
	case wire.Event_GRANTED, wire.Event_EXTENDED, wire.Event_WANTED:
		if e.Type == wire.Event_GRANTED {
			stop(aWait)
		}
		if e.MaxHoldMs > 0 {
			begin(aHold, e.HoldId, e.MaxHoldMs)
		}
	case wire.Event_REVOKED:
		if e.MaxHoldMs > 0 {
			begin(aGrace, e.HoldId, e.MaxHoldMs)
		}
	case wire.Event_CANCELLED:
		stop(aWait)
	case wire.Event_RELEASED, wire.Event_EXPIRED, wire.Event_FORCED:
		stop(aWait, aHold, aGrace)
	case wire.Event_DELAYED:
		begin(aDelay, e.HoldId, e.LockDelayMs)
	case wire.Event_DELAY_ENDED:
		if !e.Partial {
			stop(aDelay)
		}
	case wire.Event_SESSION_OPENED, wire.Event_SESSION_EXTENDED:
		if e.Leased {
			begin(aLease, e.SessionId, e.TtlMs)
		}
	case wire.Event_SESSION_CLOSED, wire.Event_SESSION_EXPIRED:
		delete(running, keyOf(aLease, e.SessionId))
	}
}
