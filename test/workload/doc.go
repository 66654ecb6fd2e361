// Package workload is the load on clusters under test: actors that use the SDK, the same in virtual time and
// against real processes. They use nothing but time and channels, so a load runs unchanged in a
// testing/synctest bubble.
//
// A load consists of parts, each with its own actors and locks:
//
//   - uncontended locks, contended locks, readers and writers, permits, multi-lock holds beside nested ones
//     in an order that leads to deadlocks;
//   - sessions that come and go, and leases;
//   - waits that time out or are cancelled, at about the time of the grant;
//   - a resource that is read, changed and written back under a lock, with and without a fencing token;
//   - elections;
//   - sessions whose goroutines share cached holds, steady ones and frail ones, beside callers that do not cache;
//   - clients that fault injection partitions or stalls, and clients that die;
//   - a line of waiters behind holds that outlast the faults.
//
// Every hold that an actor sees is recorded in the history, from its grant to the end of its context or the
// start of its release, and every session to its end. An unexpected error is a fault, and so is anything left
// behind: Finish requires that every request is answered, nothing is held and no session is left.
//
// Most actors have sessions that must never be lost, whatever the faults. The clients of the others have
// names that begin with FrailClient: the provider of the Env puts them on separate machines, and may
// partition and stall them at will.
package workload
