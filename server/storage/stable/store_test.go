package stable

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/quorumlock/quorumlock/server/storage/segment"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // a second Close of a closed store does nothing
	return s
}

func set(t *testing.T, s *Store, key, value string) {
	t.Helper()
	if err := s.Set([]byte(key), []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func closed(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// filled returns a directory with a closed store that has a large and several small values.
func filled(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	s := open(t, dir)
	set(t, s, "members", string(bytes.Repeat([]byte("member "), 200)))
	if err := s.SetUint64([]byte("CurrentTerm"), 7); err != nil {
		t.Fatal(err)
	}
	set(t, s, "LastVoteCand", "n1")
	set(t, s, "LastVoteCand", "n2")
	closed(t, s)
	return dir
}

func TestValuesSurviveReopening(t *testing.T) {
	s := open(t, filled(t))
	if term, err := s.GetUint64([]byte("CurrentTerm")); err != nil || term != 7 {
		t.Errorf("term %d, %v", term, err)
	}
	if vote, err := s.Get([]byte("LastVoteCand")); err != nil || string(vote) != "n2" {
		t.Errorf("vote %q, %v", vote, err)
	}
	if _, err := s.Get([]byte("nothing")); !errors.Is(err, raftboltdb.ErrKeyNotFound) || err.Error() != "not found" {
		t.Errorf("a key without a value: %v", err)
	}
	if _, err := s.GetUint64([]byte("LastVoteCand")); !errors.Is(err, segment.ErrDamaged) {
		t.Errorf("a number of two bytes: %v", err)
	}
}

// TestValuesBelongToTheStore changes what was passed to Set and returned by Get.
func TestValuesBelongToTheStore(t *testing.T) {
	s := open(t, t.TempDir())
	value := []byte("first")
	if err := s.Set([]byte("key"), value); err != nil {
		t.Fatal(err)
	}
	value[0] = 'x'
	got, _ := s.Get([]byte("key"))
	got[1] = 'x'
	if got, err := s.Get([]byte("key")); string(got) != "first" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestRead(t *testing.T) {
	if values, err := Read(t.TempDir()); len(values) != 0 || err != nil {
		t.Errorf("an empty directory: %q, %v", values, err)
	}
	dir := filled(t)
	values, err := Read(dir)
	if err != nil || len(values) != 3 || string(values["LastVoteCand"]) != "n2" {
		t.Errorf("%d values, %v", len(values), err)
	}
	s := open(t, dir)
	if _, err := Read(dir); !errors.Is(err, ErrInUse) {
		t.Errorf("read while it is open: %v", err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	closed(t, s)
	if _, err := Read(dir); err != nil {
		t.Error(err)
	}
}

// TestAttachedValues checks that each write, and each Flush, also stores the attached values.
func TestAttachedValues(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	position := "1"
	s.Attach("position", func() []byte { return []byte(position) })
	set(t, s, "key", "value")
	position = "2"
	if got, _ := s.Get([]byte("position")); string(got) != "1" {
		t.Errorf("stored with the last write: %q", got)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	values, err := Read(dir)
	if err != nil || string(values["position"]) != "2" || string(values["key"]) != "value" {
		t.Errorf("%q, %v", values, err)
	}
}

// TestMissingParts removes each file and each bucket.
func TestMissingParts(t *testing.T) {
	without := func(names ...string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			for _, name := range names {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	inBolt := func(change func(tx *bbolt.Tx) error) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			db, err := bbolt.Open(filepath.Join(dir, File), fileMode, nil)
			if err == nil {
				err = errors.Join(db.Update(change), db.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, remove := range map[string]func(*testing.T, string){
		"bolt's file":         without(File),
		"the generation":      without(GenerationFile),
		"bolt's content":      func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, File)) },
		"the bucket":          inBolt(func(tx *bbolt.Tx) error { return tx.DeleteBucket(confBucket) }),
		"the bucket for logs": inBolt(func(tx *bbolt.Tx) error { return tx.DeleteBucket(logsBucket) }),
		"the record":          inBolt(func(tx *bbolt.Tx) error { return tx.Bucket(confBucket).Delete(recordKey) }),
	} {
		t.Run(name, func(t *testing.T) {
			dir := filled(t)
			remove(t, dir)
			damaged(t, dir)
			damaged(t, dir) // the first attempt has repaired nothing
		})
	}
	dir := filled(t)
	without(File, GenerationFile)(t, dir)
	if values, err := Read(dir); len(values) != 0 || err != nil {
		t.Errorf("without both files the store is new: %q, %v", values, err)
	}
}

func truncate(t *testing.T, path string) {
	t.Helper()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
}

func damaged(t *testing.T, dir string) {
	t.Helper()
	if s, err := Open(dir); !errors.Is(err, segment.ErrDamaged) {
		t.Errorf("opened: %v", err)
		if err == nil {
			closed(t, s)
		}
	}
	if _, err := Read(dir); !errors.Is(err, segment.ErrDamaged) {
		t.Errorf("read: %v", err)
	}
}

// TestInterruptedWrites ends the process after each step of the first and of a later write.
func TestInterruptedWrites(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	var generations [][]byte
	for _, value := range []string{"1", "2", "3"} {
		generations = append(generations, content(t, dir, GenerationFile))
		set(t, s, "key", value)
	}
	closed(t, s)
	put(t, dir, GenerationFile, generations[2]) // the record was written, its generation was not
	s = open(t, dir)
	if value, err := s.Get([]byte("key")); string(value) != "3" {
		t.Errorf("%q, %v", value, err)
	}
	closed(t, s)
	if number, _, err := readGeneration(filepath.Join(dir, GenerationFile)); number != 3 || err != nil {
		t.Errorf("the write was not completed: generation %d, %v", number, err)
	}
	for _, older := range generations[:2] {
		put(t, dir, GenerationFile, older)
		damaged(t, dir)
	}
}

// TestInterruptedCreation ends the process after each step of Open.
func TestInterruptedCreation(t *testing.T) {
	created := t.TempDir()
	closed(t, open(t, created))
	generation, bolt := content(t, created, GenerationFile), content(t, created, File)
	for name, files := range map[string]map[string][]byte{
		"generation":               {GenerationFile: generation},
		"empty file":               {GenerationFile: generation, File: nil},
		"file without content":     {GenerationFile: generation, File: make([]byte, len(bolt))},
		"file with one page":       {GenerationFile: generation, File: bolt[:os.Getpagesize()]},
		"file with neither record": {GenerationFile: generation, File: bolt},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, data := range files {
				put(t, dir, name, data)
			}
			s := open(t, dir)
			set(t, s, "key", "value")
			closed(t, s)
			if values, err := Read(dir); string(values["key"]) != "value" {
				t.Errorf("%q, %v", values, err)
			}
		})
	}
}

// TestNothingIsWrittenAfterAFailure closes a file under the store.
func TestNothingIsWrittenAfterAFailure(t *testing.T) {
	for name, fail := range map[string]func(*Store) error{
		"bolt":       func(s *Store) error { return s.bolt.Close() },
		"generation": func(s *Store) error { return s.generation.close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			set(t, s, "key", "before")
			if err := fail(s); err != nil {
				t.Fatal(err)
			}
			if err := s.Set([]byte("key"), []byte("after")); err == nil || errors.Is(err, errFailed) {
				t.Errorf("the write that fails: %v", err)
			}
			if err := s.Flush(); !errors.Is(err, errFailed) {
				t.Errorf("the write after it: %v", err)
			}
			if value, _ := s.Get([]byte("key")); string(value) != "before" {
				t.Errorf("the value is %q", value)
			}
		})
	}
}

// TestOlderTransactionIsNoticed damages the newer of bolt's first two pages. Bolt then continues with the
// transaction before the last one.
func TestOlderTransactionIsNoticed(t *testing.T) {
	dir := filled(t)
	intact := content(t, dir, File)
	for page := range 2 {
		data := bytes.Clone(intact)
		data[page*os.Getpagesize()+40] ^= 1
		put(t, dir, File, data)
		_, err := Read(dir)
		if err != nil && !errors.Is(err, segment.ErrDamaged) {
			t.Error(err)
		}
		if err == nil {
			continue // the older one
		}
		damaged(t, dir)
		return
	}
	t.Error("neither page has the last transaction")
}

func content(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func put(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, fileMode); err != nil {
		t.Fatal(err)
	}
}

// TestFlippedBits flips a bit in each byte that is not zero, one at a time. Each is noticed, or makes no
// difference.
func TestFlippedBits(t *testing.T) {
	dir := filled(t)
	want, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	noticed := 0
	for _, name := range []string{File, GenerationFile} {
		intact := content(t, dir, name)
		for at := range intact {
			if intact[at] == 0 && at%61 != 0 {
				continue
			}
			data := bytes.Clone(intact)
			data[at] ^= 1 << (at % 8)
			put(t, dir, name, data)
			got, err := Read(dir)
			switch {
			case errors.Is(err, segment.ErrDamaged):
				noticed++
			case err != nil:
				t.Errorf("byte %d of %s: %v", at, name, err)
			case !maps.EqualFunc(got, want, bytes.Equal):
				t.Errorf("byte %d of %s: the values changed", at, name)
			}
		}
		put(t, dir, name, intact)
	}
	if noticed < 1400 {
		t.Errorf("only %d flipped bits were noticed", noticed)
	}
}
