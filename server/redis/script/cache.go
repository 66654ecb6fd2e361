package script

import "sync"

// maxCached bounds the scripts of a Cache.
const maxCached = 1024

// Cache has the recognised scripts that a node has seen, by the SHA-1 of their sources, for EVALSHA. It is safe for
// concurrent use.
type Cache struct {
	mu     sync.Mutex
	bySHA1 map[string]*Script // guarded by mu
	order  []string           // oldest first; guarded by mu
}

// NewCache returns an empty Cache.
func NewCache() *Cache { return &Cache{bySHA1: map[string]*Script{}} }

// Find returns the script with a SHA-1 in lower-case hex digits, or nil.
func (c *Cache) Find(sha1 string) *Script {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bySHA1[sha1]
}

// Add remembers a script, instead of the oldest one if there are too many. sha1 is that of its source.
func (c *Cache) Add(sha1 string, known *Script) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bySHA1[sha1] != nil {
		return
	}
	if len(c.order) == maxCached {
		delete(c.bySHA1, c.order[0])
		c.order = append(c.order[:0], c.order[1:]...)
	}
	c.bySHA1[sha1] = known
	c.order = append(c.order, sha1)
}

// Flush forgets all scripts.
func (c *Cache) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bySHA1, c.order = map[string]*Script{}, nil
}
