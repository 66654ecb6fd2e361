// Program compare measures Quorumlock beside etcd, ZooKeeper and Redis, on this machine, and reports how they
// compare: "make compare".
//
// It starts the servers of one system on loopback, with their default durability, runs a workload on them,
// and ends them before it is the next system's turn. Then the next workload begins, and after the last one
// the next round. So a machine that is slower for a minute affects all systems. The output is a table in
// Markdown, all results in JSON, and a chart.
//
//	options.go   the command line
//	rounds.go    the order of measurements, and their results
//	progress.go  the progress display
//	system       the systems: how each is started, and how it takes a lock
//	workload     the workloads
//	report       the table, its goals, the chart
//
// It is a separate module, so that users of Quorumlock do not depend on what it is compared with.
// docs/COMPARE.md describes how to run it and what makes it fair.
package main
