package replica

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// wantPrivate fails for whatever others than the owner have access to.
func wantPrivate(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if entry.IsDir() {
			want = 0o700
		} else {
			files++
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %04o, want %04o", path, got, want)
		}
		return nil
	})
	if err != nil || files < 5 {
		t.Fatalf("%d files, %v", files, err)
	}
}

// takeSnapshot writes one as raft does.
func takeSnapshot(t *testing.T, s *stores) {
	t.Helper()
	sink, err := s.snapshots.Create(raft.SnapshotVersionMax, 7, 3, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Write([]byte("state")); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
}

// What a node writes is private, however open the directory was that it got, and what was
// made open before is closed when the node starts.
func TestDataIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "n1")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cfg := Config{ID: "n1", DataDir: dir}.withDefaults()
	for range 2 {
		s := reopen(t, cfg)
		if _, err := openIdentity(cfg, s.stable); err != nil {
			t.Fatal(err)
		}
		takeSnapshot(t, s)
		wantPrivate(t, dir)
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		// Made open while nobody looked.
		if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Chmod(path, 0o777))
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSharedDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	_, err := openStores(Config{ID: "n1", DataDir: dir}.withDefaults(), func(error) {})
	if !errors.Is(err, ErrNotPrivate) || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("opened a directory like /tmp: %v", err)
	}
	if found, err := os.ReadDir(dir); err != nil || len(found) != 0 {
		t.Errorf("it left %v, %v", found, err)
	}
}
