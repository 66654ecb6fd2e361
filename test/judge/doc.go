// Package judge checks whether a cluster kept its guarantees in a run, from what its clients did and saw
// (package history) and from its committed log, after the run.
//
// The log is replayed, entry by entry, through the state machine and through the independent model (package
// model). Both must agree on every answer and event. The model's results at each revision are then the
// reference for all other checks:
//
//   - replay.go: the two replays, and rules about the events that depend on neither of them (rules.go):
//     tokens increase, grants go to live sessions, holders are compatible, queues are first in, first out;
//   - told.go: every answer, push and read that a client received agrees with the model, and so the log
//     contains everything that was acknowledged;
//   - key.go, told_keys.go: the same for Redis clients, whose replies contain no revision: every reply has an outcome in
//     the log at that time, a client asked for every effect in the log, and no key expires early;
//   - order.go: revisions agree with real time: what was reported before a request was sent precedes that
//     request;
//   - holds.go: conflicting holds, as applications saw them, never overlap, and a hold ends before the lock
//     is granted to another client;
//   - cached.go: what sessions grant locally under a cached hold has the next token of its range, one at a time, in order
//     of arrival, while the session is heard, and neither after a recall nor after the end of the hold;
//   - expiry.go, timers.go: no session, wait, bounded hold, lease or lock-delay ends early, and all end in
//     time;
//   - liveness.go: after healing, every client is answered, and no client waits without a reason;
//   - window.go: a second opinion by porcupine, about one lock at a time.
//
// A run that did too little proves nothing (see Counts.Enough). Each checker has a test that gives it a
// forged history and expects it to be rejected.
//
// The log may come from any source: ReadLogs reads the data directories of stopped nodes.
package judge
