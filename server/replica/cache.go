package replica

import (
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// Bounds of the cache. A follower that is further behind is sent what the disk has.
const (
	cachedLogs  = 128
	cachedBytes = 256 << 10
)

// cache keeps the last entries in memory, for followers that are a moment behind: as many as
// there is room for, the last one always. It keeps copies: the leader's entries are parts of
// raft's futures, which hold what became of them, several times the entry itself.
//
// Raft's own cache counts entries only, and one entry may be as large as thousands.
type cache struct {
	raft.LogStore

	mu    sync.RWMutex // guards what follows
	ring  [cachedLogs]*raft.Log
	first uint64 // first to last are in the ring; 0 if nothing is
	last  uint64
	bytes int // of their data
}

func newCache(store raft.LogStore) *cache { return &cache{LogStore: store} }

// GetLog reads one entry.
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

// StoreLog stores one entry.
func (c *cache) StoreLog(entry *raft.Log) error { return c.StoreLogs([]*raft.Log{entry}) }

// StoreLogs stores entries.
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

// DeleteRange deletes entries, both included. What is cached is forgotten: raft deletes what
// is old, or what another leader has replaced.
func (c *cache) DeleteRange(first, last uint64) error {
	c.mu.Lock()
	c.forget()
	c.mu.Unlock()
	return c.LogStore.DeleteRange(first, last)
}

// IsMonotonic says whether the log refuses gaps.
func (c *cache) IsMonotonic() bool {
	store, ok := c.LogStore.(raft.MonotonicLogStore)
	return ok && store.IsMonotonic()
}

// keep caches one more entry, and fewer of the old ones.
func (c *cache) keep(entry *raft.Log) {
	if c.first == 0 || entry.Index != c.last+1 {
		c.forget() // there was nothing, or there is a gap behind another node's snapshot
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
