// Package process runs clusters of real qlockd processes on loopback and hurts them: the
// binaries that people run, over real sockets and real files, ended by kill -9, frozen by
// SIGSTOP, wiped, replaced and restarted.
//
//   - Programs are the binaries, built once (programs.go);
//   - Cluster is the nodes of one test: start, kill, freeze, wipe, restart (cluster.go,
//     node.go), and what can be seen of them from outside (observe.go).
//
// The tests keep a load running before, during and after each fault, book every grant that
// the load was told of, and check afterwards that none of them was lost and no two of them
// contradict each other.
//
// Nothing waits by the clock: whoever waits names a condition and a deadline. Every process
// is ended by the handle with which it was started.
package process
