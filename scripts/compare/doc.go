// Program compare measures Quorumlock beside etcd, ZooKeeper and Redis, on this machine, and
// says how they relate: "make compare".
//
// It starts the servers of one system on loopback, with durability as it comes, loads them,
// and ends them before the next system has its turn; then the next workload begins, and after
// the last of them the next round. So a machine that is slower for a minute is slower for all.
// It leaves a table in Markdown, everything in JSON and a chart.
//
//	options.go   the command line
//	rounds.go    who is measured when, and what becomes of it
//	progress.go  how far it is
//	system       the systems: how each is started, and takes a lock
//	workload     what they are asked to do
//	report       the table, its goals, the chart
//
// It is a module of its own, so that nobody who uses Quorumlock depends on what it is compared
// with. docs/COMPARE.md says how to run it and what is fair about it.
package main
