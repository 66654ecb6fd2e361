//go:build !linux

package examine

// diskSpace is unknown on this system.
func diskSpace(string) (free, size uint64) { return 0, 0 }

// openFilesLimit is unknown on this system.
func openFilesLimit() uint64 { return 0 }
