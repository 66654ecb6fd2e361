package storage

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// snapshotsIn creates a store with snapshots of these terms and indexes.
func snapshotsIn(t *testing.T, dir string, of [][2]uint64) *snapshots {
	t.Helper()
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, len(of)+1, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	s := &snapshots{files, filepath.Join(dir, snapshotDir), func(err error) { t.Error(err) }}
	for _, at := range of {
		sink, err := s.Create(1, at[1], at[0], raft.Configuration{}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := sink.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestNewestSnapshotIsRafts verifies that the snapshot that is checked is the one that raft uses, in whatever
// order they are listed.
func TestNewestSnapshotIsRafts(t *testing.T) {
	for _, of := range [][][2]uint64{
		{{2, 9}, {2, 10}},
		{{9, 30}, {10, 20}},
		{{1, 7}, {2, 8}, {2, 8}},
	} {
		s := snapshotsIn(t, t.TempDir(), of)
		list, err := s.List()
		if err != nil || len(list) != len(of) {
			t.Fatal(list, err)
		}
		if got, err := s.newest(); err != nil || got != list[0].Index {
			t.Errorf("of %v: entry %d, %v, raft takes that of entry %d", of, got, err, list[0].Index)
		}
	}
}

func TestDirectoryThatIsNoSnapshotIsDamage(t *testing.T) {
	s := snapshotsIn(t, t.TempDir(), [][2]uint64{{1, 7}})
	if err := os.Mkdir(filepath.Join(s.dir, "1-x-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.newest(); !errors.Is(err, ErrDamaged) {
		t.Errorf("opened: %v", err)
	}
}

// described changes the description of a snapshot.
func described(t *testing.T, s *snapshots, id string, change func(meta map[string]any)) {
	t.Helper()
	path, meta := filepath.Join(s.dir, id, "meta.json"), map[string]any{}
	content, err := os.ReadFile(path)
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(content))
		decoder.UseNumber() // a checksum does not fit into a float
		err = decoder.Decode(&meta)
	}
	change(meta)
	if err == nil {
		content, err = json.Marshal(meta)
	}
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSnapshotUnderAnotherName checks a snapshot in the directory of another one, and descriptions that
// differ from the state.
func TestSnapshotUnderAnotherName(t *testing.T) {
	for name, c := range map[string]struct {
		id      string // "" means its own
		say     map[string]any
		damaged bool
	}{
		"as it was":              {},
		"renamed":                {id: "2-9-1", damaged: true},
		"with another id":        {say: map[string]any{"ID": "2-9-2"}, damaged: true},
		"with another size":      {say: map[string]any{"Size": 1}, damaged: true},
		"with another index":     {say: map[string]any{"Index": 8}, damaged: true},
		"renamed with its id":    {id: "2-9-1", say: map[string]any{"ID": "2-9-1"}},
		"under another index":    {id: "2-8-1", say: map[string]any{"ID": "2-8-1"}, damaged: true},
		"under another term":     {id: "3-9-1", say: map[string]any{"ID": "3-9-1"}, damaged: true},
		"under a name of no use": {id: "x-9-1", say: map[string]any{"ID": "x-9-1"}, damaged: true},
	} {
		s := snapshotsIn(t, t.TempDir(), [][2]uint64{{2, 9}})
		list, err := s.List()
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		id := list[0].ID
		if c.id != "" {
			if err := os.Rename(filepath.Join(s.dir, id), filepath.Join(s.dir, c.id)); err != nil {
				t.Fatal(err)
			}
			id = c.id
		}
		described(t, s, id, func(meta map[string]any) { maps.Copy(meta, c.say) })
		if index, err := s.newest(); errors.Is(err, ErrDamaged) != c.damaged || err == nil && index != 9 {
			t.Errorf("%s: entry %d, %v", name, index, err)
		}
	}
}

// TestOlderSnapshotsAreNotLookedAt verifies that the later one of two snapshots of the same entry counts, and
// that files and unfinished snapshots do not.
func TestOlderSnapshotsAreNotLookedAt(t *testing.T) {
	for _, damaged := range []string{"2-9-1", "2-9-2"} {
		s := snapshotsIn(t, t.TempDir(), [][2]uint64{{2, 9}, {1, 8}})
		list, err := s.List()
		if err != nil || len(list) != 2 {
			t.Fatal(list, err)
		}
		for i, id := range []string{"2-9-1", "2-9-2"} {
			path := filepath.Join(s.dir, id)
			if i == 0 {
				err = os.CopyFS(path, os.DirFS(filepath.Join(s.dir, list[0].ID)))
			} else {
				err = os.Rename(filepath.Join(s.dir, list[0].ID), path)
			}
			if err != nil {
				t.Fatal(err)
			}
			described(t, s, id, func(meta map[string]any) { meta["ID"] = id })
		}
		err = errors.Join(os.Truncate(filepath.Join(s.dir, damaged, stateFile), 1),
			os.WriteFile(filepath.Join(s.dir, "9-9-9"), nil, 0o600), os.Mkdir(filepath.Join(s.dir, "9-9-9"+unfinished), 0o700))
		if err != nil {
			t.Fatal(err)
		}
		if index, err := s.newest(); errors.Is(err, ErrDamaged) != (damaged == "2-9-2") || err == nil && index != 9 {
			t.Errorf("with %s damaged: entry %d, %v", damaged, index, err)
		}
	}
}

// TestSnapshotsThatCannotBeRead verifies that errors of reading snapshots are returned, and that only damage
// stops the node.
func TestSnapshotsThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(s *snapshots, dir string) error
		damaged bool
		want    error
	}{
		"whole":   {change: func(*snapshots, string) error { return nil }},
		"gone":    {change: func(_ *snapshots, dir string) error { return os.RemoveAll(dir) }, want: fs.ErrNotExist},
		"flipped": {change: func(_ *snapshots, dir string) error { return os.Truncate(filepath.Join(dir, stateFile), 1) }, damaged: true, want: ErrDamaged},
		"another's": {change: func(s *snapshots, dir string) error {
			described(t, s, filepath.Base(dir), func(meta map[string]any) { meta["CRC"], meta["Size"] = make([]byte, 8), 0 })
			return os.Truncate(filepath.Join(dir, stateFile), 0)
		}, damaged: true, want: ErrDamaged},
		"elsewhere": {change: func(s *snapshots, _ string) error { s.dir += "x"; return nil }, want: fs.ErrNotExist},
	} {
		s := snapshotsIn(t, t.TempDir(), [][2]uint64{{2, 9}})
		var told []error
		s.failed = func(err error) { told = append(told, err) }
		list, err := s.List()
		if err == nil {
			err = c.change(s, filepath.Join(s.dir, list[0].ID))
		}
		if err != nil {
			t.Fatal(err)
		}
		meta, state, err := s.Open(list[0].ID)
		if !errors.Is(err, c.want) || errors.Is(err, ErrDamaged) != c.damaged || (len(told) == 1) != c.damaged || (err == nil) != (meta != nil && state != nil) {
			t.Errorf("%s: %v, %v, told %v", name, meta, err, told)
		}
		if state != nil {
			_ = state.Close()
		}
	}
	s := &snapshots{dir: filepath.Join(t.TempDir(), "none")}
	if _, err := s.newest(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
}

// failingSnapshots fail to be created, written or closed.
type failingSnapshots struct {
	raft.SnapshotStore
	raft.SnapshotSink
	create, write, close error
	cancelled            int
}

func (f *failingSnapshots) Create(raft.SnapshotVersion, uint64, uint64, raft.Configuration, uint64, raft.Transport) (raft.SnapshotSink, error) {
	return f, f.create
}

func (f *failingSnapshots) ID() string                  { return "s" }
func (f *failingSnapshots) Write(p []byte) (int, error) { return len(p), f.write }
func (f *failingSnapshots) Close() error                { return f.close }
func (f *failingSnapshots) Cancel() error               { f.cancelled++; return nil }

// TestSnapshotsThatCannotBeWritten verifies that a failure to write a snapshot stops the node and leaves
// nothing unfinished behind.
func TestSnapshotsThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		store     failingSnapshots
		dir       string
		want      error
		cancelled int
	}{
		"written":          {dir: t.TempDir()},
		"not created":      {store: failingSnapshots{create: errDisk}, dir: t.TempDir(), want: errDisk},
		"not made private": {dir: file, want: syscall.ENOTDIR, cancelled: 1},
		"not written":      {store: failingSnapshots{write: errDisk}, dir: t.TempDir(), want: errDisk, cancelled: 1},
		"not finished":     {store: failingSnapshots{close: errDisk}, dir: t.TempDir(), want: errDisk},
	} {
		var told []error
		s := &snapshots{&c.store, c.dir, func(err error) { told = append(told, err) }}
		sink, err := s.Create(1, 9, 2, raft.Configuration{}, 1, nil)
		if err == nil {
			err = sink.Close()
		}
		failed := c.want != nil
		if !errors.Is(err, c.want) || errors.Is(err, ErrStore) != failed || (len(told) == 1) != failed || c.store.cancelled != c.cancelled {
			t.Errorf("%s: %v, told %v, cancelled %d times", name, err, told, c.store.cancelled)
		}
	}
}
