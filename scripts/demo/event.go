package demo

// Kind says what happened to a worker.
type Kind string

// What a worker reports, as one JSON object a line on its standard output.
const (
	// Ready: it has a session and waits for a line on its standard input to start.
	Ready Kind = "ready"
	// Granted: it holds the order's lock.
	Granted Kind = "granted"
	// Checked: it has checked the order, is about to write, and waits for a line on
	// its standard input. Only the worker with --signal-after does so, once.
	Checked Kind = "checked"
	// Refunded: it wrote the refund. The request is answered.
	Refunded Kind = "refunded"
	// Retried: the order was refunded under the same idempotency key before. The
	// request is answered.
	Retried Kind = "retried"
	// Duplicate: the order was refunded under another idempotency key before. The
	// request is answered.
	Duplicate Kind = "duplicate"
	// Stale: the ledger refused its token. It takes the request up again.
	Stale Kind = "stale"
	// Lost: its session was lost. It opens another.
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

// Answers tells whether the event is the answer to a request.
func (e Event) Answers() bool {
	return e.Kind == Refunded || e.Kind == Retried || e.Kind == Duplicate
}
