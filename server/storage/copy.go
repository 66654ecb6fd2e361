package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"

	"github.com/quorumlock/quorumlock/server/storage/stable"
)

// Copy copies a node's files into the directory to, which must exist, and returns the node's id, "" if nothing was
// ever stored. The files are only read: opening them would repair the end of the log. It returns ErrInUse if a process
// has the data directory open, or had it open in the meantime.
func Copy(dataDir, to string) (nodeID string, err error) {
	before, err := stable.Read(dataDir)
	if err != nil {
		return "", err
	}
	for _, name := range nodeFiles {
		if err := copyAll(filepath.Join(dataDir, name), filepath.Join(to, name)); err != nil {
			return "", fmt.Errorf("copy the data directory: %w", err)
		}
	}
	after, err := stable.Read(dataDir)
	if err == nil && !maps.EqualFunc(before, after, bytes.Equal) {
		err = fmt.Errorf("%w: %s has changed", ErrInUse, dataDir)
	}
	return string(before[string(nodeKey)]), err
}

// copyAll copies a file, or a directory and everything in it, if it exists. It follows links: the copy has none.
func copyAll(from, to string) error {
	info, err := os.Stat(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil || !info.IsDir() {
		return errors.Join(err, copyFile(from, to))
	}
	entries, err := os.ReadDir(from)
	if err == nil {
		err = os.Mkdir(to, privateDir)
	}
	for _, e := range entries {
		if err == nil {
			err = copyAll(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		}
	}
	return err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, privateFile)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
