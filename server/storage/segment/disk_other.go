//go:build !linux

package segment

import "os"

func preallocate(f *os.File, size int64) error { return zeros(f, size) }

func syncData(f *os.File) error { return f.Sync() }
