package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// CopyOf is the state of a node while its data directory is copied.
type CopyOf int

// States of a node during a copy.
const (
	// Ended means that the node's process has ended.
	Ended CopyOf = iota
	// Frozen copies all files as of one moment, like a volume snapshot.
	Frozen
	// Live copies one file after the other while the node writes, like a backup tool.
	Live
)

// Copy copies the data directory of a node to a new directory, which it returns.
func (c *Cluster) Copy(id string, of CopyOf) (dir string) {
	c.t.Helper()
	n := c.node(id)
	if of == Ended && n.alive() {
		c.t.Fatalf("%s runs still", id)
	}
	dir, err := os.MkdirTemp(c.opts.Dir, id+".copy-")
	if err != nil {
		c.t.Fatal(err)
	}
	if of == Frozen {
		c.Freeze(id)
	}
	err = copyTree(n.dir, dir)
	if of == Frozen {
		c.Continue(id)
	}
	if err != nil {
		c.t.Fatalf("copy the data of %s: %v", id, err)
	}
	return dir
}

// frozen returns an error unless every thread of a process has stopped. One may still be in a write.
func frozen(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return fmt.Errorf("process %d has no threads: %v", pid, err)
	}
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		// The state follows the name, which may contain any character.
		if _, state, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " "); !strings.HasPrefix(state, "T") {
			return fmt.Errorf("%s: state %.1s", path, state)
		}
	}
	return nil
}

// PutBack replaces the data directory of a node whose process has ended by a copy. The copy is kept.
func (c *Cluster) PutBack(id, dir string) {
	c.t.Helper()
	c.Wipe(id)
	if err := copyTree(dir, c.node(id).dir); err != nil {
		c.t.Fatalf("put a copy back: %v", err)
	}
}

// Drop removes a copy.
func (c *Cluster) Drop(dir string) {
	c.t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		c.t.Fatal(err)
	}
}

// copyTree copies a directory as cp -a does. It skips files that are removed in the meantime.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = copyOne(path, filepath.Join(to, path[len(from):]), entry)
		}
		if errors.Is(err, fs.ErrNotExist) && path != from {
			return nil
		}
		return err
	})
}

func copyOne(from, to string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	if entry.IsDir() {
		if err := os.MkdirAll(to, info.Mode().Perm()); err != nil {
			return err
		}
		return os.Chmod(to, info.Mode().Perm())
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
