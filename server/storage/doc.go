// Package storage is a node's disk: raft's log, term and vote, its snapshots, and the node's identity and
// other small values. Package segment has the log, package stable the values.
//
// What is read is what was written, or the node stops: everything has a checksum, and files that are missing
// are noticed. A write that fails or hangs is the node's last one.
//
//   - stores.go opens the files of a data directory and assembles the stores.
//   - inspect.go decides whether a directory without values is new or damaged. permissions.go makes the files
//     private, identity.go keeps the node's identity.
//   - copy.go reads the files of a node that is not running.
//   - watchdog.go, write_timer.go: writes that fail, hang or are slow.
//   - overlap.go: the leader's writes, concurrent with the followers'. cache.go keeps the last entries in
//     memory. snapshots.go verifies snapshots.
//
// A write of an entry passes overlap, then the cache, then the watchdog, then the log.
package storage
