package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
	err := d.write(ctx, path+temporary, write)
	if err == nil {
		err = d.Read(ctx, file+temporary, check)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = os.Rename(path+temporary, path)
	}
	if err != nil {
		return errors.Join(err, d.Remove(context.WithoutCancel(ctx), file+temporary))
	}
	return d.sync()
}

func (d *Directory) write(ctx context.Context, path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := write(limited{ctx: ctx, Writer: f}); err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(f.Sync(), f.Close())
}

func (d *Directory) sync() error {
	dir, err := os.Open(d.path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// clean removes what interrupted calls of Put have left. Several nodes may share a directory, but only one of them
// leads.
func (d *Directory) clean() {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if isTemporary(e.Name()) {
			_ = os.Remove(filepath.Join(d.path, e.Name()))
		}
	}
}

// Read implements Store.
func (d *Directory) Read(ctx context.Context, file string, read func(io.Reader) error) error {
	f, err := os.Open(filepath.Join(d.path, file))
	if err != nil {
		return err
	}
	defer f.Close()
	return read(limited{ctx: ctx, Reader: f})
}

// List implements Store.
func (d *Directory) List(context.Context) ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("list backups: %w", err)
	}
	var files []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			files = append(files, e.Name())
		}
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
