// Package virtual tests whole clusters in virtual time: real nodes (server.Open) and the real SDK, in one
// process, on an in-memory network that a seeded generator cuts, slows down and heals, and with in-memory
// disks that survive their nodes. An hour of failovers takes seconds, and a deadline that is late by a
// millisecond is detected.
//
// A test of faults has four parts:
//
//   - a cluster and its faults: nodes that crash and restart; links that are cut, lossy, scattered or hung
//     (cluster_test.go, disk_test.go, vault_test.go);
//   - a load of SDK clients that contend before, during and after each fault, on machines of which some are
//     partitioned or stalled (package workload, clients_test.go);
//   - what the clients saw: every frame of every connection, and every hold from its grant to the end of its
//     context (package history);
//   - what the cluster did: the committed log, replayed afterwards and compared with what the clients saw,
//     and the nodes' states compared with each other (package judge, verdict_test.go).
//
// A run counts only if its faults took effect: leaders changed, sessions expired, requests were repeated.
// Each run has a seed, which determines faults and load and is printed on failure; -seed runs only that one.
// The order in which goroutines run within one instant, and raft's own randomness, are not seeded, so a seed
// reproduces the scenario, but not every step of it. QUORUMLOCK_CHECK=1 runs many more seeds.
package virtual
