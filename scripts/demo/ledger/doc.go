// Program ledger is the resource that the locks of the demo protect: a small HTTP service that writes refunds
// to an append-only journal.
//
// It shows what a resource must do with fencing tokens: remember the highest token that it has seen for each
// order, and reject lower ones. This single comparison protects an order from a worker that was stopped in
// the middle of its work and has lost its lock without knowing it yet. No lock service can do this for the
// resource, since it cannot revoke a write that is in flight.
//
// The ledger does nothing else that would help: it does not check whether an order was refunded before.
// Workers check that, under the lock.
//
// With --no-fencing it accepts every token, to show the consequences.
package main
