package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/server/storage/stable"
)

const (
	privateDir  = 0o700
	privateFile = 0o600
	// othersAccess are the permissions of everyone except the owner.
	othersAccess = 0o077
)

// nodeFiles are the files and directories of a node in its data directory.
var nodeFiles = []string{identityFile, stable.File, stable.GenerationFile, segmentDir, snapshotDir}

// makePrivate creates the data directory and the directory of snapshots, accessible only to their owner, and
// removes the access of others from existing ones and from the node's files in them. It does not touch files
// that are not the node's, since the private directory protects them as well. It returns an error if a
// permission cannot be changed, or if the directory is meant to be shared.
func makePrivate(dir string, log hclog.Logger) error {
	if err := os.MkdirAll(dir, privateDir); err != nil {
		return unusable(dir, err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return unusable(dir, err)
	}
	if err := notShared(dir, info); err != nil {
		return err
	}
	if err := restrict(dir, log); err != nil {
		return err
	}
	if err := writable(dir); err != nil {
		return unusable(dir, err)
	}
	// Raft would create it readable for everyone.
	if err := os.MkdirAll(filepath.Join(dir, snapshotDir), privateDir); err != nil {
		return unusable(dir, err)
	}
	for _, name := range nodeFiles {
		if err := restrictAll(filepath.Join(dir, name), log); err != nil {
			return err
		}
	}
	return nil
}

// notShared returns an error for a directory in which other users may create files.
func notShared(dir string, info fs.FileInfo) error {
	if info.Mode()&fs.ModeSticky == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s has the sticky bit, other users share it: give this node a directory of its own with --data-dir", ErrNotPrivate, dir)
}

// unusable returns the error for a path of the data directory that cannot be read or written.
func unusable(path string, err error) error {
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		err = failed.Err // its path may be that of a temporary file
	}
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("cannot use the data directory %s: %w: give a --data-dir that is a directory, or can be created", path, err)
	}
	return fmt.Errorf("cannot use the data directory %s: %w: make its owner the user that runs this node, or give another --data-dir", path, err)
}

// writable returns an error unless a file can be created in the directory.
func writable(dir string) error {
	probe, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// restrictAll restricts a file, or a directory and everything in it, if it exists.
func restrictAll(root string, log hclog.Logger) error {
	return filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return unusable(root, err)
		}
		return restrict(path, log)
	})
}

// restrict makes a file or a directory accessible only to its owner.
func restrict(path string, log hclog.Logger) error {
	info, err := os.Stat(path)
	if err != nil {
		return unusable(path, err)
	}
	mode, want := info.Mode().Perm(), fs.FileMode(privateFile)
	if info.IsDir() {
		want = privateDir
	}
	if mode&othersAccess == 0 && mode&want == want {
		return nil
	}
	if err := os.Chmod(path, want); err != nil {
		return fmt.Errorf("%w: %s has mode %04o, and it cannot be changed: make its owner the user that runs this node, and run: chmod %04o %s: %w",
			ErrNotPrivate, path, mode, want, path, err)
	}
	log.Info("made private", "path", path, "was", fmt.Sprintf("%04o", mode), "is", fmt.Sprintf("%04o", want))
	return nil
}
