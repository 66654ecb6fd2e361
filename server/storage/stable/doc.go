// Package stable is raft's stable store: it keeps a node's term and vote, and the node's other small values,
// in a file of raft-boltdb.
//
// Bolt has checksums only for its first two pages. If the newer one is damaged, bolt silently continues with
// the older one, without the last transaction: a node would forget its vote. raft-boltdb recreates buckets
// that have disappeared. Neither may go unnoticed, so:
//
//   - All values are in one record, under one key. The record has a checksum and a generation, which counts
//     the writes. No value can be lost alone.
//   - The file "generation" beside bolt's holds the generation of the last completed write. Set writes the
//     record first, then the generation. So the record that Open finds has that generation, or the next one if
//     the process ended in between. Any other record is damage, whatever bolt did to return it.
//   - Open reads the record before raft-boltdb may change the file.
//
// Values are read from memory. The file is read only by Open.
package stable
