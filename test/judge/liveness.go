package judge

import (
	"fmt"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// liveness checks, for sessions that lived to the end, that every request was answered within the bound after
// it was sent or the last fault was healed, and that every client whose wait ended was notified. Whether a
// request that still waits at the end has something to wait for is checked by the replay.
func liveness(r *replay) (faults []string) {
	if r.in.Bounds.Answer == 0 {
		return nil
	}
	healed, end := r.healed(), r.end()
	gone := r.gone(healed)
	asked := map[request]time.Duration{}
	for _, op := range r.in.History.Ops() {
		key := request{op.Session, op.Seq}
		if _, known := asked[key]; !known && op.Seq != 0 {
			asked[key] = op.Call
		}
	}
	heard := map[request]wire.Status_Code{}
	for _, t := range r.in.History.Told() {
		heard[request{t.Session, t.Seq}] = t.Result.Status
	}
	for key, call := range asked {
		if gone[key.session] || max(call, healed)+r.in.Bounds.Answer > end {
			continue
		}
		status, answered := heard[key]
		switch outcome := r.final(key); {
		case !answered:
			faults = append(faults, fmt.Sprintf("request %d of session %d, made at %v, has no answer at %v; healed at %v", key.seq, key.session, call, end, healed))
		case status == wire.Status_QUEUED && outcome != nil && r.at(outcome.Revision).at+r.in.Bounds.Answer < end:
			faults = append(faults, fmt.Sprintf("request %d of session %d came to %v, and its client was never told", key.seq, key.session, outcome))
		}
	}
	slices.Sort(faults)
	return faults
}

// final returns the final outcome of a request that waited; nil if it still waits.
func (r *replay) final(key request) *wire.Result {
	if came := r.came[key]; len(came) > 0 {
		return came[len(came)-1]
	}
	return nil
}

// healed returns when the last fault ended; 0 if there was none.
func (r *replay) healed() time.Duration {
	at := time.Duration(0)
	for _, record := range r.in.History.Records {
		if m := record.Mark; m != nil && m.What == history.Healed {
			at = max(at, m.At)
		}
	}
	return at
}

// gone returns the sessions whose clients need no answer any more: those that ended or were being closed,
// those past their client's deadline at the end, and those without an acknowledged request since healing.
func (r *replay) gone(healed time.Duration) map[uint64]bool {
	gone := map[uint64]bool{}
	for _, s := range r.steps {
		for _, e := range s.events {
			if e.Type == wire.Event_SESSION_EXPIRED || e.Type == wire.Event_SESSION_CLOSED {
				gone[e.SessionId] = true
			}
		}
	}
	for _, s := range r.in.History.Sessions() {
		if s.Closed != history.Never || s.Deadline() < r.end() || s.Proved < healed {
			gone[s.ID] = true
		}
	}
	return gone
}
