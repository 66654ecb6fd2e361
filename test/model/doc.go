// Package model is an executable specification of the lock service: a plain list of all claims, in the order
// of their requests. It checks package fsm and shares neither code nor structure with it: it has no queues,
// tables or counts. Who holds a lock and who is next follows from the list. Answers are never deleted, only
// no longer shown.
//
// A model takes the commands of a log one by one. It returns the answer to each (Apply), the events of the
// last command (News), and what readers see afterwards (LockInfo, HoldsOf, and the exported fields). If the
// turns of several claims come in one command, the service chooses the order: the model takes the order from the
// service, and nothing else. The same holds for the cycle in a refusal for a deadlock, since several may be
// true. Compare takes care of that.
//
//   - model.go: the lists, and the switch over the commands;
//   - cluster.go, session.go, request.go: who may send requests, and exactly-once semantics;
//   - claim.go, acquire.go, settle.go, release.go: locks;
//   - cached.go, upgrade.go, bound.go, lease.go, operator.go: everything else about locks;
//   - access.go: identities, the policy and tokens;
//   - deadlock.go: deadlocks;
//   - event.go, read.go, compare.go: events and reads, and the comparison with the service's.
//
// Indexes (by ID, lock and session) avoid repeated scans, so that a log of many thousand commands is replayed
// in seconds. They contain what the lists contain, and decide nothing.
package model
