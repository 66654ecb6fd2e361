package storage

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// wantPrivate reports an error for everything that others than the owner can access.
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

// takeSnapshot writes a snapshot as raft does.
func takeSnapshot(t *testing.T, s *Stores) {
	t.Helper()
	sink, err := s.Snapshots.Create(raft.SnapshotVersionMax, 7, 3, raft.Configuration{}, 1, nil)
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

// TestDataIsPrivate verifies that a node's files are private, whatever the permissions of its directory were,
// and that a start removes the access of others.
func TestDataIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "n1")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s := reopen(t, options(dir))
		takeSnapshot(t, s)
		wantPrivate(t, dir)
		closed(t, s)
		// Make everything accessible behind the node's back.
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
	_, err := Open(options(dir))
	if !errors.Is(err, ErrNotPrivate) || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("opened a directory like /tmp: %v", err)
	}
	if found, err := os.ReadDir(dir); err != nil || len(found) != 0 {
		t.Errorf("it left %v, %v", found, err)
	}
}

func TestFileInPlaceOfADirectory(t *testing.T) {
	for _, name := range []string{"n1", filepath.Join("n1", snapshotDir)} {
		o := options(filepath.Join(t.TempDir(), "n1"))
		path := filepath.Join(filepath.Dir(o.DataDir), name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(o); !errors.Is(err, syscall.ENOTDIR) {
			t.Errorf("with a file %s: %v", name, err)
		}
	}
}

// TestModesOfFiles verifies that permissions are corrected if others have access, or if the owner has too
// little.
func TestModesOfFiles(t *testing.T) {
	var text bytes.Buffer
	log := hclog.New(&hclog.LoggerOptions{Output: &text})
	for _, c := range []struct {
		dir        bool
		mode, want fs.FileMode
	}{
		{false, 0o600, 0o600}, {false, 0o700, 0o700}, {false, 0o640, 0o600}, {false, 0o604, 0o600}, {false, 0o400, 0o600}, {false, 0o200, 0o600},
		{true, 0o700, 0o700}, {true, 0o710, 0o700}, {true, 0o600, 0o700}, {true, 0o500, 0o700},
	} {
		path := filepath.Join(t.TempDir(), "it")
		make := func() error { return os.WriteFile(path, nil, 0o600) }
		if c.dir {
			make = func() error { return os.Mkdir(path, 0o700) }
		}
		if err := errors.Join(make(), os.Chmod(path, c.mode), restrictAll(path, log)); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != c.want {
			t.Errorf("mode %04o became %v, want %04o, %v", c.mode, info.Mode(), c.want, err)
		}
	}
	if n := strings.Count(text.String(), "made private"); n != 7 {
		t.Errorf("%d changes were logged", n)
	}
	if err := restrictAll(filepath.Join(t.TempDir(), "nowhere"), log); err != nil {
		t.Errorf("a file that is not there: %v", err)
	}
}
