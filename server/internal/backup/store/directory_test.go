package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
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
	slices.Sort(files)
	return files
}

// named returns the name of a backup of that day.
func named(day int) string {
	return Name{"c1", time.Date(2026, 11, day, 2, 30, 0, 0, time.UTC), uint64(day)}.String()
}

// TestNames verifies that names are parsed as they are written, and that nothing else is taken for a backup.
func TestNames(t *testing.T) {
	for _, n := range []Name{
		{"c1", time.Date(2026, 11, 26, 8, 0, 5, 0, time.UTC), 0},
		{"prod-eu-20261126T080005Z-r7", time.Date(2026, 11, 26, 8, 0, 5, 0, time.UTC), 1<<64 - 1},
		{"../a b/ü", time.Date(2026, 11, 26, 8, 0, 5, 0, time.UTC), 7},
	} {
		file := n.String()
		if got, ok := ParseName(file); !ok || got != n || strings.Contains(file, "/") {
			t.Errorf("%v becomes %q, which is %v, %v", n, file, got, ok)
		}
	}
	for _, file := range []string{
		"", "quorumlock.snap", "quorumlock-c1-20261126T080005Z-r7.snap.tmp", "quorumlock-c1-20261126T080005Z-r07.snap",
		"quorumlock-c1-20261326T080005Z-r7.snap", "quorumlock-c1-20261126T080005Z-r18446744073709551616.snap",
		"xquorumlock-c1-20261126T080005Z-r7.snap", "quorumlock-%41-20261126T080005Z-r7.snap", "quorumlock--20261126T080005Z-r7.snap",
		"quorumlock-c/1-20261126T080005Z-r7.snap", "quorumlock-%zz-20261126T080005Z-r7.snap",
	} {
		if got, ok := ParseName(file); ok {
			t.Errorf("%q is taken for %v", file, got)
		}
	}
}

// TestSuperfluous verifies which backups are removed: the oldest of that cluster, and never the last good one.
func TestSuperfluous(t *testing.T) {
	other := Name{"c2", time.Unix(0, 0), 1}.String()
	again := Name{"c1", time.Date(2026, 11, 3, 2, 30, 0, 0, time.UTC), 10}.String()
	files := []string{named(4), other, named(1), "notes.txt", named(2) + temporary, named(3), again, named(2)}
	for name, c := range map[string]struct {
		keep int
		last string
		want []string
	}{
		"all":                    {0, named(1), nil},
		"more than there are":    {9, named(1), nil},
		"as many as there are":   {5, named(1), nil},
		"the newest three":       {3, named(4), []string{named(2), named(1)}},
		"by the revision":        {2, named(4), []string{named(3), named(2), named(1)}},
		"an old one is the last": {1, named(2), []string{again, named(3), named(1)}},
		"no last one":            {1, "", []string{again, named(3), named(2), named(1)}},
	} {
		if got := Superfluous(files, "c1", c.keep, c.last); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
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
	put(t, d, named(2), "two again")
	if err := os.Mkdir(filepath.Join(path, named(3)), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, d); fmt.Sprint(got) != fmt.Sprint([]string{named(1), named(2)}) || content(t, d, named(2)) != "two again" {
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
	if got := listed(t, d); len(got) != 1 {
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
// not appear, and that the earlier file of that name remains.
func TestFailedPutLeavesNothing(t *testing.T) {
	path := t.TempDir()
	d, err := OpenDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, d, named(1), "one")
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
		if got := listed(t, d); len(got) != 1 || content(t, d, named(1)) != "one" {
			t.Errorf("%s: the directory has %v", name, got)
		}
	}
}

// TestLeftTemporariesAreRemoved verifies that what a crash has left is removed by the next call, and nothing else.
func TestLeftTemporariesAreRemoved(t *testing.T) {
	path := t.TempDir()
	d, err := OpenDirectory(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{named(1) + temporary, named(2) + temporary, "notes.tmp", "quorumlock.tmp"} {
		if err := os.WriteFile(filepath.Join(path, file), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(t, d, named(2), "two")
	if got := listed(t, d); fmt.Sprint(got) != fmt.Sprint([]string{"notes.tmp", named(2), "quorumlock.tmp"}) {
		t.Errorf("the directory has %v", got)
	}
}
