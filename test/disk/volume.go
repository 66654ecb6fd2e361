package disk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// File system ioctls from linux/fs.h and xfs_fs.h.
const (
	freeze    = 0xC0045877
	thaw      = 0xC0045878
	goDown    = 0x8004587D
	noLogging = 2 // drop also the unwritten part of the file system's own log
)

// imageSize is the minimum for mkfs.xfs. The file is sparse.
const imageSize = 320 << 20

// NoVolume returns why volumes are not possible here; nil if they are.
var NoVolume = sync.OnceValue(func() error {
	if os.Geteuid() != 0 {
		return errors.New("only root may mount")
	}
	if _, err := exec.LookPath("mkfs.xfs"); err != nil {
		return fmt.Errorf("xfsprogs is missing: %w", err)
	}
	dir, err := os.MkdirTemp("", "disk-probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	v := &Volume{Dir: filepath.Join(dir, "mnt"), image: filepath.Join(dir, "image"), size: imageSize}
	return errors.Join(v.format(), v.mount(), v.unmount())
})

// Volume is a file system in a file.
type Volume struct {
	// Dir is where it is mounted.
	Dir    string
	image  string
	size   int64
	frozen bool
}

// Mount creates a volume and mounts it on a directory until the end of the test. It skips the test if that is
// not possible here.
func Mount(t testing.TB, dir string) *Volume {
	t.Helper()
	return MountSized(t, dir, imageSize)
}

// MountSized is Mount with a size in bytes. The file is sparse.
func MountSized(t testing.TB, dir string, size int64) *Volume {
	t.Helper()
	if err := NoVolume(); err != nil {
		t.Skip("no volumes here: ", err)
	}
	v := &Volume{Dir: dir, image: filepath.Join(t.TempDir(), "image"), size: size}
	if err := errors.Join(v.format(), v.mount()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if v.frozen {
			_ = v.Thaw()
		}
		if err := v.unmount(); err != nil {
			t.Error(err)
		}
	})
	return v
}

func (v *Volume) format() error {
	f, err := os.Create(v.image)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(v.size), f.Close(), run("mkfs.xfs", "-q", v.image), os.MkdirAll(v.Dir, 0o700))
}

func (v *Volume) mount() error { return run("mount", "-t", "xfs", "-o", "loop", v.image, v.Dir) }

// unmount does not wait for processes with open files there.
func (v *Volume) unmount() error { return run("umount", "--lazy", v.Dir) }

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

func (v *Volume) request(what uint, argument int) error {
	dir, err := os.Open(v.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.IoctlSetPointerInt(int(dir.Fd()), what, argument)
}

// Freeze blocks all writers, in uninterruptible sleep.
func (v *Volume) Freeze() error {
	v.frozen = true
	return v.request(freeze, 0)
}

// Thaw unblocks them.
func (v *Volume) Thaw() error {
	v.frozen = false
	return v.request(thaw, 0)
}

// CutPower discards what was not synced. Reads and writes fail afterwards.
func (v *Volume) CutPower() error { return v.request(goDown, noLogging) }

// Remount mounts the volume again, as after power is restored. No process may have files open there.
func (v *Volume) Remount() error { return errors.Join(run("umount", v.Dir), v.mount()) }

// filler is the name of the file that takes all free space.
const filler = "filler"

// Fill uses up all free space.
func (v *Volume) Fill() error {
	f, err := os.Create(filepath.Join(v.Dir, filler))
	if err != nil {
		return err
	}
	defer f.Close()
	size := int64(0)
	for step := int64(64 << 20); step >= 4096; {
		err := unix.Fallocate(int(f.Fd()), 0, size, step)
		switch {
		case err == nil:
			size += step
		case errors.Is(err, unix.ENOSPC):
			step /= 2
		default:
			return err
		}
	}
	return nil
}

// Take uses up space without writing it.
func (v *Volume) Take(size int64) error {
	f, err := os.Create(filepath.Join(v.Dir, filler))
	if err != nil {
		return err
	}
	return errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, size), f.Close())
}

// MakeRoom removes the filler.
func (v *Volume) MakeRoom() error { return os.Remove(filepath.Join(v.Dir, filler)) }
