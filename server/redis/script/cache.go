package script

import (
	"fmt"
	"sync"
)

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

// Load recognises a script and remembers it, instead of the oldest one if there are too many. It returns the errors of
// Recognise, with the SHA-1.
func (c *Cache) Load(source []byte) (sha1 string, known *Script, err error) {
	if len(source) > MaxSource {
		return "", nil, fmt.Errorf("the script has %d bytes: at most %d are allowed", len(source), MaxSource)
	}
	sha1 = SHA1(source)
	if known = c.Find(sha1); known != nil {
		return sha1, known, nil
	}
	if known, err = Recognise(source); err != nil {
		return "", nil, fmt.Errorf("script %s: %w", sha1, err)
	}
	c.add(sha1, known)
	return sha1, known, nil
}

func (c *Cache) add(sha1 string, known *Script) {
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
