//go:build unix

package recovery_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestOwnerOfTheNewDirectory verifies that the node's user owns what root has recovered.
func TestOwnerOfTheNewDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files to others")
	}
	const user = 12345
	d := began(t, "n1", "prod")
	s := d.usable()
	if err := os.Chown(d.dir, user, user); err != nil {
		t.Fatal(err)
	}
	made, err := s.Recover(t.Context(), order(t, s))
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(made.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if owner := info.Sys().(*syscall.Stat_t); owner.Uid != user || owner.Gid != user || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s belongs to %d:%d, with mode %o", path, owner.Uid, owner.Gid, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
