package storage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	// These are raft's names.
	snapshotDir = "snapshots"
	stateFile   = "state.bin"
	// unfinished is the suffix of snapshots that are being written.
	unfinished = ".tmp"
)

// snapshots stores raft's snapshots in files. Raft's store has a checksum for the state but none for its
// description: the last entry it includes, and the members. So the state starts with a copy of the
// description, and the two must be equal. A snapshot that cannot be written counts as a failed disk; one that
// is damaged stops the node.
type snapshots struct {
	raft.SnapshotStore
	dir    string // raft's directory of snapshots
	failed func(error)
}

// caption is the copy of a snapshot's description at the start of its state.
type caption struct {
	Version                         raft.SnapshotVersion
	Index, Term, ConfigurationIndex uint64
	Configuration                   raft.Configuration
}

func (c caption) bytes() []byte {
	line, _ := json.Marshal(c) // never fails: it has only numbers and strings
	return append(line, '\n')
}

// Create implements raft.SnapshotStore.
func (s *snapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, configuration, configurationIndex, trans)
	if err != nil {
		return nil, s.unwritten(err)
	}
	// Raft creates its files readable for everyone. The state is not in them yet.
	if err := restrictAll(filepath.Join(s.dir, sink.ID()+unfinished), hclog.NewNullLogger()); err != nil {
		return nil, errors.Join(s.unwritten(err), sink.Cancel())
	}
	guarded := &guardedSink{sink, s}
	line := caption{version, index, term, configurationIndex, configuration}.bytes()
	if _, err := guarded.Write(line); err != nil {
		_ = guarded.Cancel() // the first error is the one to report
		return nil, err
	}
	return guarded, nil
}

func (s *snapshots) unwritten(err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%w: write a snapshot: %w%s", ErrStore, err, advice(err))
	s.failed(err)
	return err
}

type guardedSink struct {
	raft.SnapshotSink
	store *snapshots
}

// Write implements io.Writer.
func (g *guardedSink) Write(p []byte) (int, error) {
	n, err := g.SnapshotSink.Write(p)
	return n, g.store.unwritten(err)
}

// Close implements io.Closer. It completes the snapshot.
func (g *guardedSink) Close() error { return g.store.unwritten(g.SnapshotSink.Close()) }

// Open implements raft.SnapshotStore.
func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, state, err := s.open(id)
	if errors.Is(err, ErrDamaged) {
		s.failed(err)
	}
	return meta, state, err
}

func (s *snapshots) open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, state, err := s.SnapshotStore.Open(id)
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return nil, nil, fmt.Errorf("read snapshot %s: %w", id, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: snapshot %s: %w", ErrDamaged, id, err)
	}
	size, err := s.caption(meta, id, state)
	if err != nil {
		return nil, nil, errors.Join(err, state.Close())
	}
	meta.Size -= size
	return meta, state, nil
}

// caption reads the copy at the start of a state, compares it with the description and returns its size.
func (s *snapshots) caption(meta *raft.SnapshotMeta, id string, state io.Reader) (size int64, err error) {
	line := caption{meta.Version, meta.Index, meta.Term, meta.ConfigurationIndex, meta.Configuration}.bytes()
	info, err := os.Stat(filepath.Join(s.dir, id, stateFile))
	if err != nil {
		return 0, fmt.Errorf("read snapshot %s: %w", id, err)
	}
	found := make([]byte, len(line))
	_, err = io.ReadFull(state, found)
	if err != nil || !bytes.Equal(found, line) || meta.ID != id || meta.Size != info.Size() {
		return 0, fmt.Errorf("%w: snapshot %s is not the one that its description is of", ErrDamaged, id)
	}
	return int64(len(line)), nil
}

// newest checks the newest snapshot and returns the index of its last entry, 0 if there is no snapshot. Raft
// would only log a warning for one that it cannot read, and use an older one. An older one may be half
// removed, if the process ended while removing it, and is not checked.
func (s *snapshots) newest() (index uint64, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return 0, fmt.Errorf("look for snapshots: %w", err)
	}
	name, term := "", uint64(0)
	for _, e := range entries {
		var t, i, at uint64
		if !e.IsDir() || strings.HasSuffix(e.Name(), unfinished) {
			continue
		}
		if _, err := fmt.Sscanf(e.Name(), "%d-%d-%d", &t, &i, &at); err != nil {
			return 0, fmt.Errorf("%w: %s is no snapshot's name", ErrDamaged, filepath.Join(s.dir, e.Name()))
		}
		if t > term || t == term && i >= index {
			name, term, index = e.Name(), t, i
		}
	}
	if name == "" {
		return 0, nil
	}
	meta, state, err := s.open(name)
	if err != nil {
		return 0, missing(err)
	}
	if meta.Index != index || meta.Term != term {
		err = fmt.Errorf("%w: snapshot %s says that it ends at entry %d of term %d", ErrDamaged, name, meta.Index, meta.Term)
	}
	return index, errors.Join(err, state.Close())
}

// missing reports a missing file of the newest snapshot or of the log as damage: nothing removes these files.
func missing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}
