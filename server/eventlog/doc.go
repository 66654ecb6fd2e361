// Package eventlog keeps the latest events that a node has applied, and serves watches from them.
//
// The replica records the events of each entry ([Log.Record]) on the goroutine that applies entries, so
// recording is cheap: events are packed into a fifth of their size (event.go), and only the watches that an
// event concerns are woken, through an index (watch.go). Each watch reads the log at its own pace
// ([Log.Serve]). A watch that falls behind the oldest event ends with COMPACTED.
//
// Nothing here knows raft or the replica. The position of a watch is a revision of a lineage, as in the
// protocol.
package eventlog
