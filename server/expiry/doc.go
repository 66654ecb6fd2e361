// Package expiry decides when sessions, waits, holds and lock-delays end.
//
// The leader alone has [Deadlines]. It rebuilds them from the state when it starts to serve, with the full time
// for each, and then follows the events of every entry. A deadline that has passed is decided: it becomes a
// command in the log, which names the term and the generation of the deadline, so that the state machine can
// ignore it if something newer has happened. A decision is never taken back. It is proposed again until the log
// has it, or the leadership is over.
//
// The TTL of a key can be long, and nobody may be left to release it. So that elections do not renew it for ever, what
// remains of it is recorded in the log each [RecordInterval], and the next leader starts with that.
//
// No deadline is early, whatever the process was doing: signs of life count from their arrival, and deadlines
// that are due after a stall of the process are extended a little, once.
package expiry
