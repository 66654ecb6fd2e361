package replica

import (
	"slices"

	"github.com/hashicorp/raft"
)

// cachedLogs bounds raft's cache of entries; each may have maxEntryBytes.
const cachedLogs = 128

// cache keeps the last entries in memory, for followers. It keeps copies: the leader's
// entries are parts of raft's futures, which hold what became of them, several times
// the entry itself.
type cache struct{ *raft.LogCache }

func newCache(store raft.LogStore) (*cache, error) {
	c, err := raft.NewLogCache(cachedLogs, store)
	return &cache{c}, err
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
	return c.LogCache.StoreLogs(copies)
}
