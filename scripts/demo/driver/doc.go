// Program driver runs the demo: "make demo", "make demo-up" and "make demo-down".
//
//	driver run    three nodes, a ledger and eight workers on loopback; the workers
//	              refund what refunds.csv asks for, while the driver stops one of them
//	              between its check and its write and kills the leader half-way. Then
//	              it audits the ledger's journal and prints a table. Exits 1 unless
//	              every order was refunded exactly once, no stale token got in, and
//	              every fault took effect.
//	driver up     three nodes that stay, for playing with qlock
//	driver down   ends those
//
// The parts: process.go starts and ends processes, cluster.go knows the nodes,
// workers.go the workers, story.go what is done to them and when, audit.go reads the
// journal and judges, playground.go is up and down.
package main
