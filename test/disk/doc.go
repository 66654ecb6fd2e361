// Package disk breaks disks under running nodes:
//
//   - Injection has the system calls of one process fail, come late or do nothing, by
//     strace (inject.go);
//   - Volume is a file system of its own, which can be frozen, filled, and lose its power
//     (volume.go).
//
// A process that writes to a frozen volume is in uninterruptible sleep and cannot end, as
// with a disk that has stopped to answer. A volume that lost its power has what was synced
// and nothing else.
//
// The tests run clusters of real processes on such disks, and look afterwards whether
// everything that was acknowledged is there. Each shows that its fault took effect. They
// need root, strace and xfsprogs, and say so where they are skipped.
package disk
