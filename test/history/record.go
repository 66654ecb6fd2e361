package history

import (
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// History is what clients did, in the order in which it was recorded: operations by their call, holds by
// their grant.
type History struct {
	// Begin is the wall-clock time at which the history's clock was 0. It is only used for comparison with
	// the timestamps in the log of nodes on the same machine.
	Begin   time.Time
	Records []Record
}

// Record is one line. Exactly one field is set.
type Record struct {
	Op    *Op
	Push  *Push
	Key   *KeyRequest
	Hold  *Hold
	Mark  *Mark
	Fault *Fault
}

// Outcome is what is known about an operation's execution.
type Outcome uint8

// Outcomes of an operation.
const (
	// Unknown means that there was no answer, or UNCERTAIN. It may have been executed, or may still be.
	Unknown Outcome = iota
	// OK means that it was answered from the replicated state. This includes refusals.
	OK
	// Fail means that this attempt was certainly not executed.
	Fail
)

// String returns the outcome's name in lower case.
func (o Outcome) String() string { return [...]string{"unknown", "ok", "fail"}[o] }

// OutcomeOf returns the outcome that follows from an answer's status.
func OutcomeOf(status wire.Status_Code) Outcome {
	switch status {
	case wire.Status_NOT_LEADER, wire.Status_UNAVAILABLE, wire.Status_NOT_ATTACHED:
		return Fail
	case wire.Status_UNCERTAIN, wire.Status_UNSPECIFIED:
		return Unknown
	}
	return OK
}

// Op is one attempt of a request. A retry is another Op.
type Op struct {
	// Client is the sender, Conn the number of the connection among all, from 1; 0 if there is none.
	Client string
	Conn   uint64
	// HTTP is set for a call over HTTP, whose response contains less of the result.
	HTTP bool
	// Kind is the request's name in frame.proto.
	Kind         string
	Session, Seq uint64
	// Call is the time before it was sent, Return the time after its answer arrived, or Never. If the answer
	// is QUEUED, the final outcome comes with a push or with the answer to an attach.
	Call, Return time.Duration
	Outcome      Outcome
	Request      *wire.Request
	Response     *wire.Response // nil if there was none
}

// Result returns the result in the answer; nil if there was no answer.
func (o *Op) Result() *wire.Result { return o.Response.GetResult() }

// Push is a message that a node sent without a request.
type Push struct {
	Client string
	Conn   uint64
	At     time.Duration
	Push   *wire.Push
}

// Share is the part of a hold that concerns one lock.
type Share struct {
	Lock    string    `json:"lock"`
	Mode    wire.Mode `json:"mode"`
	Permits uint64    `json:"permits,omitempty"`
	Limit   uint64    `json:"limit,omitempty"`
}

// Hold is what an application believed about one hold, under one token.
type Hold struct {
	Client                       string
	Session, ID, Token, Revision uint64
	// Value is set for a key: the value that a Redis client gave it. Such a client does not learn session, ID and
	// revision, and may not have learned the token.
	Value string
	Locks []Share
	// Asked is the time before the acquire, Granted that at which the application learned of the grant, Ended
	// that at which it stopped relying on the hold, or Never.
	Asked, Granted, Ended time.Duration
	// Released is set if its release was acknowledged.
	Released bool
	// Unguarded is set if the client was deliberately stopped beyond its deadline: then only the token
	// protects the resource.
	Unguarded bool
}

// Exclusive returns the share of an exclusive hold.
func Exclusive(lock string) []Share { return []Share{{Lock: lock, Mode: wire.Mode_EXCLUSIVE}} }

// Shared returns the share of a reader.
func Shared(lock string) []Share { return []Share{{Lock: lock, Mode: wire.Mode_SHARED}} }

// Permits returns the share of a hold of some of a semaphore's permits.
func Permits(lock string, permits, limit uint64) []Share {
	return []Share{{Lock: lock, Mode: wire.Mode_PERMITS, Permits: permits, Limit: limit}}
}

// Healed marks the end of all faults.
const Healed = "healed"

// Mark is something that happened to the cluster as a whole.
type Mark struct {
	At   time.Duration
	What string
}

// Fault is a violation that a client observed.
type Fault struct {
	At   time.Duration
	Text string
}

// clone copies what may still change. Messages do not change.
func (r Record) clone() Record {
	switch {
	case r.Op != nil:
		op := *r.Op
		return Record{Op: &op}
	case r.Key != nil:
		key := *r.Key
		return Record{Key: &key}
	case r.Hold != nil:
		hold := *r.Hold
		return Record{Hold: &hold}
	}
	return r
}
