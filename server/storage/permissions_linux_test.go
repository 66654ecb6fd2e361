package storage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// TestModesThatCannotBeChanged uses a process's own files in /proc, whose permissions the kernel does not
// change.
func TestModesThatCannotBeChanged(t *testing.T) {
	const fixed = "/proc/self/environ"
	log := hclog.NewNullLogger()
	if err := makePrivate("/proc/self/fd", log); !errors.Is(err, ErrNotPrivate) || !strings.Contains(err.Error(), "chmod 0700 /proc/self/fd") {
		t.Errorf("a directory: %v", err)
	}
	dir := t.TempDir()
	if err := os.Symlink(fixed, filepath.Join(dir, identityFile)); err != nil {
		t.Fatal(err)
	}
	if err := makePrivate(dir, log); !errors.Is(err, ErrNotPrivate) || !strings.Contains(err.Error(), "chmod 0600") {
		t.Errorf("a file in it: %v", err)
	}
	if err := restrictAll(filepath.Join(fixed, "below"), log); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a file below a file: %v", err)
	}
	if err := restrict(filepath.Join(dir, "nowhere"), log); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
