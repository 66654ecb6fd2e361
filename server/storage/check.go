package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/storage/stable"
)

// Check returns the error that Open would return for the data directory of a node, without changing anything: if the
// directory cannot be used, is in use, belongs to another node, or has lost files. Damage within the log is found by
// Open only. Check returns the node's values, which are empty for a new directory.
func Check(dir, nodeID string) (raft.StableStore, error) {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return stored{}, creatable(dir)
	}
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		err = writable(dir)
	}
	if err != nil {
		return nil, unusable(dir, err)
	}
	if err := notShared(dir, info); err != nil {
		return nil, err
	}
	if err := inspect(dir, 0); err != nil {
		return nil, err
	}
	values, err := stable.Read(dir)
	if err != nil {
		return nil, err
	}
	if id := string(values[string(nodeKey)]); id != "" && id != nodeID {
		return nil, otherNode(dir, id, nodeID)
	}
	return stored(values), nil
}

// creatable returns an error unless a directory can be created, below the first of its parents that exists.
func creatable(dir string) error {
	parent, err := filepath.Abs(dir)
	for err == nil {
		parent = filepath.Dir(parent)
		var info fs.FileInfo
		if info, err = os.Stat(parent); errors.Is(err, fs.ErrNotExist) {
			err = nil
			continue
		}
		if err == nil && !info.IsDir() {
			err = syscall.ENOTDIR
		}
		if err == nil {
			err = writable(parent)
		}
		break
	}
	if err != nil {
		return unusable(dir, err)
	}
	return nil
}

// stored are the values in the directory of a node that is not running.
type stored map[string][]byte

// Get implements raft.StableStore.
func (s stored) Get(key []byte) ([]byte, error) { return s[string(key)], nil }

// Set implements raft.StableStore.
func (stored) Set([]byte, []byte) error { return errors.ErrUnsupported }

// SetUint64 implements raft.StableStore.
func (stored) SetUint64([]byte, uint64) error { return errors.ErrUnsupported }

// GetUint64 implements raft.StableStore.
func (stored) GetUint64([]byte) (uint64, error) { return 0, errors.ErrUnsupported }
