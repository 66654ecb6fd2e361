// Package read answers questions about locks and sessions, alike on every port.
//
// A read is linearizable unless it asks for a stale answer: first a proof that this
// node still led after the question came in ([Reader.Prove]), then the answer from
// the state as it is applied here. Both ports share this package; they differ only
// in how they wait for the proof.
//
// The state machine has no clock. What depends on one (how long a lock has been held,
// how long a waiter has waited, when a session was last heard of, what is left of a
// hold's own deadline or of a lock-delay) is filled in here from the answering node's
// clock, for people: no decision reads it.
//
// Answers are pages, and a page is cut so that it fits into one frame.
package read
