package segment

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Directory is the part of a file system that a log needs: one directory.
type Directory interface {
	// Names returns the names of the files in the directory.
	Names() ([]string, error)
	// Create creates a file of size bytes, replacing any file of that name. The file is zero-filled, and its
	// space on the disk is allocated.
	Create(name string, size int64) (File, error)
	// Open opens a file for reading and writing.
	Open(name string) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	// Sync makes the creations, renames and removals durable.
	Sync() error
}

// File is a file in a Directory.
type File interface {
	ReadAt(p []byte, offset int64) (int, error)
	WriteAt(p []byte, offset int64) (int, error)
	// Truncate cuts the file to size bytes.
	Truncate(size int64) error
	// Sync makes what was written durable.
	Sync() error
	Close() error
}

// Dir is the Directory at that path.
type Dir string

// Names implements Directory.
func (d Dir) Names() ([]string, error) {
	found, err := os.ReadDir(string(d))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(found))
	for _, f := range found {
		names = append(names, f.Name())
	}
	return names, nil
}

// Create implements Directory.
func (d Dir) Create(name string, size int64) (File, error) {
	path := filepath.Join(string(d), name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := preallocate(f, size); err != nil {
		return nil, errors.Join(&fs.PathError{Op: "preallocate", Path: path, Err: err}, f.Close(), os.Remove(path))
	}
	return osFile{f}, nil
}

// Open implements Directory.
func (d Dir) Open(name string) (File, error) {
	f, err := os.OpenFile(filepath.Join(string(d), name), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Rename implements Directory.
func (d Dir) Rename(from, to string) error {
	return os.Rename(filepath.Join(string(d), from), filepath.Join(string(d), to))
}

// Remove implements Directory.
func (d Dir) Remove(name string) error { return os.Remove(filepath.Join(string(d), name)) }

// Sync implements Directory.
func (d Dir) Sync() error {
	f, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

type osFile struct{ *os.File }

// Sync implements File.
func (f osFile) Sync() error { return syncData(f.File) }

// zeros fills a file with zeros, where its space cannot be allocated otherwise.
func zeros(f *os.File, size int64) error {
	chunk := make([]byte, 1<<20)
	for at := int64(0); at < size; at += int64(len(chunk)) {
		if _, err := f.WriteAt(chunk[:min(int64(len(chunk)), size-at)], at); err != nil {
			return err
		}
	}
	return nil
}
