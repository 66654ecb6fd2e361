package storage

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/server/storage/segment"
)

// Keys of the identity among the node's values.
var (
	// incarnationKey is stored in the same file as the log: a node that loses its log loses its incarnation
	// too, and becomes a stranger to the cluster.
	incarnationKey = []byte("quorumlock.incarnation")
	// nodeKey is the key of the id of the node that the log belongs to.
	nodeKey = []byte("quorumlock.node")
	// originKey is the key of the text that says what the data directory was made from.
	originKey = []byte("quorumlock.origin")
)

const (
	identityFile   = "node.json"
	identityFormat = 1
)

// nodeFile is the identity file, for operators.
type nodeFile struct {
	Format      int    `json:"format"`
	ID          string `json:"id"`
	Incarnation string `json:"incarnation"`
}

// openIdentity reads the node's identity, or creates one. The stable store is authoritative: it has checksums
// and belongs to the log. The identity file is compared with it.
func openIdentity(o Options, stable raft.StableStore) (incarnation string, err error) {
	if o.Backend.Log != nil && o.Backend.Incarnation != "" {
		return o.Backend.Incarnation, nil
	}
	id, err := remembered(stable, nodeKey, o.NodeID)
	if err != nil {
		return "", err
	}
	if id != o.NodeID {
		return "", otherNode(o.DataDir, id, o.NodeID)
	}
	if incarnation, err = remembered(stable, incarnationKey, NewID()); err != nil || o.Backend.Log != nil {
		return incarnation, err
	}
	path, want := filepath.Join(o.DataDir, identityFile), nodeFile{identityFormat, o.NodeID, incarnation}
	file, err := readIdentity(path)
	switch {
	case err != nil:
		return "", err
	case file == nil:
		return incarnation, writeIdentity(path, want)
	case *file != want:
		return "", damagedIdentity(path, fmt.Errorf("it says node %q with incarnation %q, the log is that of node %q with incarnation %q",
			file.ID, file.Incarnation, want.ID, want.Incarnation))
	}
	return incarnation, nil
}

func otherNode(dir, owner, node string) error {
	return fmt.Errorf("%w: %s is that of %q, this node is %q: start it with its own --data-dir", ErrOtherNode, dir, owner, node)
}

// remembered returns the value stored under a key. In a new store it stores value first.
func remembered(stable raft.StableStore, key []byte, value string) (string, error) {
	stored, err := Get(stable, key)
	if err != nil || len(stored) > 0 {
		return string(stored), err
	}
	return value, stable.Set(key, []byte(value))
}

// SetOrigin stores what the data directory was made from. Each start logs it.
func (s *Stores) SetOrigin(text string) error { return s.Values.Set(originKey, []byte(text)) }

func logOrigin(values raft.StableStore, log hclog.Logger) error {
	origin, err := Get(values, originKey)
	if err == nil && len(origin) > 0 {
		log.Warn("this data directory was made by a recovery", "origin", string(origin))
	}
	return err
}

// NewID returns a random, unique id.
func NewID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func readIdentity(path string) (*nodeFile, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the node's identity: %w", err)
	}
	var file nodeFile
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, damagedIdentity(path, err)
	}
	if file.Format > identityFormat {
		return nil, damagedIdentity(path, fmt.Errorf("it has format %d, and this program knows formats up to %d: "+
			"if a newer program wrote it, start that one", file.Format, identityFormat))
	}
	return &file, nil
}

// damagedIdentity returns an error that says how to repair the identity file. Everything else in the data
// directory has been checked before.
func damagedIdentity(path string, why error) error {
	return fmt.Errorf("%w: %s: %w\nNothing was changed, and nothing else is damaged: the log has this node's identity, too. "+
		"Remove the file, and the node writes it again: run\n  rm %s\nand start this node again", ErrIdentityFile, path, why, path)
}

// writeIdentity replaces the file atomically.
func writeIdentity(path string, file nodeFile) error {
	data, err := json.MarshalIndent(file, "", "  ")
	if err == nil {
		err = replaceFile(path, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the node's identity: %w", err)
	}
	return nil
}

func replaceFile(path string, data []byte) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return segment.Dir(filepath.Dir(path)).Sync()
}
