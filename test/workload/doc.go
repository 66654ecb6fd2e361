// Package workload is what clusters are used for while they are hurt: actors over the
// SDK, the same in virtual time and against real processes. They use nothing but time
// and channels, so a load runs in a bubble of testing/synctest as it is.
//
// A load consists of parts, each with actors and locks of its own:
//
//   - lone locks, one hot lock, readers and writers, permits, several locks at once
//     beside nested ones in an order that leads to deadlocks;
//   - sessions that come and go, and leases;
//   - waits that end by time or are cancelled, about when the grant comes;
//   - a resource that is read, changed and written back under a lock, with a fencing token and
//     without one;
//   - elections;
//   - clients that are cut off or held back by whoever hurts the cluster, and clients
//     that die;
//   - a line of waiters behind holds that outlast everything.
//
// Every hold that an actor sees is booked in the history, from its grant to the end of
// its context or the start of its release, and every session to its end. What an actor
// does not expect is a fault, and so is what stays behind: Finish wants everybody
// answered, nothing held, no session left.
//
// Most actors have sessions that must never be lost, however the cluster is hurt. The others'
// clients have names that begin with Frail: whoever makes the Env gives these machines of
// their own, cuts them off and holds them back at will.
package workload
