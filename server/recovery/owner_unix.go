//go:build unix

package recovery

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// giveTo gives a directory and everything in it to the owner of another one: root may recover the data of the user that
// runs the node.
func giveTo(dir, ownerOf string) error {
	info, err := os.Stat(ownerOf)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(owner.Uid) == os.Geteuid() {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Lchown(path, int(owner.Uid), int(owner.Gid))
		}
		if err != nil {
			return fmt.Errorf("give the new data directory to the owner of %s: %w: run this as that user", ownerOf, err)
		}
		return nil
	})
}
