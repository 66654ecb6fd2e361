package storage

import (
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// Bounds of the cache. Entries for a follower that is further behind are read from the disk.
const (
	cachedLogs  = 128
	cachedBytes = 256 << 10
)

// cache keeps the last entries in memory, for followers that are slightly behind: as many as fit, and always
// the last one. It keeps copies, because the leader's entries are part of raft's futures, which also hold the
// responses, several times the size of the entry.
//
// Raft's own cache counts only entries, and one entry can be as large as thousands of others.
type cache struct {
	raft.LogStore

	mu    sync.RWMutex // guards the fields below
	ring  [cachedLogs]*raft.Log
	first uint64 // the ring has entries first to last; 0 if it is empty
	last  uint64
	bytes int // total size of their data
}

func newCache(store raft.LogStore) *cache { return &cache{LogStore: store} }

// GetLog implements raft.LogStore.
func (c *cache) GetLog(index uint64, to *raft.Log) error {
	c.mu.RLock()
	cached := c.ring[index%cachedLogs]
	c.mu.RUnlock()
	if cached != nil && cached.Index == index {
		*to = *cached
		return nil
	}
	return c.LogStore.GetLog(index, to)
}

// StoreLog implements raft.LogStore.
func (c *cache) StoreLog(entry *raft.Log) error { return c.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore.
func (c *cache) StoreLogs(entries []*raft.Log) error {
	copies := slices.Clone(entries)
	for i, entry := range entries {
		own := *entry
		copies[i] = &own
	}
	if err := c.LogStore.StoreLogs(copies); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, entry := range copies {
		c.keep(entry)
	}
	return nil
}

// DeleteRange implements raft.LogStore. It empties the cache: raft deletes old entries, or those that another
// leader has replaced.
func (c *cache) DeleteRange(first, last uint64) error {
	c.mu.Lock()
	c.forget()
	c.mu.Unlock()
	return c.LogStore.DeleteRange(first, last)
}

// IsMonotonic reports whether the log rejects gaps.
func (c *cache) IsMonotonic() bool {
	store, ok := c.LogStore.(raft.MonotonicLogStore)
	return ok && store.IsMonotonic()
}

// keep adds an entry to the cache and drops old ones to make room.
func (c *cache) keep(entry *raft.Log) {
	if c.first == 0 || entry.Index != c.last+1 {
		c.forget() // the cache was empty, or there is a gap after a snapshot from another node
		c.first = entry.Index
	}
	c.last = entry.Index
	for c.first < c.last && (c.last-c.first >= cachedLogs || c.bytes+len(entry.Data) > cachedBytes) {
		c.drop(c.first)
		c.first++
	}
	c.ring[entry.Index%cachedLogs] = entry
	c.bytes += len(entry.Data)
}

func (c *cache) drop(index uint64) {
	at := &c.ring[index%cachedLogs]
	c.bytes -= len((*at).Data)
	*at = nil
}

func (c *cache) forget() {
	clear(c.ring[:])
	c.first, c.last, c.bytes = 0, 0, 0
}
