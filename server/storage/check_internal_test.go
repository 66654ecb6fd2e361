package storage

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestCheckAgreesWithOpen verifies that Check returns the error that Open would return, and changes nothing.
func TestCheckAgreesWithOpen(t *testing.T) {
	dir := t.TempDir()
	used := filepath.Join(dir, "used")
	open := func(dir, id string) error {
		s, err := Open(Options{NodeID: id, DataDir: dir, SegmentBytes: 64 << 10, DiskTimeout: 7 * time.Second, Failed: func(error) {}})
		if err == nil {
			err = s.Close()
		}
		return err
	}
	if err := open(used, "n1"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(dir, "shared")
	if err := errors.Join(os.Mkdir(shared, 0o700), os.Chmod(shared, 0o700|os.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	halved := filepath.Join(dir, "halved")
	if err := errors.Join(os.CopyFS(halved, os.DirFS(used)), os.Remove(filepath.Join(halved, "raft.db"))); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ dir, id string }{
		{used, "n1"}, {used, "n2"}, {file, "n1"}, {filepath.Join(file, "below"), "n1"}, {shared, "n1"}, {halved, "n1"},
		{filepath.Join(dir, "new", "deep"), "n1"},
	} {
		_, checked := Check(c.dir, c.id)
		if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
			t.Error("Check has created a directory")
		}
		opened := open(c.dir, c.id)
		if (checked == nil) != (opened == nil) || checked != nil && checked.Error() != opened.Error() {
			t.Errorf("%s as %s: Check says %v, Open says %v", c.dir, c.id, checked, opened)
		}
	}
	s, err := Open(Options{NodeID: "n1", DataDir: used, SegmentBytes: 64 << 10, DiskTimeout: 7 * time.Second, Failed: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := Check(used, "n1"); !errors.Is(err, ErrInUse) {
		t.Errorf("in use: %v", err)
	}
}
