// Package rollback finds out when the disk of a node has gone back in time: when an old copy of its
// data directory was put back. Such a node has forgotten votes and entries that it vouched for, and
// nothing on its disk is wrong.
//
// The other nodes remember what it must have (Memory): its term, the term of its last vote, the last
// committed entry that it acknowledged or announced, and its last start. They tell it before anything
// else on each connection, and it compares that with what its disk held when it started (Boot.Check).
//
// A healthy node is never accused:
//
//   - Whatever is remembered was on its disk and synced before it was said: raft keeps term and vote
//     before it answers, a follower syncs entries before it acknowledges them, and a leader announces as
//     committed only what is on its own disk. Of the log only committed entries count, since others
//     may rightly be cut. Terms of pre-votes do not count.
//   - None of it ever falls on a disk that is sound, so what a start finds is no less than what any
//     earlier start has vouched for.
//   - What is remembered of the present start is kept apart, and not compared. It may be newer than what
//     the start found, but for a disk to go back the node has to start anew.
//   - The node itself compares. While it runs nobody else has its data directory, so a later start,
//     or another one with the same number, can only be that of another copy.
//
// A memory that is out of date, or that went back itself, misses cases. Where nobody remembers, the
// cluster may take a second course from a point in the past. Each node tells the others how far it has
// applied the log and where terms began in that, by which start of their leaders (Forked): two courses
// have no such beginning in common. They may have a term in common, for a vote may have been forgotten.
package rollback
