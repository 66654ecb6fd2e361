// Package process runs clusters of real qlockd processes and hurts them: the binaries that
// people run, over real sockets and real files.
//
//   - Programs are the binaries, built once (programs.go), perhaps with a wall clock that
//     can be moved for one process (clocks.go);
//   - Cluster is the nodes of one test: start, kill, freeze, wipe, restart (cluster.go,
//     node.go), copies of what they have on disk (copies.go), and what can be seen of them
//     from outside (observe.go). They stand on
//     loopback, or each on a host of its own, perhaps behind proxies (site.go);
//   - Trial is a cluster under the load of package workload, with the history of what
//     clients saw (trial.go). Some of them can be cut off and held back (frail.go);
//   - Nemesis is a way to hurt a cluster, which heals it again and says how often it took
//     effect (nemesis.go): processes that end or freeze, members that come and go, packets
//     that are dropped or refused, slow connections, clients in trouble and clients that
//     make it, snapshots at bad moments, clocks that jump.
//
// A load runs before, during and after each fault. The tests here take the nemeses one by
// one; package soak draws them from a seed, for as long as it is told to.
//
// Nothing waits by the clock: whoever waits names a condition and a deadline. Every process
// is ended by the handle with which it was started.
package process
