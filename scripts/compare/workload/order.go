package workload

import (
	"errors"
	"sync"

	"github.com/quorumlock/quorumlock/scripts/compare/system"
)

// errBroken is returned if a lock was granted while it was held: measurements of such a lock are worthless.
var errBroken = errors.New("the lock was granted while somebody had it")

// order observes a contended lock.
type order struct {
	mu       sync.Mutex
	inside   bool
	broken   bool
	promised bool // whether the system guarantees an order
	arrived  uint64
	granted  uint64
	astray   int // grants that overtook an earlier waiter
}

// enter records a grant.
func (o *order) enter(h system.Hold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken = o.broken || o.inside
	o.inside = true
	if h, ok := h.(system.Ordered); ok {
		o.promised = true
		// The grants of one cached hold have one request, and tokens that increase.
		if h.Arrived() < o.arrived || h.Granted() <= o.granted {
			o.astray++
		}
		o.arrived, o.granted = h.Arrived(), h.Granted()
	}
}

// leave must be called before the unlock is sent.
func (o *order) leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inside = false
}
