// Package demo is what the programs of "make demo" share: the refund requests that
// ship as data, and the ledger's interface.
//
// The story. Customers, their browsers, their payment apps and the support desk ask
// for refunds, and they ask more than once: double clicks, retries after a time-out,
// a second try by phone. Eight workers take the requests as they arrive. Each order
// must be refunded exactly once.
//
//	generate   makes refunds.csv; its seed is fixed and its output is committed
//	worker     one worker process: the example of how to use the SDK
//	ledger     where refunds are written: the example of a resource that checks
//	           fencing tokens
//	driver     starts three nodes, the ledger and eight workers, kills the leader,
//	           stops a worker at the worst moment, and audits the ledger's journal
//
// Read worker/refund.go first, then ledger/ledger.go.
package demo

//go:generate go run ./generate -o refunds.csv
