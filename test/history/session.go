package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Session is a session as observed on the wire.
type Session struct {
	ID     uint64
	Client string
	TTL    time.Duration
	// Opened is when the request that opened it was sent.
	Opened time.Duration
	// Proved is when the last request was sent that was acknowledged before the deadline, Tried when the last
	// one was sent.
	Proved, Tried time.Duration
	// Closed is when the first close was sent, or Never.
	Closed time.Duration
}

// Deadline returns when the session is over for its client. It is counted from Proved, and precedes the
// cluster's deadline by a hundredth of the TTL, at least 20 ms.
func (s Session) Deadline() time.Duration {
	return s.Proved + s.TTL - max(s.TTL/100, 20*time.Millisecond)
}

// Sessions returns all sessions that a client opened and learned of, except leases, which are kept alive by
// extensions.
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

// Proves reports whether an answer with this status comes from the log, or follows a leadership check newer
// than the request.
func Proves(status wire.Status_Code) bool {
	return status >= wire.Status_OK && status < wire.Status_SESSION_LOST
}

// Ops returns all operations, ordered by their call.
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

// Holds returns all holds, ordered by their grant.
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

// Faults returns all violations that clients observed.
func (h *History) Faults() []*Fault {
	var all []*Fault
	for _, r := range h.Records {
		if r.Fault != nil {
			all = append(all, r.Fault)
		}
	}
	return all
}
