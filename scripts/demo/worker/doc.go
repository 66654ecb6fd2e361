// Program worker is one of the demo's refund workers, and the example of how to use the SDK. Read refund.go:
// it is all that an application has to write.
//
// It takes its share of the requests as they arrive. For each, it locks the order, asks the ledger whether it
// was refunded, writes the refund with the lock's fencing token if not, and unlocks. If its session is lost,
// it opens another one and retries the request; the check makes that harmless.
//
// It reports its progress on standard output, one JSON object per line; see [demo.Event].
package main
