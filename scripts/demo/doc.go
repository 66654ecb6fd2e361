// Package demo is shared by the programs of "make demo": the refund requests, which are part of the
// repository, and the ledger's interface.
//
// The scenario: customers, their browsers, their payment apps and the support desk request refunds, and they
// do so more than once: double clicks, retries after a timeout, a second attempt by phone. Eight workers take
// the requests as they arrive. Each order must be refunded exactly once.
//
//	generate   creates refunds.csv; its seed is fixed and its output is committed
//	worker     one worker process: the example of how to use the SDK
//	ledger     where refunds are written: the example of a resource that checks
//	           fencing tokens
//	driver     starts three nodes, the ledger and eight workers, kills the leader,
//	           stops a worker at the worst moment, and audits the ledger's journal
//
// Read worker/refund.go first, then ledger/ledger.go.
package demo

//go:generate go run ./generate -o refunds.csv
