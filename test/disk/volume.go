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

// Requests to a file system, of linux/fs.h and xfs_fs.h.
const (
	freeze    = 0xC0045877
	thaw      = 0xC0045878
	goDown    = 0x8004587D
	noLogging = 2 // what the file system has not written of its own log is gone too
)

// imageSize is the least that mkfs.xfs takes. The file has holes.
const imageSize = 320 << 20

// NoVolume says why there can be no volumes here; nil if there can.
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
	v := &Volume{Dir: filepath.Join(dir, "mnt"), image: filepath.Join(dir, "image")}
	return errors.Join(v.format(), v.mount(), v.unmount())
})

// Volume is a file system in a file.
type Volume struct {
	// Dir is where it is mounted.
	Dir    string
	image  string
	frozen bool
}

// Mount makes a volume and mounts it at a directory, until the end of the test. Where that
// cannot be, the test is skipped.
func Mount(t testing.TB, dir string) *Volume {
	t.Helper()
	if err := NoVolume(); err != nil {
		t.Skip("no volumes here: ", err)
	}
	v := &Volume{Dir: dir, image: filepath.Join(t.TempDir(), "image")}
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
	return errors.Join(f.Truncate(imageSize), f.Close(), run("mkfs.xfs", "-q", v.image), os.MkdirAll(v.Dir, 0o700))
}

func (v *Volume) mount() error { return run("mount", "-t", "xfs", "-o", "loop", v.image, v.Dir) }

// unmount does not wait for those who still have files open there.
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

// Freeze has everybody who writes wait, in a sleep that no signal ends.
func (v *Volume) Freeze() error {
	v.frozen = true
	return v.request(freeze, 0)
}

// Thaw lets them go on.
func (v *Volume) Thaw() error {
	v.frozen = false
	return v.request(thaw, 0)
}

// CutPower takes away what was not synced. Nothing can be read or written any more.
func (v *Volume) CutPower() error { return v.request(goDown, noLogging) }

// Remount is what comes after the power is back. Nobody may have files open there.
func (v *Volume) Remount() error { return errors.Join(run("umount", v.Dir), v.mount()) }

// filler takes all the room that there is.
const filler = "filler"

// Fill leaves no room.
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

// MakeRoom takes the filling away.
func (v *Volume) MakeRoom() error { return os.Remove(filepath.Join(v.Dir, filler)) }
