package response

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/budget"
)

// BodyFactor is the number of copies in memory of a body while it is decoded, and of a response while it is
// being sent.
const BodyFactor = 2

// StopTimeout is the time a caller has to read the final message of a stopping node.
const StopTimeout = time.Second

const (
	// modest is the most that a connection may hold for Prepare to assume a small response, in bytes.
	modest = 128 << 10
	// leastBytes is the approximate size of most responses, in bytes.
	leastBytes = 4 << 10
	// prefixBytes is the size of the prefix of each message in a stream. The prefix is a write of its own, so a
	// write of that size must not release the memory held for the message.
	prefixBytes = 5
)

// Writer is the response writer of a request. It sets a write deadline for each piece of the response, since
// an acquire may take arbitrarily long before its first piece. It drops what a handler writes after leaving
// the response to the leader. Only the goroutine that serves the request may use it, except for ShortenDeadline.
type Writer struct {
	http.ResponseWriter
	// Forward is set if the handler left the response to the leader; nothing was written.
	Forward bool
	// Uncertain is set if some attempt may have changed something. It is never reset.
	Uncertain bool
	// Outcome is the outcome for the metrics.
	Outcome string
	// Code is the HTTP status that was written; 0 if the response has not begun.
	Code int
	// Exhausted is set if the node had no memory for the response; nothing was written.
	Exhausted error

	control   *http.ResponseController
	timeout   atomic.Int64
	memory    *budget.Account // the account of the connection, or of the caller behind another node's
	held      int             // the bytes of memory held for this response
	leaveTurn func()          // ends the caller's turn in a queue; nil if it has none
}

// New returns a writer to w. A caller has the timeout to read each piece. memory is charged for the response;
// nil means unbounded.
func New(w http.ResponseWriter, timeout time.Duration, memory *budget.Account) *Writer {
	a := &Writer{ResponseWriter: w, control: http.NewResponseController(w), memory: memory}
	a.timeout.Store(int64(timeout))
	// The connection may still carry the deadline of its last response.
	_ = a.control.SetWriteDeadline(time.Time{})
	return a
}

type key struct{}

// Context returns a context that carries the writer.
func (w *Writer) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, key{}, w)
}

// Of returns the writer in a request's context.
func Of(ctx context.Context) *Writer { return ctx.Value(key{}).(*Writer) }

// Unwrap returns the underlying writer for http.ResponseController.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// SetReadDeadline bounds the arrival of the request's body.
func (w *Writer) SetReadDeadline(t time.Time) { _ = w.control.SetReadDeadline(t) }

// Reset prepares the writer for another attempt to respond. Nothing must have been written.
func (w *Writer) Reset() {
	clear(w.Header())
	w.Forward, w.Outcome = false, ""
}

// BeginTurn sets the function that ends the caller's turn in a queue.
func (w *Writer) BeginTurn(leave func()) { w.leaveTurn = leave }

// EndTurn ends the caller's turn, if it has one. The writer calls it when the response is encoded.
func (w *Writer) EndTurn() {
	if w.leaveTurn != nil {
		w.leaveTurn()
		w.leaveTurn = nil
	}
}

// ShortenDeadline shortens the time that the caller has to read each piece, because the node is stopping. Any goroutine
// may call it.
func (w *Writer) ShortenDeadline() {
	w.timeout.Store(int64(StopTimeout))
	w.extend()
}

// Prepare reserves memory for a response of unknown size, which most bounds. If the budget has no room for
// that, a connection that holds little gets a reservation for a small response: the actual size is known once
// it is encoded.
func (w *Writer) Prepare(most int) error {
	err := w.hold(most)
	if err != nil && w.memory.Held() <= modest {
		err = w.hold(min(most, leastBytes))
	}
	return err
}

// Charge makes another account pay for the response. Nothing must be held yet.
func (w *Writer) Charge(memory *budget.Account) { w.memory = memory }

// ChargeNothing releases what is held and charges nothing for the response, which is a short error. The account may have
// no memory for it.
func (w *Writer) ChargeNothing() {
	w.Release()
	w.memory = nil
}

// Memory returns the account that is charged for the request and its response; nil means unbounded.
func (w *Writer) Memory() *budget.Account { return w.memory }

// Release releases all memory held for the response.
func (w *Writer) Release() { w.keep(0) }

// hold reserves memory for a response of the given size, beyond what is already held.
func (w *Writer) hold(bytes int) error {
	more := BodyFactor*bytes - w.held
	if more <= 0 {
		return nil
	}
	if err := w.memory.Reserve(more); err != nil {
		return err
	}
	w.held += more
	return nil
}

// keep releases what is held beyond a response of the given size.
func (w *Writer) keep(bytes int) {
	if less := w.held - BodyFactor*bytes; less > 0 {
		w.memory.Release(less)
		w.held -= less
	}
}

// dropped reports whether the handler's further writes are discarded.
func (w *Writer) dropped() bool { return w.Forward || w.Exhausted != nil }

// WriteHeader starts the response.
func (w *Writer) WriteHeader(code int) {
	if w.dropped() {
		return
	}
	if w.Code == 0 {
		w.Code = code
	}
	w.EndTurn()
	w.extend()
	w.ResponseWriter.WriteHeader(code)
}

// Write writes a piece of the response. It returns [budget.ErrExhausted] if the node has no memory for it and
// nothing was written before. If something was, it cuts the connection.
func (w *Writer) Write(p []byte) (int, error) {
	if w.Forward {
		return len(p), nil
	}
	if w.Exhausted != nil {
		return 0, w.Exhausted
	}
	w.EndTurn()
	if err := w.hold(len(p)); err != nil {
		if w.Code != 0 {
			panic(http.ErrAbortHandler) // earlier messages of the stream were sent, so it is too late for an error response
		}
		w.Exhausted = err
		return 0, err
	}
	if w.Code == 0 {
		w.Code = http.StatusOK
	}
	w.extend()
	if len(p) > prefixBytes {
		w.keep(len(p))
		defer w.keep(0)
	}
	return w.ResponseWriter.Write(p)
}

// Flush sends what was written so far.
func (w *Writer) Flush() {
	if w.dropped() {
		return
	}
	w.extend()
	_ = w.control.Flush()
}

func (w *Writer) extend() {
	_ = w.control.SetWriteDeadline(time.Now().Add(time.Duration(w.timeout.Load())))
}
