// Package read answers questions about locks and sessions in the same way on every port.
//
// A read is linearizable unless it asks for a stale answer: first the node proves that it still led after the
// request arrived ([Reader.Prove]), then it answers from its applied state. Both ports use this package and
// differ only in how they wait for the proof.
//
// The state machine has no clock. This package fills in the fields that depend on one: how long a lock has
// been held, how long a waiter has waited, the age of a session's last heartbeat, and the remaining time of a
// hold's own deadline or a lock-delay. They come from the answering node's clock and are informational: no
// decision uses them.
//
// Answers are paginated, and each page fits into one frame.
package read
