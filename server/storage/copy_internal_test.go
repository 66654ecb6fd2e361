package storage

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
)

// TestCopy copies the files of a node, and opens the copy.
func TestCopy(t *testing.T) {
	o := options(t.TempDir())
	s := reopen(t, o)
	if err := s.Log.StoreLog(&raft.Log{Index: 1, Term: 1, Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if id, err := Copy(o.DataDir, t.TempDir()); !errors.Is(err, ErrInUse) {
		t.Errorf("in use: %q, %v", id, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	to := options(t.TempDir())
	if id, err := Copy(o.DataDir, to.DataDir); err != nil || id != "n1" {
		t.Fatalf("%q, %v", id, err)
	}
	copied := reopen(t, to)
	if last, err := copied.Log.LastIndex(); err != nil || last != 1 || copied.Incarnation != s.Incarnation {
		t.Errorf("up to entry %d of %s, %v", last, copied.Incarnation, err)
	}
	if err := copied.Close(); err != nil {
		t.Error(err)
	}
	if id, err := Copy(t.TempDir(), t.TempDir()); err != nil || id != "" {
		t.Errorf("an empty directory: %q, %v", id, err)
	}
	if _, err := Copy(o.DataDir, to.DataDir); !errors.Is(err, os.ErrExist) {
		t.Errorf("over another copy: %v", err)
	}

	// A copy waits for a pipe. Meanwhile a node starts and ends.
	pipe := filepath.Join(o.DataDir, snapshotDir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := Copy(o.DataDir, filepath.Join(t.TempDir()))
		done <- err
	}()
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns when the copy has opened it
	if err != nil {
		t.Fatal(err)
	}
	again := reopen(t, o)
	if err := errors.Join(again.Values.Set([]byte("k"), []byte("v")), again.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, ErrInUse) {
		t.Errorf("a node has run during the copy: %v", err)
	}
}
