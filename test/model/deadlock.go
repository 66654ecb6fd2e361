package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// owner is who holds and waits.
type owner struct{ session, owner uint64 }

func (c *Claim) by() owner { return owner{c.Session, c.Owner} }

// ofOwner are all claims of an owner, delays too.
func (d *Model) ofOwner(who owner) []*Claim {
	var found []*Claim
	for _, c := range d.bySession[who.session] {
		if c.Owner == who.owner {
			found = append(found, c)
		}
	}
	return found
}

// around are all claims that have to do with one, by an owner or a lock that they have in
// common, over as many others as it takes. Nobody else can be in a cycle with it.
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

// reduce plays on with some claims: whoever waits for nothing gives back all that he has, and whoever
// may be granted then is, until nothing moves. Lock-delays end by themselves. What
// still waits is deadlocked. An unfair lock that is free makes all of its waiters
// happy, since each of them may be the one who is drawn.
func (d *Model) reduce(claims []*Claim) *Model {
	r := New()
	r.Locks, r.byID = maps.Clone(d.Locks), d.byID
	for _, c := range claims {
		if c.Over {
			continue
		}
		twin := *c
		twin.Locks = nil
		for _, l := range c.Locks {
			twin.Locks = append(twin.Locks, proto.CloneOf(l))
		}
		r.add(&twin)
	}
	for r.goOn() {
	}
	return r
}

// goOn makes one step of the play; false if there is none.
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

// reasons are what keeps a waiting claim waiting: owners that must let go, and claims
// that must be granted first.
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

// closes says whether a claim that has just begun to wait closes a cycle. It does if
// what it waits for leads back to its owner. An upgrade does, too, if what its owner
// waits for besides leads to a reader who now has to wait behind the upgrade. The trap
// shows how. An owner who has nothing else is in nobody's way.
func (d *Model) closes(c *Claim) bool {
	if c.Upgrade == nil && len(d.ofOwner(c.by())) == 1 {
		return false
	}
	d.trap = d.reduce(d.around(c))
	d.trap.refused = c.ID
	twin := d.trap.Claim(c.ID)
	if twin != nil && twin.Waiting() {
		if owners, _ := d.trap.needs(twin); owners[c.by()] {
			return true
		}
	}
	if twin == nil || c.Upgrade == nil {
		return false
	}
	_, claims := d.trap.needs(d.trap.waitsOf(c.by())...)
	return slices.ContainsFunc(d.trap.those(c.Locks[0].Name, (*Claim).Queued), func(o *Claim) bool {
		return claims[o.ID] && o.part(c.Locks[0].Name).Mode == wire.Mode_SHARED
	})
}

// overlooked takes the service's word that it looked no further: the request waits, though it
// closes a cycle.
func (d *Model) overlooked() bool {
	if !d.Hurried || d.Heard.GetStatus() != wire.Status_QUEUED {
		return false
	}
	d.Overlooked = d.Revision
	return true
}

// reaches says whether what an owner waits for leads, over others, back to him.
func (d *Model) reaches(who owner) bool { return d.leads(who, d.waitsOf(who)...) }

func (d *Model) leads(to owner, from ...*Claim) bool {
	owners, _ := d.needs(from...)
	return owners[to]
}

func (d *Model) waitsOf(who owner) []*Claim {
	return slices.DeleteFunc(d.ofOwner(who), func(c *Claim) bool { return !c.Waiting() })
}

// needs are all who have to let go, and all that has to be granted, before some claims
// have what they wait for.
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

// trueCycle says what is wrong with a cycle that the machine tells, if anything: each
// step must wait, now and after all that could go on has gone on, for a lock that the
// next one has or is ahead in the queue for. It is asked of a state after reduce.
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

// waiter is the claim that a step speaks of.
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

// deadlocked are the owners that wait for themselves. It is asked of a state after
// reduce.
func (d *Model) deadlocked() []owner {
	var found []owner
	for _, c := range d.Claims {
		if who := c.by(); !slices.Contains(found, who) && d.reaches(who) {
			found = append(found, who)
		}
	}
	return found
}
