package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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
		return fmt.Errorf("open the data directory: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("open the data directory: %w", err)
	}
	if info.Mode()&fs.ModeSticky != 0 {
		return fmt.Errorf("%w: %s has the sticky bit, other users share it: give this node a directory of its own with --data-dir", ErrNotPrivate, dir)
	}
	if err := restrict(dir, log); err != nil {
		return err
	}
	// Raft would create it readable for everyone.
	if err := os.MkdirAll(filepath.Join(dir, snapshotDir), privateDir); err != nil {
		return fmt.Errorf("open the data directory: %w", err)
	}
	for _, name := range nodeFiles {
		if err := restrictAll(filepath.Join(dir, name), log); err != nil {
			return err
		}
	}
	return nil
}

// restrictAll restricts a file, or a directory and everything in it, if it exists.
func restrictAll(root string, log hclog.Logger) error {
	return filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("open the data directory: %w", err)
		}
		return restrict(path, log)
	})
}

// restrict makes a file or a directory accessible only to its owner.
func restrict(path string, log hclog.Logger) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("open the data directory: %w", err)
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
