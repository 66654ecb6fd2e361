package examine

import "golang.org/x/sys/unix"

// diskSpace returns the free space for this user and the size of the file system, in bytes; 0 if it is unknown.
func diskSpace(dir string) (free, size uint64) {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return 0, 0
	}
	return fs.Bavail * uint64(fs.Bsize), fs.Blocks * uint64(fs.Bsize)
}

// openFilesLimit returns how many files the process may open; 0 if it is unknown.
func openFilesLimit() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return limit.Cur
}
