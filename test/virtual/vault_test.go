package virtual_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// kept is the number of snapshots that a vault keeps.
const kept = 2

// vault contains the snapshots of a disk. A snapshot that was not completed does not exist, like a file that
// is renamed last. Tests can hook into the writing and reading of snapshots.
type vault struct {
	mu    sync.Mutex
	made  int
	all   []*stored                // newest first
	event func(which string) error // called without mu; may be nil
}

const (
	writingSnapshot = "writing a snapshot"
	readingSnapshot = "reading a snapshot"
)

type stored struct {
	meta raft.SnapshotMeta
	data []byte
}

// on sets a function that is called at every write to a snapshot and every read of one. Its error becomes
// that of the operation.
func (v *vault) on(f func(which string) error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.event = f
}

func (v *vault) happens(which string) error {
	v.mu.Lock()
	f := v.event
	v.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(which)
}

// Create implements raft.SnapshotStore.
func (v *vault) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.made++
	meta := raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("%d-%d-%d", term, index, v.made),
		Index: index, Term: term, Configuration: conf, ConfigurationIndex: confIndex,
	}
	return &sink{vault: v, meta: meta}, nil
}

// List implements raft.SnapshotStore.
func (v *vault) List() ([]*raft.SnapshotMeta, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var metas []*raft.SnapshotMeta
	for _, s := range v.all {
		meta := s.meta
		metas = append(metas, &meta)
	}
	return metas, nil
}

// Open implements raft.SnapshotStore.
func (v *vault) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.all {
		if s.meta.ID == id {
			meta := s.meta
			return &meta, &source{bytes.NewReader(s.data), v}, nil
		}
	}
	return nil, nil, errors.New("no such snapshot: " + id)
}

// source is a snapshot that is being read.
type source struct {
	*bytes.Reader
	vault *vault
}

// Read implements io.Reader.
func (s *source) Read(b []byte) (int, error) {
	if err := s.vault.happens(readingSnapshot); err != nil {
		return 0, err
	}
	return s.Reader.Read(b)
}

// Close implements io.Closer.
func (s *source) Close() error { return nil }

// sink is a snapshot that is being written.
type sink struct {
	vault *vault
	meta  raft.SnapshotMeta
	data  []byte
	over  bool
}

// ID implements raft.SnapshotSink.
func (s *sink) ID() string { return s.meta.ID }

// Write implements io.Writer.
func (s *sink) Write(b []byte) (int, error) {
	if err := s.vault.happens(writingSnapshot); err != nil {
		return 0, err
	}
	s.data = append(s.data, b...)
	return len(b), nil
}

// Cancel implements raft.SnapshotSink.
func (s *sink) Cancel() error {
	s.over = true
	return nil
}

// Close implements raft.SnapshotSink.
func (s *sink) Close() error {
	if s.over {
		return nil
	}
	s.over = true
	s.meta.Size = int64(len(s.data))
	s.vault.mu.Lock()
	defer s.vault.mu.Unlock()
	s.vault.all = append([]*stored{{s.meta, s.data}}, s.vault.all...)
	s.vault.all = s.vault.all[:min(kept, len(s.vault.all))]
	return nil
}
