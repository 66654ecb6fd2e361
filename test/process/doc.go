// Package process runs clusters of real qlockd processes and injects faults: it uses the binaries that users
// run, real sockets and real files.
//
//   - Programs are the binaries, built once (programs.go), optionally with a wall clock that can be moved for
//     one process (clocks.go);
//   - Cluster is the set of nodes of one test: start, kill, freeze, wipe, restart (cluster.go, node.go),
//     copies of their data directories (copies.go), forged logs (forge.go), and what is observable from outside
//     (observe.go). The nodes are on loopback, or each on its own host, optionally behind proxies (site.go), and
//     optionally use TLS with certificates and revocation lists (secure.go);
//   - Trial is a cluster under the load of package workload, with the history of what clients saw (trial.go).
//     Some of these can be partitioned and stalled (frail.go);
//   - Nemesis injects a kind of fault, heals it, and returns how often it took effect (nemesis.go): processes
//     that end or freeze, membership changes, packets that are dropped or refused, slow connections, clients
//     in trouble and clients that cause it, snapshots at bad moments, clocks that jump.
//
// A load runs before, during and after each fault. The tests here use the nemeses one by one. Package soak
// draws them from a seed, for any length of time.
//
// Waits have a condition and a deadline, and do not sleep. Every process is ended by the handle with which it
// was started.
package process
