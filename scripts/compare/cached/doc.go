// Program cached measures cached holds on this machine, and compares everything that is not cached with an earlier
// commit: "make cached".
//
// Each round measures every figure once, so that a machine that is slower for a minute affects all of them alike. What
// is compared alternates, within a round in short turns if an earlier commit is involved. The output is a table with the
// goals; a goal that is missed is a failure.
//
//	main.go      the command line
//	client.go    a client process, which runs what it is told on its standard input
//	process.go   starting client processes and "qlock bench"
//	rounds.go    the order of the measurements
//	beside.go    clients of this tree and of the earlier commit in turns
//	goals.go     the goals and the table
//
// docs/PERFORMANCE.md describes how to run it.
package main
