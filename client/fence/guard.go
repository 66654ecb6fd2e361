package fence

import (
	"errors"
	"fmt"
	"math"
	"sync"
)

var (
	// ErrStaleToken is returned when a later holder has accessed the resource. The caller no longer holds
	// the lock, even if it does not know that yet, and must stop.
	ErrStaleToken = errors.New("quorumlock: stale fencing token")
	// ErrInvalidToken is returned for a number that is not a token: 0, or a number of more than 63 bits.
	ErrInvalidToken = errors.New("quorumlock: not a fencing token")
)

// Guard remembers the highest token seen for each resource and refuses lower ones. An equal token passes,
// so a holder can come any number of times. The zero Guard is ready to use and has seen no token. A Guard
// is safe for concurrent use.
type Guard struct {
	mu        sync.Mutex // guards the map only
	resources map[string]*guarded
}

// guarded is the state of one resource. Its mutex is held during a write to the resource.
type guarded struct {
	mu      sync.Mutex
	highest uint64
}

// Check records token as seen for resource, or returns ErrStaleToken if a higher one was seen before. It
// does not protect a write that follows, because a later holder may come between the two; use Do for that.
// Use Check alone to present a token before reading.
func (g *Guard) Check(resource string, token uint64) error {
	return g.Do(resource, token, func() error { return nil })
}

// Do calls write and returns its error, unless a higher token was seen for resource; then it returns
// ErrStaleToken. Other calls for the same resource wait, so no higher token is seen until write has
// returned. write must not use the Guard for the same resource. The token counts as seen whatever write
// returns.
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

// Highest returns the highest token seen for resource, or 0 if there was none.
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

// Forget frees the memory used for a resource, about a hundred bytes. Afterwards any token passes, so use
// it only for resources that no longer exist or that have no late writers left.
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
