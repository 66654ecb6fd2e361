package history

import (
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// History is what clients did, in the order in which it was booked: operations by their
// call, holds by their grant.
type History struct {
	// Begin is the time of day at which the history's clock stood at 0. It serves only to
	// compare with the stamps in the log of nodes on the same machine.
	Begin   time.Time
	Records []Record
}

// Record is one line. Exactly one field is set.
type Record struct {
	Op    *Op
	Push  *Push
	Hold  *Hold
	Mark  *Mark
	Fault *Fault
}

// Outcome says what is known of an operation.
type Outcome uint8

// The outcomes of an operation.
const (
	// Unknown: there was no answer, or UNCERTAIN. It may have happened, or happen yet.
	Unknown Outcome = iota
	// OK: it was answered out of the replicated state, which includes refusals.
	OK
	// Fail: it was certainly not executed, here and this time.
	Fail
)

// String names the outcome in lower case.
func (o Outcome) String() string { return [...]string{"unknown", "ok", "fail"}[o] }

// OutcomeOf says what an answer makes known.
func OutcomeOf(status wire.Status_Code) Outcome {
	switch status {
	case wire.Status_NOT_LEADER, wire.Status_UNAVAILABLE, wire.Status_NOT_ATTACHED:
		return Fail
	case wire.Status_UNCERTAIN, wire.Status_UNSPECIFIED:
		return Unknown
	}
	return OK
}

// Op is one sending of one request. A retry is another one.
type Op struct {
	// Client is who sent it, Conn on which of all connections, from 1 on; 0 is none.
	Client string
	Conn   uint64
	// HTTP says that it was a call over HTTP, whose answer tells less of the result.
	HTTP bool
	// Kind is the request's name in frame.proto.
	Kind         string
	Session, Seq uint64
	// Call is before it was sent, Return after its answer came, or Never. The final outcome
	// of a request that is answered QUEUED comes by a push or with an attach's answer.
	Call, Return time.Duration
	Outcome      Outcome
	Request      *wire.Request
	Response     *wire.Response // nil if there was none
}

// Result is what the request was answered; nil if it was not.
func (o *Op) Result() *wire.Result { return o.Response.GetResult() }

// Push is what a node said unasked.
type Push struct {
	Client string
	Conn   uint64
	At     time.Duration
	Push   *wire.Push
}

// Share is what a hold has of one lock.
type Share struct {
	Lock    string    `json:"lock"`
	Mode    wire.Mode `json:"mode"`
	Permits uint64    `json:"permits,omitempty"`
	Limit   uint64    `json:"limit,omitempty"`
}

// Hold is what an application believed of one hold, under one token.
type Hold struct {
	Client                       string
	Session, ID, Token, Revision uint64
	Locks                        []Share
	// Asked is before the acquire, Granted when the application learned of the grant, Ended
	// when it counted on it no more, or Never.
	Asked, Granted, Ended time.Duration
	// Released says that its release was acknowledged.
	Released bool
	// Unguarded says that the client was stopped beyond its deadline on purpose: only the
	// token guards what it does then.
	Unguarded bool
}

// Exclusive is all of one lock.
func Exclusive(lock string) []Share { return []Share{{Lock: lock, Mode: wire.Mode_EXCLUSIVE}} }

// Shared is one reader's part of a lock.
func Shared(lock string) []Share { return []Share{{Lock: lock, Mode: wire.Mode_SHARED}} }

// Permits are some of a semaphore's.
func Permits(lock string, permits, limit uint64) []Share {
	return []Share{{Lock: lock, Mode: wire.Mode_PERMITS, Permits: permits, Limit: limit}}
}

// Healed marks that every fault has ended.
const Healed = "healed"

// Mark is something that happened to the whole.
type Mark struct {
	At   time.Duration
	What string
}

// Fault is what must not be, as a client saw it.
type Fault struct {
	At   time.Duration
	Text string
}

// clone copies what may still change. Messages do not.
func (r Record) clone() Record {
	switch {
	case r.Op != nil:
		op := *r.Op
		return Record{Op: &op}
	case r.Hold != nil:
		hold := *r.Hold
		return Record{Hold: &hold}
	}
	return r
}
