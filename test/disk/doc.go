// Package disk injects disk faults into running nodes:
//
//   - Injection makes the system calls of one process fail, take longer or do nothing, with strace
//     (inject.go);
//   - Volume is a separate file system that can be frozen, filled, and lose power (volume.go).
//
// A process that writes to a frozen volume is in uninterruptible sleep and cannot exit, as with a disk that
// has stopped responding. A volume that lost power contains what was synced and nothing else.
//
// The tests run clusters of real processes on such disks, and check afterwards that everything that was
// acknowledged is there. Each test verifies that its fault took effect. They need root, strace and xfsprogs,
// and are skipped with a message otherwise.
package disk
