package demo

// Kind is what happened to a worker.
type Kind string

// Reports of a worker, as one JSON object per line on its standard output.
const (
	// Ready means that it has a session and waits for a line on its standard input to start.
	Ready Kind = "ready"
	// Granted means that it holds the order's lock.
	Granted Kind = "granted"
	// Checked means that it has checked the order, is about to write, and waits for a line on its standard
	// input. Only the worker with --signal-after reports it, once.
	Checked Kind = "checked"
	// Refunded means that it wrote the refund. The request is answered.
	Refunded Kind = "refunded"
	// Retried means that the order was already refunded under the same idempotency key. The request is
	// answered.
	Retried Kind = "retried"
	// Duplicate means that the order was already refunded under another idempotency key. The request is
	// answered.
	Duplicate Kind = "duplicate"
	// Stale means that the ledger rejected its token. It retries the request.
	Stale Kind = "stale"
	// Lost means that its session was lost. It opens another one.
	Lost Kind = "lost"
)

// Event is one report of a worker.
type Event struct {
	Kind   Kind   `json:"kind"`
	Worker int    `json:"worker"`
	Line   int    `json:"line,omitempty"`
	Order  string `json:"order,omitempty"`
	Token  uint64 `json:"token,omitempty,string"`
	// Reason is for people.
	Reason string `json:"reason,omitempty"`
}

// Answers reports whether the event is the answer to a request.
func (e Event) Answers() bool {
	return e.Kind == Refunded || e.Kind == Retried || e.Kind == Duplicate
}
