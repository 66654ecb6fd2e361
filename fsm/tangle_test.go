package fsm

import (
	"fmt"
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// tangle is a second opinion about deadlocks: who holds and waits, copied from what
// the machine says that it did, as one plain list. Whether somebody waits for ever is
// decided by letting go, again and again, whoever can, and the cycles by walking all
// edges. It shares no code and no shape with the machine, and knows no bounds.
type tangle struct {
	// claims are in the order of their ids, which is that of every queue.
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
	// seq is the request that made it, rise the one that wants it exclusive.
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

// on is what a strand wants of a lock, if anything.
func (c *strand) on(lock string) *tie {
	for i := range c.wants {
		if c.wants[i].lock == lock {
			return &c.wants[i]
		}
	}
	return nil
}

// free says that an owner waits for nothing.
func (t *tangle) free(owner [2]uint64) bool {
	return !slices.ContainsFunc(t.claims, func(c *strand) bool { return c.owner == owner && c.waits() })
}

// reduced is what is left when everybody who can has gone on and let go.
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
				// Whoever is drawn, the others may be drawn before: it is in nobody's way.
				t.drop(func(other *strand) bool { return other == c })
			default:
				c.held = true
			}
		}
	}
	return t
}

// mayHave says whether it is a strand's turn and all its locks have room.
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

// need is what a strand waits for: an owner that has to let go or, without one, a
// strand that has to be granted.
type need struct {
	lock   string
	owner  [2]uint64
	strand *strand
}

// needs are all edges from a strand that waits.
func (t *tangle) needs(c *strand) []need {
	var all []need
	for _, w := range c.wants {
		// Of a semaphore only what would be left over for it matters.
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

// leads says whether a strand's needs, or what these need in turn, come to a goal.
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

// to is the goal of an owner who has to let go.
func to(owner [2]uint64) func(need) bool {
	return func(n need) bool { return n.strand == nil && n.owner == owner }
}

// closes says whether the wait that a strand has just begun is on a cycle or, if it
// is an upgrade, makes its owner part of one by what it keeps closed meanwhile.
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

// knots are the owners on a cycle among those who wait for ever.
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

// real says what is wrong with a cycle that the machine printed, if anything: each
// step has to wait for its lock for ever, because of the next one's owner. A step
// without a wait is the request that was refused.
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
