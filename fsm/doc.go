// Package fsm is the lock state machine: commands in, results and events out.
//
// It is pure and deterministic. It has no clock, no randomness, no goroutine, no
// logging, no IO and never walks a map, so that the same log gives the same bytes on
// every node. Time enters only as a command: the leader decides that a session
// expired or that a wait timed out, and the machine only checks that the decision
// belongs to the current term and to the current generation of that deadline.
// raft.go adapts the machine to the consensus library; only that file knows it.
//
// # How a command runs
//
// [Machine.Apply] takes the bytes of one log entry, which carries many commands.
// Each gets the next revision, one handler, and one result; what it did besides
// stands in the events. The commands of an entry succeed or fail one by one. A
// handler that panics is undone whole (table.go), answered INTERNAL and counted: one
// bug costs one command and not, at the same index, every node.
//
// # The tables
//
// The state is a handful of scalars and ordered tables. Their values are immutable
// by version: whoever changes one takes a copy first, once per command. So
// [Machine.Fork] costs the same for ten locks and for ten million, and a fork can be
// written out as a snapshot while the machine goes on.
//
//	sessions  id                      session
//	nonces    secret hash             session id
//	locks     name                    lock: its holders, how many wait
//	claims    id                      claim: a wait and, from its grant on, a hold
//	owners    session, owner, lock    claim id: what an owner holds or waits for
//	queue     lock, order             claim id: who is next
//	outcomes  session, seq            what a request of the window came to
//	members   id                      nodes of the cluster
//
// A claim is named by the revision of the acquire that made it, through waiting,
// holding and releasing. It stands in one place in the queue of every lock that it
// wants; the head of a queue is granted as soon as the lock allows it, in the same
// command that made room. Tokens are minted there, never at the enqueueing.
//
// # Exactly once
//
// Every request of a session has a sequence number, and its outcome is remembered
// until the client says that it has it (window.go). A retry gets the latest outcome
// instead of a second execution; below the client's mark it gets STALE.
//
// [Machine.Check] states every invariant that the tables keep between them. Tests
// call it after every command, restoring a snapshot calls it once.
package fsm
