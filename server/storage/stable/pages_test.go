package stable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/quorumlock/quorumlock/server/storage/segment"
)

// TestWritesToDamagedFiles flips a bit in each of the first bytes of each page, where bolt's own data is, and then
// writes. Either the file is refused, or the write fails, or all values are there afterwards.
func TestWritesToDamagedFiles(t *testing.T) {
	dir := filled(t)
	want, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	restore, intact := snapshotOf(t, dir), content(t, dir, File)
	results := map[string]int{}
	for at := range intact {
		if at%os.Getpagesize() >= 72 {
			continue
		}
		data := bytes.Clone(intact)
		data[at] ^= 1 << (at % 8)
		restore(data)
		result, err := writeTo(dir, want)
		if err != nil {
			t.Errorf("byte %d: %v", at, err)
		}
		results[result]++
	}
	if results["refused"] < 150 || results["failed"] > 20 {
		t.Errorf("results: %v", results)
	}
}

// TestUsedPageListedAsFree replaces a free page in the list by each page of the file, and then writes.
func TestUsedPageListedAsFree(t *testing.T) {
	dir := filled(t)
	want, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	restore, intact := snapshotOf(t, dir), content(t, dir, File)
	refused := 0
	for page := 2 * os.Getpagesize(); page < len(intact); page += os.Getpagesize() {
		if intact[page+8] != freelistFlag {
			continue
		}
		for id := 2; id < len(intact)/os.Getpagesize(); id++ {
			data := bytes.Clone(intact)
			binary.LittleEndian.PutUint64(data[page+16:], uint64(id))
			restore(data)
			result, err := writeTo(dir, want)
			if err != nil || result == "failed" {
				t.Errorf("page %d is free according to page %d: %s, %v", id, page/os.Getpagesize(), result, err)
			}
			if result == "refused" {
				refused++
			}
		}
	}
	if refused < 3 { // the root, the bucket and the list itself are in use
		t.Errorf("only %d of the files were refused", refused)
	}
}

// freelistFlag is the type of a page that lists free pages.
const freelistFlag = 0x10

// snapshotOf returns a function that replaces bolt's file in a directory and restores the generation.
func snapshotOf(t *testing.T, dir string) (restore func(data []byte)) {
	t.Helper()
	generation := content(t, dir, GenerationFile)
	return func(data []byte) {
		t.Helper()
		if err := os.Remove(filepath.Join(dir, File)); err != nil {
			t.Fatal(err)
		}
		put(t, dir, File, data)
		put(t, dir, GenerationFile, generation)
	}
}

// writeTo opens a store, writes, and checks that all values are there.
func writeTo(dir string, want map[string][]byte) (result string, err error) {
	s, err := Open(dir)
	if errors.Is(err, segment.ErrDamaged) {
		return "refused", nil
	}
	if err != nil {
		return "", err
	}
	want = maps.Clone(want)
	for _, value := range []string{"n3", "n4", "n5"} {
		want["LastVoteCand"] = []byte(value)
		if err := s.Set([]byte("LastVoteCand"), []byte(value)); err != nil {
			return "failed", s.Close()
		}
	}
	if err := s.Close(); err != nil {
		return "", err
	}
	found, err := Read(dir)
	if err == nil && !maps.EqualFunc(found, want, bytes.Equal) {
		err = errors.New("the values changed")
	}
	return "written", err
}

// TestPagesThatWritesWouldHurt damages the list of free pages so that bolt still reads the record.
func TestPagesThatWritesWouldHurt(t *testing.T) {
	dir := filled(t)
	intact, noticed := content(t, dir, File), map[string]bool{}
	for page := 2 * os.Getpagesize(); page < len(intact); page += os.Getpagesize() {
		if flags := intact[page+8]; flags != freelistFlag { // not a list of free pages
			continue
		}
		for what, at := range map[string]int{"the number of its pages": page + 15, "the first free page": page + 16 + 5} {
			data := bytes.Clone(intact)
			data[at] ^= 1
			put(t, dir, File, data)
			if _, err := Read(dir); errors.Is(err, segment.ErrDamaged) {
				noticed[what] = true
			} else if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	if len(noticed) != 2 {
		t.Errorf("noticed: %v", noticed)
	}
}
