// Program ledger is the resource that the locks of the demo protect: a small HTTP
// service that writes refunds to an append-only journal.
//
// It shows what a resource must do with fencing tokens: remember the highest that it
// has seen for each order, and refuse everything below. That is one comparison, and
// it is what protects an order from a worker that was stopped in the middle of its
// work, lost its lock and does not know it yet. No lock service can do this for the
// resource, since nothing can call back a write that is under way.
//
// The ledger knows nothing else that would help: it does not look whether an order
// was refunded before. That is the workers' check, under the lock.
//
// With --no-fencing it takes every token, so that one can see what happens then.
package main
