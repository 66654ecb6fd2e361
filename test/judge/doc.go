// Package judge says whether a cluster kept its promises in a run: from what its clients
// did and saw (package history) and from its committed log, once all is over.
//
// The log is replayed through the state machine and through the independent model
// (package model), entry by entry. They must agree on every answer and event; then what
// the model said at each revision is the truth that everything else is held against:
//
//   - replay.go: the two replays, and rules about the events that know neither of them
//     (rules.go): tokens rise, grants go to live sessions, holders fit together, queues
//     are first in, first out;
//   - told.go: every answer, push and read that a client got is the truth, and so nothing
//     that was acknowledged is missing in the log;
//   - order.go: revisions agree with real time: what was told before something else was
//     asked came before it;
//   - holds.go: holds as applications saw them never conflict at one moment, and end
//     before anybody else can have the lock;
//   - expiry.go, timers.go: no session, wait, bounded hold, lease or lock-delay ends early,
//     and all of them end in time;
//   - liveness.go: after healing everybody was answered, and nobody waits for nothing;
//   - window.go: a second opinion by porcupine, about one lock at a time.
//
// A run that did too little proves nothing: Counts.Enough. Each checker has a test that
// shows it a forged history and wants it refused.
//
// The log comes from wherever the nodes keep it: ReadLogs reads the data directories of
// real nodes that have stopped.
package judge
