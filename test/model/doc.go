// Package model is the lock service as one would explain it on paper: a list of all that
// somebody wants or has, in the order in which they asked. It shares no code and no shape
// with package fsm, which it judges: no queue, no table, no counts. Whoever asks who holds
// a lock, or who is next, reads the list. Answers are never forgotten, only no longer shown.
//
// A model takes the commands of a log one by one and says what each is answered (Apply),
// what happened meanwhile (News), and what readers see then (LockInfo, HoldsOf, and the
// exported fields). Where several claims may be granted in one command, the order is the
// service's to choose: the model takes its word for the order, and for nothing else. The
// same holds for the cycle that a refusal for a deadlock names, since several may be true.
// Compare knows that.
//
//   - model.go: the lists, and the switch over the commands;
//   - cluster.go, session.go, request.go: who may ask, and that everything happens once;
//   - claim.go, acquire.go, settle.go, release.go: locks;
//   - upgrade.go, bound.go, lease.go, operator.go: the rest of the family;
//   - deadlock.go: who waits for himself;
//   - event.go, read.go, compare.go: what is told, and whether it is what was told.
//
// What would be read through again and again is indexed (by id, lock and session), so that
// a log of many thousand commands is replayed in seconds. The indexes hold what the lists
// hold, and decide nothing.
package model
