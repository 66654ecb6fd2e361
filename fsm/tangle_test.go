package fsm

import (
	"fmt"
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// tangle is an independent model of deadlocks: a plain list of holders and waiters, copied from what the
// machine reports. Whether an owner waits forever is decided by releasing every owner that can,
// repeatedly, and cycles are found by following all edges. It shares no code and no structure with the
// machine, and has no bounds.
type tangle struct {
	// claims are in the order of their ids, which is the order of every queue.
	claims []*strand
	limits map[string]uint64
	unfair map[string]bool
}

// strand is a claim that waits, holds, or holds and waits to become exclusive.
type strand struct {
	id           uint64
	owner        [2]uint64
	wants        []tie
	held, rising bool
	token        uint64
	// seq is the request that created it, rise the one that wants it exclusive.
	seq, rise uint64
}

// tie is a lock of a strand.
type tie struct {
	lock    string
	mode    wire.Mode
	permits uint64
}

func (t *tangle) clone() *tangle {
	same := &tangle{limits: t.limits, unfair: t.unfair}
	for _, c := range t.claims {
		own := *c
		own.wants = slices.Clone(c.wants)
		same.claims = append(same.claims, &own)
	}
	return same
}

func (t *tangle) find(id uint64) *strand {
	for _, c := range t.claims {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (t *tangle) drop(gone func(*strand) bool) { t.claims = slices.DeleteFunc(t.claims, gone) }

func (c *strand) waits() bool { return !c.held || c.rising }

// on returns what a strand wants of a lock, or nil.
func (c *strand) on(lock string) *tie {
	for i := range c.wants {
		if c.wants[i].lock == lock {
			return &c.wants[i]
		}
	}
	return nil
}

// free reports whether an owner waits for nothing.
func (t *tangle) free(owner [2]uint64) bool {
	return !slices.ContainsFunc(t.claims, func(c *strand) bool { return c.owner == owner && c.waits() })
}

// reduced returns what is left after every owner that can has continued and released.
func (t *tangle) reduced() *tangle {
	t = t.clone()
	for moved := true; moved; {
		before := len(t.claims)
		t.drop(func(c *strand) bool { return t.free(c.owner) })
		moved = len(t.claims) != before
		for _, c := range slices.Clone(t.claims) {
			if !c.waits() || !t.mayHave(c) {
				continue
			}
			moved = true
			switch {
			case c.rising:
				c.rising, c.wants[0].mode = false, wire.Mode_EXCLUSIVE
			case t.unfair[c.wants[0].lock]:
				// Any other waiter may be drawn first, so this one blocks nothing.
				t.drop(func(other *strand) bool { return other == c })
			default:
				c.held = true
			}
		}
	}
	return t
}

// mayHave reports whether it is a strand's turn and all its locks have room.
func (t *tangle) mayHave(c *strand) bool {
	for _, w := range c.wants {
		used := w.permits
		for _, other := range t.claims {
			on := other.on(w.lock)
			switch {
			case other == c || on == nil:
			case other.rising, c.rising && other.held:
				return false
			case !c.rising && !other.held && other.id < c.id && !t.unfair[w.lock]:
				return false
			case other.held && (w.mode == wire.Mode_EXCLUSIVE || on.mode == wire.Mode_EXCLUSIVE):
				return false
			case other.held:
				used += on.permits
			}
		}
		if w.mode == wire.Mode_PERMITS && used > t.limits[w.lock] {
			return false
		}
	}
	return true
}

// need is what a strand waits for: an owner that has to release or, without one, a strand that has
// to be granted.
type need struct {
	lock   string
	owner  [2]uint64
	strand *strand
}

// needs returns all edges from a waiting strand.
func (t *tangle) needs(c *strand) []need {
	var all []need
	for _, w := range c.wants {
		// Of a semaphore, only the permits that would be left for it matter.
		sum := w.permits
		for _, other := range t.claims {
			if on := other.on(w.lock); on != nil && other != c && (other.held || other.id < c.id) {
				sum += on.permits
			}
		}
		for _, other := range t.claims {
			on := other.on(w.lock)
			ahead := !other.held && other.id < c.id && !t.unfair[w.lock]
			switch {
			case on == nil || other == c || !other.held && !ahead:
			case c.rising && !other.held: // behind it
			case c.rising, other.rising, w.mode == wire.Mode_EXCLUSIVE, on.mode == wire.Mode_EXCLUSIVE,
				w.mode == wire.Mode_PERMITS && sum > t.limits[w.lock]:
				all = append(all, need{w.lock, other.owner, nil})
			case ahead:
				all = append(all, need{w.lock, [2]uint64{}, other})
			}
		}
	}
	return all
}

// leads reports whether a strand's needs, directly or indirectly, reach a goal.
func (t *tangle) leads(c *strand, goal func(need) bool) bool {
	seen := map[*strand]bool{}
	var walk func(c *strand) bool
	walk = func(c *strand) bool {
		if seen[c] || !c.waits() {
			return false
		}
		seen[c] = true
		return slices.ContainsFunc(t.needs(c), func(n need) bool {
			return goal(n) || n.strand != nil && walk(n.strand) ||
				n.strand == nil && slices.ContainsFunc(t.claims, func(d *strand) bool { return d.owner == n.owner && walk(d) })
		})
	}
	return walk(c)
}

// to returns the goal of an owner that has to release.
func to(owner [2]uint64) func(need) bool {
	return func(n need) bool { return n.strand == nil && n.owner == owner }
}

// closes reports whether the wait that a strand has just begun is on a cycle or, if it is an upgrade,
// makes its owner part of one by what it blocks meanwhile.
func (t *tangle) closes(id uint64) bool {
	risen := t.find(id).rising
	t = t.reduced()
	c := t.find(id)
	if c == nil {
		return false
	}
	if c.waits() && t.leads(c, to(c.owner)) {
		return true
	}
	return risen && slices.ContainsFunc(t.claims, func(d *strand) bool {
		on := d.on(c.wants[0].lock)
		return on != nil && !d.held && on.mode == wire.Mode_SHARED && slices.ContainsFunc(t.claims, func(own *strand) bool {
			return own.owner == c.owner && t.leads(own, func(n need) bool {
				return n.strand == d || n.strand == nil && n.owner == d.owner
			})
		})
	})
}

// knots returns the owners on a cycle among those that wait forever.
func (t *tangle) knots() [][2]uint64 {
	t = t.reduced()
	var found [][2]uint64
	for _, c := range t.claims {
		if !slices.Contains(found, c.owner) && t.leads(c, to(c.owner)) {
			found = append(found, c.owner)
		}
	}
	return found
}

// real returns an error unless a cycle reported by the machine exists: each step has to wait for its lock
// forever, because of the next step's owner. A step without a wait is the refused request.
func (t *tangle) real(cycle []*wire.DeadlockStep, refused uint64) error {
	t = t.reduced()
	for i, step := range cycle {
		id := step.WaitId
		if id == 0 {
			id = refused
		}
		c, next := t.find(id), cycle[(i+1)%len(cycle)]
		if c == nil || !c.waits() || c.owner != [2]uint64{step.SessionId, step.Owner} {
			return fmt.Errorf("step %d: %v does not wait for ever", i, step)
		}
		waitsFor := func(n need) bool {
			owner := n.owner
			if n.strand != nil {
				owner = n.strand.owner
			}
			return n.lock == step.Lock && owner == [2]uint64{next.SessionId, next.Owner}
		}
		if !slices.ContainsFunc(t.needs(c), waitsFor) {
			return fmt.Errorf("step %d: %v does not wait for %v", i, step, next)
		}
	}
	return nil
}
