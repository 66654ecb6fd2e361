package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var errDisk = errors.New("input/output error")

// text returns functions that write a text and check it.
func text(s string) (write func(io.Writer) error, check func(io.Reader) error) {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }, Equals(sha256.Sum256([]byte(s)))
}

func put(t *testing.T, s Store, file, content string) {
	t.Helper()
	write, check := text(content)
	if err := s.Put(t.Context(), file, write, check); err != nil {
		t.Fatal(err)
	}
}

// content returns the content of a stored file.
func content(t *testing.T, s Store, file string) string {
	t.Helper()
	var b bytes.Buffer
	if err := s.Read(t.Context(), file, func(r io.Reader) error { _, err := b.ReadFrom(r); return err }); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func listed(t *testing.T, s Store) []string {
	t.Helper()
	files, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	return names
}

// named returns the name of a backup of that day.
func named(day int) string {
	return Name{"c1", time.Date(2026, 11, day, 2, 30, 0, 0, time.UTC), uint64(day), 0}.String()
}

// TestNames verifies that names are parsed as they are written, and that nothing else is taken for a backup.
func TestNames(t *testing.T) {
	for _, n := range []Name{
		{"c1", time.Date(2026, 11, 26, 8, 0, 5, 0, time.UTC), 0, 0},
		{"prod-eu-20261126T080005Z-r7", time.Date(2026, 11, 26, 8, 0, 5, 0, time.UTC), 1<<64 - 1, 2},
		{"../a b/ü", time.Date(2026, 11, 26, 8, 0, 5, 0, time.UTC), 7, 99},
	} {
		file := n.String()
		if got, ok := ParseName(file); !ok || got != n || strings.Contains(file, "/") {
			t.Errorf("%v becomes %q, which is %v, %v", n, file, got, ok)
		}
	}
	for _, file := range []string{
		"", "quorumlock.snap", "quorumlock-c1-20261126T080005Z-r7.snap.tmp", "quorumlock-c1-20261126T080005Z-r07.snap",
		"quorumlock-c1-20261126T080005Z-r7-1.snap", "quorumlock-c1-20261126T080005Z-r7-02.snap", "quorumlock-c1-20261126T080005Z-r7-100.snap",
		"quorumlock-c1-20261326T080005Z-r7.snap", "quorumlock-c1-20261126T080005Z-r18446744073709551616.snap",
		"xquorumlock-c1-20261126T080005Z-r7.snap", "quorumlock-%41-20261126T080005Z-r7.snap", "quorumlock--20261126T080005Z-r7.snap",
		"quorumlock-c/1-20261126T080005Z-r7.snap", "quorumlock-%zz-20261126T080005Z-r7.snap",
	} {
		if got, ok := ParseName(file); ok {
			t.Errorf("%q is taken for %v", file, got)
		}
	}
}

// TestDirectory verifies what a directory keeps, and with which permissions.
func TestDirectory(t *testing.T) {
	path := t.TempDir()
	d, err := OpenDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, d, named(1), "one")
	put(t, d, named(2), "two")
	write, check := text("two again")
	if err := d.Put(t.Context(), named(2), write, check); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second file of that name: %v", err)
	}
	if err := os.Mkdir(filepath.Join(path, named(3)), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, d); fmt.Sprint(got) != fmt.Sprint([]string{named(1), named(2), named(3)}) || content(t, d, named(2)) != "two" {
		t.Errorf("it has %v", got)
	}
	info, err := os.Stat(filepath.Join(path, named(1)))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for range 2 {
		if err := d.Remove(t.Context(), named(1)); err != nil {
			t.Error(err)
		}
	}
	if got := listed(t, d); len(got) != 2 {
		t.Errorf("it still has %v", got)
	}
	if _, err := OpenDirectory(filepath.Join(path, "nowhere")); err == nil {
		t.Error("a directory that does not exist was opened")
	}
	if left, err := filepath.Glob(filepath.Join(path, ".*")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestFailedPutLeavesNothing verifies that a backup that is not written, differs when it is read, or is given up does
// not appear.
func TestFailedPutLeavesNothing(t *testing.T) {
	path := t.TempDir()
	d, err := OpenDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	write, check := text("another")
	ended, end := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		ctx   context.Context
		write func(io.Writer) error
		check func(io.Reader) error
		want  error
	}{
		"a failing write": {t.Context(), func(w io.Writer) error { return errors.Join(write(w), errDisk) }, check, errDisk},
		"other bytes":     {t.Context(), func(w io.Writer) error { return errors.Join(write(w), write(w)) }, check, ErrDamaged},
		"half of them":    {t.Context(), func(w io.Writer) error { _, err := io.WriteString(w, "ano"); return err }, check, ErrDamaged},
		"a lost leadership": {ended, write, func(r io.Reader) error {
			defer end()
			return check(r)
		}, context.Canceled},
		"lost before": {ended, write, check, context.Canceled},
	} {
		if name == "lost before" {
			end()
		}
		if err := d.Put(c.ctx, named(1), c.write, c.check); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if entries, err := os.ReadDir(path); err != nil || len(entries) > 0 {
			t.Errorf("%s: the directory has %v, %v", name, entries, err)
		}
	}
}

// TestLeftTemporariesAreRemoved verifies that what a crash has left is removed by the next call, and neither what another
// node is writing nor anything else.
func TestLeftTemporariesAreRemoved(t *testing.T) {
	path := t.TempDir()
	d, err := OpenDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	kept := []string{"notes.tmp", "quorumlock.tmp", named(4) + ".5" + temporary, named(5) + temporary}
	for _, file := range append([]string{named(1) + temporary, named(2) + ".77" + temporary}, kept[:3]...) {
		if err := os.WriteFile(filepath.Join(path, file), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("notes.tmp", filepath.Join(path, kept[3])); err != nil {
		t.Fatal(err)
	}
	writing, err := os.Open(filepath.Join(path, kept[2]))
	if err != nil {
		t.Fatal(err)
	}
	defer writing.Close()
	if err := unix.Flock(int(writing.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	put(t, d, named(2), "two")
	var left []string
	entries, err := os.ReadDir(path)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := slices.Sorted(slices.Values(append(kept, named(2)))); !slices.Equal(left, want) || err != nil {
		t.Errorf("the directory has %v, want %v", left, want)
	}
}

// TestNothingIsReplacedOrFollowed verifies that Put replaces nothing that has its file's name, whatever it is and whenever
// it appears, that neither Read nor List opens it, and that no call waits for a pipe.
func TestNothingIsReplacedOrFollowed(t *testing.T) {
	for what, plant := range map[string]func(path string) error{
		"a file":        func(path string) error { return os.WriteFile(path, []byte("theirs"), 0o600) },
		"a directory":   func(path string) error { return os.Mkdir(path, 0o700) },
		"a pipe":        func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a link":        func(path string) error { return os.Symlink(filepath.Join(filepath.Dir(path), "target"), path) },
		"a broken link": func(path string) error { return os.Symlink("nowhere", path) },
	} {
		for _, late := range []bool{false, true} {
			dir := t.TempDir()
			d, err := OpenDirectory(dir)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, named(1))
			if err := os.WriteFile(filepath.Join(dir, "target"), []byte("theirs"), 0o600); err != nil {
				t.Fatal(err)
			}
			write, check := text("ours")
			planted := func() {
				if err := plant(path); err != nil {
					t.Fatal(err)
				}
			}
			if !late {
				planted()
			}
			err = d.Put(t.Context(), named(1), write, func(r io.Reader) error {
				if late {
					planted()
				}
				return check(r)
			})
			info, failed := os.Lstat(path)
			if !errors.Is(err, fs.ErrExist) || failed != nil {
				t.Errorf("%s, late %v: %v, %v", what, late, err, failed)
				continue
			}
			files, err := d.List(t.Context())
			if err != nil || len(files) != 1 || (files[0].Odd == "") != info.Mode().IsRegular() {
				t.Errorf("%s: listed as %v, %v", what, files, err)
			}
			err = d.Read(t.Context(), named(1), func(r io.Reader) error { _, err := io.ReadAll(r); return err })
			if (err == nil) != info.Mode().IsRegular() {
				t.Errorf("%s: read with %v", what, err)
			}
			if data, err := os.ReadFile(filepath.Join(dir, "target")); err != nil || string(data) != "theirs" {
				t.Errorf("%s: the target of the link has %q, %v", what, data, err)
			}
		}
	}
}

// TestTagsChangeWithTheContent verifies that a file that was replaced or rewritten has another tag.
func TestTagsChangeWithTheContent(t *testing.T) {
	path := t.TempDir()
	d, err := OpenDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, d, named(1), "one")
	tag := func() string {
		files, err := d.List(t.Context())
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		return files[0].Tag
	}
	first := tag()
	if again := tag(); again != first {
		t.Errorf("%q, then %q", first, again)
	}
	old := time.Unix(1, 0)
	for range 2 {
		if err := os.WriteFile(filepath.Join(path, named(1)), []byte("two"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(path, named(1)), old, old); err != nil {
			t.Fatal(err)
		}
		if second := tag(); second == first {
			t.Error("rewritten, it has the same tag")
		} else {
			first = second
		}
	}
}
