// Package chaos is a load on a cluster whose locks Redis clients and SDK clients use at the same time, while package
// process injects faults:
//
//   - redsync mutexes, through single nodes and through a balancer, which are extended, released, or left to expire
//     (mutex.go);
//   - Redis clients that wait in the queue with QL.LOCK (queue.go), between sessions that wait there too (session.go);
//   - a counter for each lock, which all of them read and write back with their fencing tokens (counter.go);
//   - keys that are held through each fault (kept.go).
//
// What Redis clients ask and are told is recorded on their connections, and what they hold as they believe it. Package
// judge compares both with the log.
package chaos
