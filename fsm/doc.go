// Package fsm is the lock state machine: commands in, results and events out.
//
// The machine is pure and deterministic. It has no clock, no randomness, no goroutine, no logging and no
// IO, and it never iterates over a map, so the same log produces the same bytes on every node. Time
// enters only as a command: the leader decides that a session expired or that a wait timed out, and the
// machine only checks that the decision belongs to the current term and to the current generation of that
// deadline. raft.go adapts the machine to the consensus library; no other file depends on it.
//
// # Commands
//
// [Machine.Apply] takes the bytes of one log entry, which contains many commands. Each command gets the next
// revision (one that acquires several keys also the following ones), one handler and one result; everything else it did is reported in events. The commands of an
// entry succeed or fail independently. A handler that panics is rolled back completely (table.go), answered
// with INTERNAL and counted: a bug costs one command instead of crashing every node at the same index.
//
// # Tables
//
// The state consists of a few scalars and of ordered tables (rows.go, tree.go). Forks share pages and
// rows copy-on-write, so [Machine.Fork] is O(1), and a fork can be written out as a snapshot while the
// machine keeps applying. Sessions and locks change with nearly every command: each is copied once after
// a fork and then changed in place (editable.go).
//
//	sessions    id                      session
//	nonces      secret hash             session id
//	locks       name                    lock: what occupies it, number of waiters
//	claims      id                      claim: a wait, a hold or a lock-delay
//	owners      session, owner, lock    claim: what an owner holds or waits for
//	queue       lock, claim id          waiters in order
//	holders     lock, token             claim id of each hold or lock-delay, if a lock has
//	                                    several; a single one is stored in the lock itself
//	upgrades    lock, claim id          holds that wait to become exclusive
//	members     id                      nodes of the cluster
//	removed     revision                the most recently removed members
//	audit       id                      the last 256 operator actions
//	imported    id                      audit records that a restore imported
//	keySenders  node                    start of the node's Redis port, and what it has acknowledged
//	keyResults  node, number            remembered results of its requests
//
// The outcomes in a session's window are stored with the session (outcome.go).
//
// A claim is identified by the revision of the acquire that created it, from its wait to its release
// (claim.go). It covers one lock or several, all or nothing, and has one place in the queue of each: its
// id. A claim at the head of all its queues is granted as soon as all its locks have room, by the same
// command that made the room. Tokens are issued at the grant, never when a claim is queued. A waiting
// claim holds none of its locks, so claims for several locks cannot block each other, and no later claim
// overtakes an earlier one.
//
// # Granting
//
// A lock counts what occupies it: one exclusive hold, shared holds, or permits of a semaphore (mode.go).
// A lock-delay occupies the same room as the hold before it, although it has no owner (deadline.go).
// Commands that make room only record which locks are affected; at the end of the command, grantChanged
// (queue.go) processes them one by one: first a hold that waits to become exclusive (upgrade.go), then
// the head of the queue or, for an unfair lock, the drawn waiter (unfair.go). Granting a claim for
// several locks changes the heads of its other queues, so those locks are recorded as well.
//
// When a claim begins to wait, deadlock.go checks whether the wait closes a cycle of owners that wait for
// each other. The wait-for graph is read from the tables during the search (waitgraph.go, search.go).
// Where semaphores leave open whether a cycle would last, reduce.go simulates every grant and release
// that is still possible. deadlocks.go lists the existing cycles, contended.go the locks that are waited for.
//
// # Deadlines and operators
//
// A hold may have deadlines of its own: its max_hold and the grace of a revocation. Restarting a
// deadline gives it a new generation. A hold that ends by a deadline or by force is followed by its
// lock-delay. Operator actions are audited (operator.go, audit.go). A lease (lease.go) is a session for
// one claim and ends with it.
//
// While the nodes differ in their states, granting is suspended (suspend.go): grantChanged then grants nothing.
//
// # Exactly once
//
// Every request of a session has a sequence number, and its outcome is remembered until the client
// acknowledges it (window.go, outcome.go). A retry gets the latest outcome instead of a second execution;
// a request below the client's mark gets STALE.
//
// [Machine.Check] verifies every invariant within and between the tables. Tests call it after every
// command, and [Restore] calls it once.
package fsm
