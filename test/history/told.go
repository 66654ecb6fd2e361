package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Told is one outcome of one request as a client learned it: by an answer, by a push or
// with an attach's answer. The same may be told often.
type Told struct {
	Client string
	Op     *Op // what it answered; nil if it came by a push
	Seq    uint64
	// Session is the request's.
	Session uint64
	At      time.Duration
	Result  *wire.Result
}

// Told are all outcomes of requests with a number in a session, by the time at which they
// were learned.
func (h *History) Told() []Told {
	var all []Told
	for _, r := range h.Records {
		switch {
		case r.Op != nil && r.Op.Outcome == OK:
			all = append(all, toldBy(r.Op)...)
		case r.Push != nil:
			if outcome := r.Push.Push.GetOutcome(); outcome != nil {
				all = append(all, Told{Client: r.Push.Client, Seq: outcome.Seq, Session: r.Push.Push.SessionId, At: r.Push.At, Result: outcome})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Told) int { return cmp.Compare(a.At, b.At) })
	return all
}

func toldBy(op *Op) []Told {
	var all []Told
	if op.Seq != 0 && op.Result().GetSeq() == op.Seq {
		all = append(all, Told{Client: op.Client, Op: op, Seq: op.Seq, Session: op.Session, At: op.Return, Result: op.Result()})
	}
	for _, outcome := range op.Result().GetSession().GetOutcomes() {
		all = append(all, Told{Client: op.Client, Op: op, Seq: outcome.Seq, Session: op.Result().Session.SessionId, At: op.Return, Result: outcome})
	}
	return all
}
