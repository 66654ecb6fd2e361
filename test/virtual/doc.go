// Package virtual tests whole clusters in virtual time: real nodes (server.Open) and the
// real SDK, in one process, on a network in memory that is cut, slowed and healed by a
// seeded generator, and with disks in memory that outlive their nodes. An hour of
// fail-overs takes seconds, and a deadline that is late by a millisecond shows.
//
// A test of faults has four parts:
//
//   - a cluster and its weather: nodes that crash and restart, links that are cut, lose,
//     scatter and hang (cluster_test.go, disk_test.go, vault_test.go);
//   - a load of SDK clients that contend before, during and after each fault, on machines
//     of which some are cut off or held back (package workload, clients_test.go);
//   - what the clients saw: every frame of every connection, and every hold from its grant
//     to the end of its context (package history);
//   - what the cluster did: the committed log, replayed afterwards and compared with what
//     was seen, and the nodes' states compared with each other (package judge,
//     verdict_test.go).
//
// A run counts only if its faults took effect: leaders changed, sessions expired,
// requests were repeated. Each run has a seed, which is printed when it fails and decides
// over faults and load: -seed runs that one alone. The order in which goroutines run
// within one instant, and raft's own chance, are not seeded, so a seed brings back the
// story, not every step of it. QUORUMLOCK_CHECK=1 runs many more seeds.
package virtual
