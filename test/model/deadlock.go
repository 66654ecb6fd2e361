package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// owner identifies an owner of holds and waits.
type owner struct{ session, owner uint64 }

func (c *Claim) by() owner { return owner{c.Session, c.Owner} }

// ofOwner returns all claims of an owner, including delays.
func (d *Model) ofOwner(who owner) []*Claim {
	var found []*Claim
	for _, c := range d.bySession[who.session] {
		if c.Owner == who.owner {
			found = append(found, c)
		}
	}
	return found
}

// around returns all claims connected to c through common owners or locks, directly or indirectly. No other
// claim can be in a cycle with it.
func (d *Model) around(c *Claim) []*Claim {
	seen, locks, owners := map[*Claim]bool{}, map[string]bool{}, map[owner]bool{}
	for todo := []*Claim{c}; len(todo) > 0; todo = todo[1:] {
		c := todo[0]
		if seen[c] {
			continue
		}
		seen[c] = true
		if who := c.by(); !owners[who] {
			owners[who] = true
			todo = append(todo, d.ofOwner(who)...)
		}
		for _, l := range c.Locks {
			if !locks[l.Name] {
				locks[l.Name] = true
				todo = append(todo, d.byLock[l.Name]...)
			}
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b *Claim) int { return cmp.Compare(a.ID, b.ID) })
}

// reduce plays the future of some claims until nothing changes: an owner that waits for nothing releases
// everything, and a claim that may be granted is granted. Lock-delays end on their own. What still waits is
// deadlocked. A free unfair lock satisfies all of its waiters, since each of them may be drawn.
func (d *Model) reduce(claims []*Claim) *Model {
	r := New()
	r.Locks, r.byID = maps.Clone(d.Locks), d.byID
	for _, c := range claims {
		if c.Over {
			continue
		}
		copied := *c
		copied.Locks = nil
		for _, l := range c.Locks {
			copied.Locks = append(copied.Locks, proto.CloneOf(l))
		}
		r.add(&copied)
	}
	for r.goOn() {
	}
	return r
}

// goOn performs one step of reduce. It returns false if there is none.
func (d *Model) goOn() bool {
	for _, c := range d.Claims {
		switch {
		case d.ready(c) && d.Locks[c.Locks[0].Name].Order == wire.Order_UNFAIR:
			d.drop(c)
			return true
		case d.ready(c):
			if c.Upgrade != nil {
				c.Upgrade, c.Locks[0].Mode = nil, wire.Mode_EXCLUSIVE
			}
			c.Token = 1
			return true
		case !d.stuck(c.by()):
			d.drop(c)
			return true
		}
	}
	return false
}

func (d *Model) stuck(who owner) bool {
	return slices.ContainsFunc(d.ofOwner(who), (*Claim).Waiting)
}

// reasons returns what blocks a waiting claim: owners that must let go, and claims that must be granted
// first.
func (d *Model) reasons(w *Claim) (owners []owner, first []*Claim) {
	for _, l := range w.Locks {
		kind := d.Locks[l.Name]
		for _, u := range d.those(l.Name, (*Claim).Upgrading) {
			if u != w {
				owners = append(owners, u.by())
			}
		}
		var ahead []*Claim
		if w.Token == 0 && kind.Order != wire.Order_UNFAIR {
			ahead = d.those(l.Name, func(c *Claim) bool { return c.Token == 0 && c.ID < w.ID })
		}
		before := slices.Concat(d.those(l.Name, (*Claim).Holds), ahead)
		first = append(first, ahead...)
		sum := l.Permits
		for _, c := range before {
			sum += c.part(l.Name).Permits
		}
		for _, c := range before {
			have := c.part(l.Name).Mode
			if c != w && (have != l.Mode || have == wire.Mode_EXCLUSIVE || w.Upgrade != nil || sum > kind.Limit && kind.Limit > 0) {
				owners = append(owners, c.by())
			}
		}
	}
	return owners, first
}

// closes reports whether a claim that has just begun to wait closes a cycle, that is, whether what it waits
// for leads back to its owner. An upgrade also closes a cycle if another wait of its owner leads to a reader
// that now has to wait behind the upgrade. The trap contains the cycle. An owner with no other claim blocks
// nobody.
func (d *Model) closes(c *Claim) bool {
	if c.Upgrade == nil && len(d.ofOwner(c.by())) == 1 {
		return false
	}
	d.trap = d.reduce(d.around(c))
	d.trap.refused = c.ID
	copied := d.trap.Claim(c.ID)
	if copied != nil && copied.Waiting() {
		if owners, _ := d.trap.needs(copied); owners[c.by()] {
			return true
		}
	}
	if copied == nil || c.Upgrade == nil {
		return false
	}
	_, claims := d.trap.needs(d.trap.waitsOf(c.by())...)
	return slices.ContainsFunc(d.trap.those(c.Locks[0].Name, (*Claim).Queued), func(o *Claim) bool {
		return claims[o.ID] && o.part(c.Locks[0].Name).Mode == wire.Mode_SHARED
	})
}

// overlooked accepts that the service aborted its search: the request waits although it closes a cycle.
func (d *Model) overlooked() bool {
	if !d.Hurried || d.Heard.GetStatus() != wire.Status_QUEUED {
		return false
	}
	d.Overlooked = d.Revision
	return true
}

// reaches reports whether what an owner waits for leads back to that owner.
func (d *Model) reaches(who owner) bool { return d.leads(who, d.waitsOf(who)...) }

func (d *Model) leads(to owner, from ...*Claim) bool {
	owners, _ := d.needs(from...)
	return owners[to]
}

func (d *Model) waitsOf(who owner) []*Claim {
	return slices.DeleteFunc(d.ofOwner(who), func(c *Claim) bool { return !c.Waiting() })
}

// needs returns all owners that must let go and all claims that must be granted, the given ones included,
// before the given claims are granted.
func (d *Model) needs(todo ...*Claim) (owners map[owner]bool, claims map[uint64]bool) {
	owners, claims = map[owner]bool{}, map[uint64]bool{}
	for ; len(todo) > 0; todo = todo[1:] {
		c := todo[0]
		if claims[c.ID] {
			continue
		}
		claims[c.ID] = true
		must, first := d.reasons(c)
		for _, who := range must {
			owners[who] = true
			todo = append(todo, d.waitsOf(who)...)
		}
		todo = append(todo, first...)
	}
	return owners, claims
}

// trueCycle returns an error if a reported cycle is false. Each step must wait, now and after everything else
// has made progress, for a lock that the next owner holds or is ahead for in the queue. d must be a result of
// reduce.
func (d *Model) trueCycle(cycle []*wire.DeadlockStep) error {
	if len(cycle) < 2 {
		return fmt.Errorf("a cycle of %d", len(cycle))
	}
	for i, step := range cycle {
		next := cycle[(i+1)%len(cycle)]
		who := owner{next.SessionId, next.Owner}
		c := d.waiter(step)
		if c == nil {
			return fmt.Errorf("step %d does not wait for ever", i+1)
		}
		if s := d.Session(step.SessionId); s == nil || s.Client.GetName() != step.ClientName {
			return fmt.Errorf("step %d names another client", i+1)
		}
		owners, first := d.reasons(c)
		for _, f := range first {
			owners = append(owners, f.by())
		}
		if !slices.Contains(owners, who) {
			return fmt.Errorf("step %d does not wait for the next", i+1)
		}
		if len(d.those(step.Lock, func(o *Claim) bool { return o != c && o.by() == who })) == 0 {
			return fmt.Errorf("step %d waits for the next, but not for lock %q", i+1, step.Lock)
		}
	}
	return nil
}

// waiter returns the claim that a step names.
func (d *Model) waiter(step *wire.DeadlockStep) *Claim {
	id := step.WaitId
	if id == 0 {
		id = d.refused
	}
	c := d.Claim(id)
	if c == nil || !c.Waiting() || c.by() != (owner{step.SessionId, step.Owner}) || c.part(step.Lock) == nil {
		return nil
	}
	return c
}

// deadlocked returns the owners that wait for themselves. d must be a result of reduce.
func (d *Model) deadlocked() []owner {
	var found []owner
	for _, c := range d.Claims {
		if who := c.by(); !slices.Contains(found, who) && d.reaches(who) {
			found = append(found, who)
		}
	}
	return found
}
