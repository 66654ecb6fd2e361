package fence

import (
	"errors"
	"fmt"
	"math"
	"sync"
)

var (
	// ErrStaleToken is returned when a later holder has been here: the caller does not
	// hold the lock any more, whatever it believes, and must not go on.
	ErrStaleToken = errors.New("quorumlock: stale fencing token")
	// ErrInvalidToken is returned for a number that no grant carries: 0, or one of more
	// than 63 bits.
	ErrInvalidToken = errors.New("quorumlock: not a fencing token")
)

// Guard remembers the highest token seen of each resource and refuses lower ones. Equal
// ones pass: a holder may come any number of times. The zero Guard is ready and has seen
// nothing. It is safe for concurrent use.
type Guard struct {
	mu        sync.Mutex // guards the map alone
	resources map[string]*guarded
}

// guarded is one resource. Its mutex is held while somebody writes to it.
type guarded struct {
	mu      sync.Mutex
	highest uint64
}

// Check remembers token as seen of resource, or returns ErrStaleToken if a higher one was
// seen before. A write that follows it is not protected from one who is let in between
// the two: use Do for that. Check alone is for announcing a token before reading.
func (g *Guard) Check(resource string, token uint64) error {
	return g.Do(resource, token, func() error { return nil })
}

// Do calls write if token is not lower than any seen of resource, and returns what write
// returns, else ErrStaleToken. Others who come for the same resource wait meanwhile, so
// that no higher token is seen before write has returned; it must not come for the same
// resource itself. The token counts as seen whatever write returns.
func (g *Guard) Do(resource string, token uint64, write func() error) error {
	if err := validToken(token); err != nil {
		return err
	}
	r := g.resource(resource)
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.highest {
		return fmt.Errorf("%w: %d for %s, which has seen %d", ErrStaleToken, token, resource, r.highest)
	}
	r.highest = token
	return write()
}

// Highest is the highest token seen of resource; 0 if there was none.
func (g *Guard) Highest(resource string) uint64 {
	g.mu.Lock()
	r := g.resources[resource]
	g.mu.Unlock()
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.highest
}

// Forget gives back the memory that a resource takes, some hundred bytes. From then on
// any token passes, so it is for resources that are gone for good, or whose late writers
// are certain to be gone.
func (g *Guard) Forget(resource string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.resources, resource)
}

func (g *Guard) resource(name string) *guarded {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.resources[name]
	if r == nil {
		if g.resources == nil {
			g.resources = make(map[string]*guarded)
		}
		r = &guarded{}
		g.resources[name] = r
	}
	return r
}

func validToken(token uint64) error {
	if token == 0 || token > math.MaxInt64 {
		return fmt.Errorf("%w: %d", ErrInvalidToken, token)
	}
	return nil
}
