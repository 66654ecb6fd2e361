package storage

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
	"weak"

	"github.com/hashicorp/raft"
)

// cachedFuture is the future that raft creates for an entry on the leader. It contains the entry.
type cachedFuture struct{ log raft.Log }

// TestCacheKeepsNoFutures verifies that an entry's future can be garbage-collected once it was answered.
func TestCacheKeepsNoFutures(t *testing.T) {
	c := newCache(raft.NewInmemStore())
	futures := [2]*cachedFuture{{log: raft.Log{Index: 1, Data: []byte("one")}}, {log: raft.Log{Index: 2, Data: []byte("two")}}}
	first, second := weak.Make(futures[0]), weak.Make(futures[1])
	if err := c.StoreLog(&futures[0].log); err != nil {
		t.Fatal(err)
	}
	if err := c.StoreLogs([]*raft.Log{&futures[1].log}); err != nil {
		t.Fatal(err)
	}
	futures = [2]*cachedFuture{}
	runtime.GC()
	if first.Value() != nil || second.Value() != nil {
		t.Error("the cache keeps what an entry is part of")
	}
	for index, want := range map[uint64]string{1: "one", 2: "two"} {
		var got raft.Log
		if err := c.GetLog(index, &got); err != nil || string(got.Data) != want {
			t.Errorf("entry %d: %q, %v", index, got.Data, err)
		}
	}
}

// missed is a log that counts reads.
type missed struct {
	*raft.InmemStore
	reads int
}

func (m *missed) GetLog(index uint64, to *raft.Log) error {
	m.reads++
	return m.InmemStore.GetLog(index, to)
}

// store appends entries first to last, with data of that size that identifies the index.
func store(t *testing.T, c *cache, first, last uint64, size int) {
	t.Helper()
	for index := first; index <= last; index++ {
		data := bytes.Repeat([]byte{byte(index)}, size)
		if err := c.StoreLog(&raft.Log{Index: index, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
}

// expectCached reads entries first to last. All must be correct, and those from cached on must not be read
// from the store.
func expectCached(t *testing.T, c *cache, first, last, cached uint64) {
	t.Helper()
	under := c.LogStore.(*missed)
	for index := first; index <= last; index++ {
		under.reads = 0
		var got raft.Log
		if err := c.GetLog(index, &got); err != nil || got.Index != index || got.Data[0] != byte(index) {
			t.Errorf("entry %d: %v, index %d, data %d", index, err, got.Index, got.Data[0])
		}
		if hit := under.reads == 0; hit != (index >= cached) {
			t.Errorf("entry %d of %d to %d is cached: %v", index, first, last, hit)
		}
	}
}

// TestCacheIsBounded verifies the limits of entries and of bytes, which do not apply to the last entry.
func TestCacheIsBounded(t *testing.T) {
	newCounted := func() *cache { return newCache(&missed{InmemStore: raft.NewInmemStore()}) }
	t.Run("by number", func(t *testing.T) {
		c := newCounted()
		store(t, c, 1, 3*cachedLogs+5, cachedBytes/200)
		expectCached(t, c, 1, 3*cachedLogs+5, 2*cachedLogs+6)
	})
	t.Run("by bytes", func(t *testing.T) {
		c := newCounted()
		store(t, c, 1, 40, cachedBytes/8)
		expectCached(t, c, 1, 40, 33)
		store(t, c, 41, 41, cachedBytes+1)
		expectCached(t, c, 1, 41, 41)
		store(t, c, 42, 50, 1)
		expectCached(t, c, 1, 50, 42)
	})
	t.Run("replaced", func(t *testing.T) {
		c := newCounted()
		store(t, c, 1, 20, 10)
		if err := c.DeleteRange(15, 20); err != nil {
			t.Fatal(err)
		}
		expectCached(t, c, 1, 14, 15)
		store(t, c, 15, 16, 10)
		expectCached(t, c, 1, 16, 15)
	})
	t.Run("compacted", func(t *testing.T) {
		c := newCounted()
		store(t, c, 1, 8, cachedBytes/8)
		if err := c.DeleteRange(1, 4); err != nil {
			t.Fatal(err)
		}
		store(t, c, 9, 16, cachedBytes/8)
		expectCached(t, c, 5, 16, 9)
	})
	t.Run("behind a gap", func(t *testing.T) {
		c := newCounted()
		store(t, c, 1, 20, 10)
		store(t, c, 30, 40, 10)
		expectCached(t, c, 1, 20, 30)
		expectCached(t, c, 30, 40, 30)
	})
}

// broken is a log whose disk fails. monotonic is what it reports about gaps.
type broken struct {
	*raft.InmemStore
	monotonic bool
}

func (broken) StoreLogs([]*raft.Log) error      { return errBrokenLog }
func (broken) DeleteRange(uint64, uint64) error { return errBrokenLog }
func (b broken) IsMonotonic() bool              { return b.monotonic }

var errBrokenLog = errors.New("input/output error")

// TestCacheOfABrokenLog verifies that the cache returns the disk's errors and caches nothing that was not
// stored.
func TestCacheOfABrokenLog(t *testing.T) {
	c := newCache(broken{InmemStore: raft.NewInmemStore()})
	for what, err := range map[string]error{
		"one entry": c.StoreLog(&raft.Log{Index: 1}), "entries": c.StoreLogs([]*raft.Log{{Index: 1}}), "a deletion": c.DeleteRange(1, 1),
	} {
		if !errors.Is(err, errBrokenLog) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := c.GetLog(1, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("an entry that was not stored: %v", err)
	}
}

// TestCacheRefusesGapsAsItsLog verifies that the cache is monotonic if and only if its log is.
func TestCacheRefusesGapsAsItsLog(t *testing.T) {
	for store, want := range map[raft.LogStore]bool{
		raft.NewInmemStore():                false, // does not implement it
		broken{raft.NewInmemStore(), false}: false,
		broken{raft.NewInmemStore(), true}:  true,
	} {
		if newCache(store).IsMonotonic() != want {
			t.Errorf("%T is monotonic: %v", store, !want)
		}
	}
}
