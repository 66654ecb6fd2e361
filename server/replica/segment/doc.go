// Package segment keeps raft's log in files that are written from one end to the other, one
// write and one sync for each batch of entries.
//
// # Files
//
// A log is a directory of files with ascending sequences, 0000000000000001.segment and so on,
// 16 MiB each unless a batch needs more. A file gets its room on the disk before it is used,
// and is zero until then. It is an array of sectors of 512 bytes:
//
//	sector 0      header: which log and file this is, how many sectors it has, after which
//	              entry it goes on, and where the file before it ends
//	sector 1      blank in the last file; in all others it says that there is one more
//	from 2 on     batches, each from a sector's beginning on, one behind the other
//
// Each sector has a checksum, over its place as well (sector.go), and each batch is a sequence
// of entries (batch.go). An index of where each entry begins is made when the log is opened.
//
// No sector gets a second content, ever; one that was torn is made blank first. What would
// have to be overwritten is left where it is, and the log goes on in another file, whose
// header says what counts of the older ones:
//
//   - A full file: all of it.
//   - Entries deleted at the end, because another leader had others: all up to those.
//   - All entries deleted, or a snapshot taken over, so that entries come that do not follow:
//     none.
//   - A batch that was never finished: all before it.
//
// Such a file is made under another name, is synced, gets its name, and the directory is
// synced. So each of these has happened once that name is there, and has not until then. Next
// sector 1 of the file before is written, and only then the first batch. Entries at the
// beginning are deleted with their file, once none in it is wanted, and the oldest first.
//
// A batch is written when the one before it has been synced, and counts when it has been
// synced itself (Log.count). That is the one place that knows up to where the log is durable.
//
// # Torn writes and damage
//
// When the power fails, or the process is killed, in the middle of a write, then some of its
// sectors are there and others are as they were: blank. That write was acknowledged to
// nobody, and is cut off. Everything else that is not as it was written is damage, and the
// log is not opened. What tells the two apart is that no sector has an earlier content:
//
//   - A sector that is neither whole nor blank was written, and is not what was written:
//     damage, wherever it stands. Disks write a sector whole or not at all. If one does not,
//     a zero is where one of the marks at its ends belongs, and it counts as not written.
//     A flipped bit makes no zero out of a mark.
//   - A sector that is blank although something stands behind it in another batch, or in
//     another file, was synced before that was written: damage. Each sector names the first
//     one of its batch, so that this is known also where that is gone.
//   - So a batch was never finished if it is the last one, one at least of its sectors is
//     blank, and all others are whole. If all are whole it counts, acknowledged or not.
//   - A file that is not there: the one before it says that there was one more, the one after
//     it follows another. Of the first ones the caller takes care, who knows up to where
//     there is a snapshot.
//   - A file that is shorter than it was made, or than the next one says: damage.
//   - A log that is whole and ends before a position that it had reached (Options.Reached) was
//     cut off, or is an older copy: damage. Positions only grow, also where entries are
//     deleted, and the caller keeps one wherever it writes something else.
//
// What remains is the last batch, acknowledged, one of whose sectors the disk loses
// altogether, before anything else was written: it looks as if it had never been finished. So
// when nothing was written for a while, and before it is closed, the log marks its end with a
// batch that has no entries. From then on this, too, is damage. In between it would take a disk
// that loses a sector that it had synced in the same moment in which the power fails. No log
// without a second write for each first could tell.
//
// # What only the kernel knows
//
// A process that is killed before its sync leaves a batch that the next process finds and the
// disk may not have. After a sync that failed, the kernel takes for written what is not, and
// a second sync says that all is well. Raft would acknowledge such entries, since it does
// not write again what it finds. So Open writes the last batch again, as it stands there, and
// syncs it and the directory. A process writes nothing any more after a write that failed.
package segment
