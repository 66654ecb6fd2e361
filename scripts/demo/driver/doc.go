// Program driver runs the demo: "make demo", "make demo-up" and "make demo-down".
//
//	driver run    three nodes, a ledger and eight workers on loopback; the workers
//	              process the refunds in refunds.csv, while the driver stops one of
//	              them between its check and its write and kills the leader half-way.
//	              Then it audits the ledger's journal and prints a table. Exits 1
//	              unless every order was refunded exactly once, no stale token was
//	              accepted, and every fault took effect.
//	driver up     three nodes that keep running, to try qlock
//	driver down   ends these
//
// Files: process.go starts and ends processes, cluster.go controls the nodes, workers.go the workers,
// story.go the sequence of events, audit.go evaluates the journal, playground.go implements up and down.
package main
