// Package rollback detects that the disk of a node was rolled back, that is, that an old copy of its data
// directory was restored. Such a node has forgotten votes and entries that it acknowledged, although its disk
// is consistent.
//
// The other nodes remember what the node must have (Memory): its term, the term of its last vote, the last
// committed entry that it acknowledged or announced, and its last start. They send this before anything else
// on each connection, and the node compares it with what its disk held when it started (Boot.Check).
//
// A healthy node is never accused:
//
//   - Everything remembered was synced to the node's disk before the node sent it. Raft persists term and
//     vote before it answers, a follower syncs entries before it acknowledges them, and a leader announces as
//     committed only what is on its own disk. Of the log only committed entries count, since uncommitted ones
//     may legitimately be truncated. Terms of pre-votes do not count.
//   - None of these values ever falls on a healthy disk, so a start finds at least what any earlier start
//     acknowledged.
//   - What is remembered of the current start is kept separately and not compared. It may be newer than what
//     the start found, but a disk cannot be rolled back without another start.
//   - The node itself compares. While it runs, no other process has its data directory open, so a later
//     start, or another start with the same number, can only be that of another copy.
//
// A memory that is stale, or was itself rolled back, misses cases. If no node remembers, the cluster may
// fork: it may continue differently from a point in the past. To detect that, each node announces how far it
// has applied the log, and where terms began in it, by which start of which leader (Forked). After the fork,
// the two logs have no such beginning in common. They may have a term in common, because a vote may have been
// forgotten.
package rollback
