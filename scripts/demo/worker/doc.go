// Program worker is one of the demo's refund workers, and the example of how to use
// the SDK. Read refund.go: it is all that an application has to write.
//
// It takes its share of the requests as they arrive, and for each: locks the order,
// asks the ledger whether it was refunded, writes the refund with the lock's fencing
// token if not, unlocks. When its session is lost it opens another and takes the
// request up again; the check makes that harmless.
//
// What it does, it reports on standard output, one JSON object a line; see
// [demo.Event].
package main
