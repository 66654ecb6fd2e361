package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Told is an outcome of a request as a client learned it: from an answer, from a push or from the answer to
// an attach. The same outcome may be told repeatedly.
type Told struct {
	Client string
	Op     *Op // the request that it answered; nil for a push
	Seq    uint64
	// Session is the request's session.
	Session uint64
	At      time.Duration
	Result  *wire.Result
}

// Told returns all outcomes of requests that have a sequence number, ordered by the time at which clients
// learned them.
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
