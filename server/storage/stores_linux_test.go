package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/quorumlock/quorumlock/server/storage/stable"
)

// unwritten returns the number of pages of a file that the kernel has and the disk has not.
func unwritten(t *testing.T, name string) uint64 {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var pages unix.Cachestat_t
	err = unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &pages, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("this kernel does not tell which pages are written")
	}
	if err != nil {
		t.Fatal(err)
	}
	return pages.Dirty + pages.Writeback
}

func segmentsIn(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, segmentDir, "*"))
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	return found
}

// TestLogIsSynced verifies that what StoreLogs, Set and SetUint64 have written is on the disk when they
// return. A second store without syncs shows that the kernel would report unwritten pages.
func TestLogIsSynced(t *testing.T) {
	dir := t.TempDir()
	careless, err := bbolt.Open(filepath.Join(dir, "careless.db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer careless.Close()
	o := options(dir)
	o.SegmentBytes = 0 // the default: a full file would be truncated, and that need not be synced
	s := reopen(t, o)
	defer s.Close()
	for i := range uint64(20) {
		entry := []*raft.Log{{Index: i + 1, Term: 1, Data: make([]byte, 5000)}}
		if err := careless.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("entries"))
			if err != nil {
				return err
			}
			return b.Put(fmt.Append(nil, i), entry[0].Data)
		}); err != nil {
			t.Fatal(err)
		}
		if unwritten(t, filepath.Join(dir, "careless.db")) == 0 {
			t.Skip("this file system writes everything at once")
		}
		for what, write := range map[string]func() error{
			"an entry": func() error { return s.Log.StoreLogs(entry) },
			"a vote":   func() error { return s.Votes.Set([]byte(lastVoteCandidate), []byte("n2")) },
			"a term":   func() error { return s.Votes.SetUint64([]byte(currentTerm), i) },
		} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
			files := append(segmentsIn(t, dir), filepath.Join(dir, stable.File), filepath.Join(dir, stable.GenerationFile))
			for _, path := range files {
				if n := unwritten(t, path); n != 0 {
					t.Fatalf("%d: %s was acknowledged before %d pages of %s were on the disk", i, what, n, path)
				}
			}
		}
	}
}
