package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Directory is a Store in a directory.
type Directory struct{ path string }

// OpenDirectory returns the store in an existing directory. It returns an error unless it can create files there.
func OpenDirectory(path string) (*Directory, error) {
	probe, err := os.CreateTemp(path, ".quorumlock-*")
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		return nil, failed.Err // the probe's name says nothing
	}
	if err != nil {
		return nil, err
	}
	return &Directory{path}, errors.Join(probe.Close(), os.Remove(probe.Name()))
}

func (d *Directory) String() string { return d.path }

// Put implements Store. The file gets its name when it has been written to the disk and checked, and can be read by its
// owner only. Put first removes what interrupted calls have left.
func (d *Directory) Put(ctx context.Context, file string, write func(io.Writer) error, check func(io.Reader) error) error {
	d.clean()
	path := filepath.Join(d.path, file)
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s: %w", file, fs.ErrExist)
	}
	f, err := os.CreateTemp(d.path, file+".*"+temporary)
	if err != nil {
		return err
	}
	defer f.Close()
	_ = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) // tells other nodes that the file is being written
	err = write(limited{ctx: ctx, Writer: f})
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = d.Read(ctx, filepath.Base(f.Name()), check)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = publish(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, d.Remove(context.WithoutCancel(ctx), filepath.Base(f.Name())))
	}
	return d.sync()
}

// publish gives a file its name, unless there is one of that name.
func publish(from, path string) error {
	err := os.Link(from, path)
	if err == nil {
		return os.Remove(from)
	}
	if !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, unix.EPERM) {
		return err
	}
	// The file system has no hard links: reserve the name, and replace what reserves it.
	reserved, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(reserved.Close(), os.Rename(from, path)); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func (d *Directory) sync() error {
	dir, err := os.Open(d.path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// clean removes what interrupted calls of Put have left: files that nobody holds locked. Several nodes may share a
// directory, and a former leader may still write.
func (d *Directory) clean() {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !isTemporary(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		f, err := d.open(e.Name())
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.Remove(f.Name())
		}
		_ = f.Close()
	}
}

// open opens a regular file. It neither follows a link nor waits for a writer of a pipe.
func (d *Directory) open(file string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(d.path, file), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", file)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Read implements Store.
func (d *Directory) Read(ctx context.Context, file string, read func(io.Reader) error) error {
	f, err := d.open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return read(limited{ctx: ctx, Reader: f})
}

// List implements Store. A tag is the file's identity and its times.
func (d *Directory) List(context.Context) ([]File, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("list backups: %w", err)
	}
	var files []File
	for _, e := range entries {
		if !isName(e.Name()) {
			continue
		}
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // another node has removed it
		case err != nil:
			return nil, fmt.Errorf("list backups: %w", err)
		}
		one := File{Name: e.Name()}
		if !info.Mode().IsRegular() {
			one.Odd = info.Mode().Type().String()
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			one.Tag = fmt.Sprint(s.Dev, s.Ino, s.Size, s.Mtim, s.Ctim)
		}
		files = append(files, one)
	}
	return files, nil
}

// Remove implements Store.
func (d *Directory) Remove(_ context.Context, file string) error {
	if err := os.Remove(filepath.Join(d.path, file)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
