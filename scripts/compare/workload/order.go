package workload

import (
	"errors"
	"sync"

	"github.com/quorumlock/quorumlock/scripts/compare/system"
)

// errBroken is returned where a lock was granted while somebody had it: a figure of such a
// lock is worth nothing.
var errBroken = errors.New("the lock was granted while somebody had it")

// order looks on at a lock that many want.
type order struct {
	mu       sync.Mutex
	inside   bool
	broken   bool
	promised bool // that there is an order
	arrived  uint64
	granted  uint64
	astray   int // grants to somebody who came after one who still waited
}

// enter takes note of a grant.
func (o *order) enter(h system.Hold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken = o.broken || o.inside
	o.inside = true
	if h, ok := h.(system.Ordered); ok {
		o.promised = true
		if h.Arrived() <= o.arrived || h.Granted() <= o.granted {
			o.astray++
		}
		o.arrived, o.granted = h.Arrived(), h.Granted()
	}
}

// leave comes before the unlock is asked for.
func (o *order) leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inside = false
}
