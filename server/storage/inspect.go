package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/quorumlock/quorumlock/server/storage/stable"
)

// A node whose memory has holes must not take part: it would vote and acknowledge as if it had never known
// what is missing. Each file is checked when it is opened. What is left to check is whether files are missing.

// inspect checks whether a data directory without values is new. If it has other parts of a node's data, it
// returns ErrDamaged: values are stored before anything else, except for an empty log that they do not name
// yet. snapshot is the index of the newest snapshot, 0 if there is none.
func inspect(dir string, snapshot uint64) error {
	created, err := stable.Created(dir)
	if err != nil {
		return err
	}
	values, err := stable.Read(dir)
	if err != nil || len(values) > 0 {
		return err
	}
	segments, err := os.ReadDir(filepath.Join(dir, segmentDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("look for the log: %w", err)
	}
	_, err = os.Stat(filepath.Join(dir, identityFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("look for the identity: %w", err)
	}
	if identified := err == nil; snapshot > 0 || identified || len(segments) > 0 && !created {
		return fmt.Errorf("%w: %s is gone", ErrDamaged, filepath.Join(dir, stable.File))
	}
	return nil
}
