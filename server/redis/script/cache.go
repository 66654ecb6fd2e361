package script

import (
	"slices"
	"sync"
)

const (
	// maxCached bounds the scripts of a Cache.
	maxCached = 1024
	// maxOwn bounds those of one owner, so that a flood of scripts does not displace those of others.
	maxOwn = 64
)

// Cache has the recognised scripts that each identity has loaded, by the SHA-1 of their sources, for EVALSHA. It is safe
// for concurrent use.
type Cache struct {
	mu    sync.Mutex
	known map[loaded]*Script // guarded by mu
	order []loaded           // oldest first; guarded by mu
}

// loaded is a script that an owner has loaded.
type loaded struct{ owner, sha1 string }

// NewCache returns an empty Cache.
func NewCache() *Cache { return &Cache{known: map[loaded]*Script{}} }

// Find returns the script of an owner with a SHA-1 in lower-case hex digits, or nil.
func (c *Cache) Find(owner, sha1 string) *Script {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[loaded{owner, sha1}]
}

// Add remembers a script of an owner, instead of the oldest one if there are too many. sha1 is that of its source.
func (c *Cache) Add(owner, sha1 string, known *Script) {
	one := loaded{owner, sha1}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[one] != nil {
		return
	}
	own := 0
	for _, other := range c.order {
		if other.owner == one.owner {
			own++
		}
	}
	switch {
	case own == maxOwn:
		c.forget(slices.IndexFunc(c.order, func(other loaded) bool { return other.owner == one.owner }))
	case len(c.order) == maxCached:
		c.forget(0)
	}
	c.known[one] = known
	c.order = append(c.order, one)
}

// forget forgets the script at a place of the order. Called with mu held.
func (c *Cache) forget(i int) {
	delete(c.known, c.order[i])
	c.order = slices.Delete(c.order, i, i+1)
}

// Flush forgets all scripts of an owner.
func (c *Cache) Flush(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.order) - 1; i >= 0; i-- {
		if c.order[i].owner == owner {
			c.forget(i)
		}
	}
}
