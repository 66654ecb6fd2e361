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
// The state is a handful of scalars and ordered tables (rows.go, tree.go). What a fork has,
// too, is never changed: whoever changes a row takes a copy first. So [Machine.Fork] costs
// the same for ten locks and for ten million, and a fork can be written out as a snapshot
// while the machine goes on. Sessions and locks change all the time: each is copied once
// after a fork and then changed where it stands (editable.go).
//
//	sessions  id                      session
//	nonces    secret hash             session id
//	locks     name                    lock: what occupies it, how many wait
//	claims    id                      claim: a wait, a hold or a lock-delay
//	owners    session, owner, lock    claim: what an owner holds or waits for
//	queue     lock, claim id          who waits, in order
//	holders   lock, token             claim id: who holds it, or keeps it closed, where
//	                                  that are several; the only one stands in the lock
//	members   id                      nodes of the cluster
//	removed   revision                nodes that were members, the last ones
//	audit     id                      what operators did, the last 256
//
// What the requests of its window came to stands with each session (outcome.go).
//
// A claim is named by the revision of the acquire that made it, from its wait to its
// release (claim.go). It is for one lock or for several, all or nothing, and has one
// place in the queue of each: its id. Who stands at the head of all its queues is
// granted as soon as all the locks allow it, in the same command that made room.
// Tokens are minted there, never at the enqueueing. Nothing is held on the way, so
// that claims for several locks cannot block each other, and nobody who came later
// passes them.
//
// # Room
//
// A lock keeps counted what occupies it: one exclusive hold, shared ones, permits of a
// semaphore (mode.go). A lock-delay occupies what its hold did, though it is nobody's
// any more (deadline.go). Commands that make room only note the locks; when the
// command is done, settle (queue.go) works them off one by one: first a hold that
// waits to become exclusive (upgrade.go), then the head of the queue, or the drawn
// one of an unfair lock (unfair.go). Granting a claim for several locks changes the
// heads of its other queues, which are noted, too.
//
// When a claim begins to wait, deadlock.go looks whether that closes a cycle of owners
// that wait for each other, in a graph that is read from the tables as it is walked
// (waitgraph.go, search.go). Where semaphores leave it open whether a cycle would last,
// reduce.go lets all go on that can. deadlocks.go tells the cycles that stand.
//
// # Time and force
//
// A hold may have a deadline of its own: its max_hold or the grace of a revocation. It
// begins anew under a new generation. A hold that ends by time or by force goes into
// its lock-delay. What operators do is audited (operator.go, audit.go). A lease
// (lease.go) is a session for one claim: it ends with that.
//
// Where nodes differ in their states, granting is suspended (suspend.go): settle then
// leaves those who wait waiting.
//
// # Exactly once
//
// Every request of a session has a sequence number, and its outcome is remembered
// until the client says that it has it (window.go, outcome.go). A retry gets the latest outcome
// instead of a second execution; below the client's mark it gets STALE.
//
// [Machine.Check] states every invariant that the tables keep between them. Tests
// call it after every command, restoring a snapshot calls it once.
package fsm
