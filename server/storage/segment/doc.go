// Package segment stores raft's log in append-only files, with one write and one sync per batch of entries.
//
// # Files
//
// A log is a directory of files with ascending sequences, 0000000000000001.segment and so on, 16 MiB each
// unless a batch needs more. A file's space on the disk is allocated before the file is used, and is zero
// until it is written. A file is an array of sectors of 512 bytes:
//
//	sector 0      header: which log and file this is, how many sectors it has, after which
//	              entry it continues, and where the file before it ends
//	sector 1      blank in the last file; in all others it says that there is one more
//	from 2 on     batches, each starting at a sector boundary, one after the other
//
// Each sector has a checksum that also covers its position (sector.go), and each batch is a sequence of
// entries (batch.go). An index of where each entry begins is built in memory when the log is opened.
//
// No sector is ever overwritten with different content; a torn sector is blanked first. Where a log would
// have to be overwritten, the old content stays in place and the log continues in another file, whose header
// says which part of the older files is valid:
//
//   - A full file: all of it.
//   - Entries deleted at the end, because another leader had others: everything up to them.
//   - All entries deleted, or a snapshot installed, so that the following entries do not continue the log:
//     nothing.
//   - A batch that was never finished: everything before it.
//
// Such a file is created under a temporary name, synced and renamed, and then the directory is synced. So
// each of these changes takes effect atomically with the rename. Then sector 1 of the previous file is
// written, and only then the first batch. Entries at the beginning of the log are deleted with their file,
// oldest file first, once none of its entries is needed.
//
// A batch is written after the previous one was synced, and becomes part of the log when it has been synced
// itself (Log.count). That is the only place that determines up to where the log is durable.
//
// # Torn writes and damage
//
// If the power fails or the process is killed during a write, some of its sectors have been written and
// others are as they were: blank. That write was never acknowledged, and is cut off. Every other deviation
// from what was written is damage, and the log is not opened. The two can be distinguished because no sector
// has earlier content:
//
//   - A sector that is neither whole nor blank was written but does not have the written content. It is
//     damage, wherever it is. Disks write a sector completely or not at all. If a disk does not, a zero
//     replaces one of the marks at the sector's ends, and the sector counts as not written. A flipped bit
//     does not turn a mark into zero.
//   - A sector that is blank although another batch or file was written after it is damage, because it was
//     synced before that. Each sector names the first sector of its batch, so this is detected even if that
//     sector is missing.
//   - A batch was therefore never finished if it is the last one, at least one of its sectors is blank, and
//     all others are whole. If all are whole the batch is valid, acknowledged or not.
//   - A missing file: the file before it says that there is one more, and the file after it continues another
//     one. For missing files at the start, the caller has to check, since it knows up to where there is a
//     snapshot.
//   - A file shorter than it was created, or than the next file says, is damage.
//   - A log that is intact but ends before a position it had reached (Options.Reached) was truncated or is an
//     older copy: damage. Positions only grow, even when entries are deleted, and the caller persists one
//     whenever it writes something else.
//
// One case remains: the disk completely loses a sector of the last batch, which was acknowledged, before
// anything else was written. It looks like a batch that was never finished. So the log marks its end with a
// batch without entries when nothing was written for a while (Options.Rest), and its owner does so before
// closing it (Log.Mark). From then on this case is detected as damage as well. Until then, it takes a disk
// that loses a sector it has just synced, at the very moment of a power failure. No log can detect that
// without a second write for each write.
//
// # What only the kernel knows
//
// A process that is killed before its sync leaves a batch that the next process can read but that may not be
// on the disk. After a failed sync, the kernel considers the data written although it is not, and a second
// sync succeeds. Raft would acknowledge such entries, since it does not rewrite entries it finds. So Open
// rewrites the last batch with the same content, and syncs it and the directory. After a failed write, a
// process writes nothing more.
package segment
