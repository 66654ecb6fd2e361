// Package groupcommit packs the commands of a leader into raft entries. An entry costs about the same whatever it
// carries, so the next entry takes everything that was queued when the previous one commits, up to a limit.
//
// The Proposer runs on one goroutine and has one entry in flight, or two if a full one is waiting. Another
// goroutine, the completer, receives the entries from Batches in log order, answers the callers of their commands,
// and returns each batch with Finished and Recycle.
//
//   - proposer.go is the queue and the goroutine. submit.go adds clients' commands to the queue.
//   - batch.go is one entry with the callers of its commands. They are matched to results through the future of the
//     entry itself. An id would not be safe, because the same id can recur when a log is replayed.
//   - share.go divides a full queue and a full entry fairly among senders.
//   - coalescer.go delays a batch briefly if clients that were just answered usually send again.
package groupcommit
