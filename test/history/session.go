package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Session is one session's signs of life, as the wire saw them.
type Session struct {
	ID     uint64
	Client string
	TTL    time.Duration
	// Opened is when the request that opened it was sent.
	Opened time.Duration
	// Proved is when the last request was sent that was acknowledged before the deadline,
	// Tried when the last one was sent at all.
	Proved, Tried time.Duration
	// Closed is when its close was first sent, or Never.
	Closed time.Duration
}

// Deadline is when the session is over for its client: by what was proved, and earlier
// than the cluster's by a hundredth of the TTL and 20 ms at least.
func (s Session) Deadline() time.Duration {
	return s.Proved + s.TTL - max(s.TTL/100, 20*time.Millisecond)
}

// Sessions works out every session that a client opened and learned of. Leased ones live
// by extensions and are none of them.
func (h *History) Sessions() map[uint64]Session {
	answered := slices.DeleteFunc(h.Ops(), func(o *Op) bool { return o.Outcome != OK })
	slices.SortStableFunc(answered, func(a, b *Op) int { return cmp.Compare(a.Return, b.Return) })
	all := map[uint64]Session{}
	for _, op := range answered {
		if state := op.Result().GetSession(); op.Kind == "open_session" && state != nil {
			s, known := all[state.SessionId]
			if !known {
				s = Session{ID: state.SessionId, Client: op.Client, TTL: time.Duration(state.TtlMs) * time.Millisecond, Opened: op.Call, Closed: Never}
			}
			s.Proved = max(s.Proved, op.Call)
			all[s.ID] = s
		} else if s, ok := all[op.Session]; ok && Proves(op.Result().GetStatus()) && op.Return < s.Deadline() {
			s.Proved = max(s.Proved, op.Call)
			all[s.ID] = s
		}
	}
	for _, op := range h.Ops() {
		if s, ok := all[op.Session]; ok {
			s.Tried = max(s.Tried, op.Call)
			if op.Kind == "close_session" {
				s.Closed = min(s.Closed, op.Call)
			}
			all[s.ID] = s
		}
	}
	for id, s := range all {
		s.Tried = max(s.Tried, s.Proved)
		all[id] = s
	}
	return all
}

// Proves says which answers come from the log, or from a proof of leadership newer than
// the request.
func Proves(status wire.Status_Code) bool {
	return status >= wire.Status_OK && status < wire.Status_SESSION_LOST
}

// Ops are all operations, by their call.
func (h *History) Ops() []*Op {
	var all []*Op
	for _, r := range h.Records {
		if r.Op != nil {
			all = append(all, r.Op)
		}
	}
	slices.SortStableFunc(all, func(a, b *Op) int { return cmp.Compare(a.Call, b.Call) })
	return all
}

// Holds are all holds, by their grant.
func (h *History) Holds() []*Hold {
	var all []*Hold
	for _, r := range h.Records {
		if r.Hold != nil {
			all = append(all, r.Hold)
		}
	}
	slices.SortStableFunc(all, func(a, b *Hold) int { return cmp.Compare(a.Granted, b.Granted) })
	return all
}

// Faults are all that clients found wrong, with their times.
func (h *History) Faults() []*Fault {
	var all []*Fault
	for _, r := range h.Records {
		if r.Fault != nil {
			all = append(all, r.Fault)
		}
	}
	return all
}
