package fsm

import (
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// modelOwner is who holds and waits.
type modelOwner struct{ session, owner uint64 }

func (c *modelClaim) by() modelOwner { return modelOwner{c.session, c.owner} }

// waitsNow says whether a claim waits, as an acquire or as an upgrade.
func (c *modelClaim) waitsNow() bool { return !c.over && (c.token == 0 || c.upgrade != nil) }

// reduce plays on: whoever waits for nothing gives back all that he has, and whoever
// may be granted then is, until nothing moves. Lock-delays end by themselves. What
// still waits is deadlocked. An unfair lock that is free makes all of its waiters
// happy, since each of them may be the one who is drawn.
func (d *model) reduce() *model {
	r := &model{locks: maps.Clone(d.locks), live: d.live}
	for _, c := range d.claims {
		if c.over {
			continue
		}
		twin := *c
		twin.locks = nil
		for _, l := range c.locks {
			twin.locks = append(twin.locks, proto.CloneOf(l))
		}
		r.claims = append(r.claims, &twin)
	}
	for r.goOn() {
	}
	return r
}

// goOn makes one step of the play; false if there is none.
func (d *model) goOn() bool {
	for _, c := range d.claims {
		switch {
		case d.ready(c) && d.locks[c.locks[0].Name].order == wire.Order_UNFAIR:
			d.drop(c)
			return true
		case d.ready(c):
			if c.upgrade != nil {
				c.upgrade, c.locks[0].Mode = nil, wire.Mode_EXCLUSIVE
			}
			c.token = 1
			return true
		case !d.stuck(c.by()):
			d.drop(c)
			return true
		}
	}
	return false
}

func (d *model) stuck(who modelOwner) bool {
	return slices.ContainsFunc(d.claims, func(c *modelClaim) bool { return c.by() == who && c.waitsNow() })
}

// reasons are what keeps a waiting claim waiting: owners that must let go, and claims
// that must be granted first.
func (d *model) reasons(w *modelClaim) (owners []modelOwner, first []*modelClaim) {
	for _, l := range w.locks {
		kind := d.locks[l.Name]
		for _, u := range d.those(l.Name, upgradesIt) {
			if u != w {
				owners = append(owners, u.by())
			}
		}
		var ahead []*modelClaim
		if w.token == 0 && kind.order != wire.Order_UNFAIR {
			ahead = d.those(l.Name, func(c *modelClaim) bool { return c.token == 0 && c.id < w.id })
		}
		before := slices.Concat(d.those(l.Name, holdsIt), ahead)
		first = append(first, ahead...)
		sum := l.Permits
		for _, c := range before {
			sum += c.part(l.Name).Permits
		}
		for _, c := range before {
			have := c.part(l.Name).Mode
			if c != w && (have != l.Mode || have == wire.Mode_EXCLUSIVE || w.upgrade != nil || sum > kind.limit && kind.limit > 0) {
				owners = append(owners, c.by())
			}
		}
	}
	return owners, first
}

// closes says whether a claim that has just begun to wait closes a cycle. It does if
// what it waits for leads back to its owner. An upgrade does, too, if what its owner
// waits for besides leads to a reader who now has to wait behind the upgrade. The trap
// shows how.
func (d *model) closes(c *modelClaim) bool {
	d.trap = d.reduce()
	d.trap.refused = c.id
	twin := d.trap.claim(c.id)
	if twin != nil && twin.waitsNow() {
		if owners, _ := d.trap.needs(twin); owners[c.by()] {
			return true
		}
	}
	if twin == nil || c.upgrade == nil {
		return false
	}
	_, claims := d.trap.needs(d.trap.waitsOf(c.by())...)
	return slices.ContainsFunc(d.trap.those(c.locks[0].Name, waitsForIt), func(o *modelClaim) bool {
		return claims[o.id] && o.part(c.locks[0].Name).Mode == wire.Mode_SHARED
	})
}

// reaches says whether what an owner waits for leads, over others, back to him.
func (d *model) reaches(who modelOwner) bool { return d.leads(who, d.waitsOf(who)...) }

func (d *model) leads(to modelOwner, from ...*modelClaim) bool {
	owners, _ := d.needs(from...)
	return owners[to]
}

func (d *model) waitsOf(who modelOwner) []*modelClaim {
	var waits []*modelClaim
	for _, c := range d.claims {
		if c.by() == who && c.waitsNow() {
			waits = append(waits, c)
		}
	}
	return waits
}

// needs are all who have to let go, and all that has to be granted, before some claims
// have what they wait for.
func (d *model) needs(todo ...*modelClaim) (owners map[modelOwner]bool, claims map[uint64]bool) {
	owners, claims = map[modelOwner]bool{}, map[uint64]bool{}
	for ; len(todo) > 0; todo = todo[1:] {
		c := todo[0]
		if claims[c.id] {
			continue
		}
		claims[c.id] = true
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
func (d *model) trueCycle(cycle []*wire.DeadlockStep) error {
	if len(cycle) < 2 {
		return fmt.Errorf("a cycle of %d", len(cycle))
	}
	for i, step := range cycle {
		next := cycle[(i+1)%len(cycle)]
		who := modelOwner{next.SessionId, next.Owner}
		c := d.waiter(step)
		if c == nil {
			return fmt.Errorf("step %d does not wait for ever", i+1)
		}
		if s := d.find(step.SessionId); s == nil || s.client.GetName() != step.ClientName {
			return fmt.Errorf("step %d names another client", i+1)
		}
		owners, first := d.reasons(c)
		for _, f := range first {
			owners = append(owners, f.by())
		}
		if !slices.Contains(owners, who) {
			return fmt.Errorf("step %d does not wait for the next", i+1)
		}
		if len(d.those(step.Lock, func(o *modelClaim) bool { return o != c && o.by() == who })) == 0 {
			return fmt.Errorf("step %d waits for the next, but not for lock %q", i+1, step.Lock)
		}
	}
	return nil
}

// waiter is the claim that a step speaks of.
func (d *model) waiter(step *wire.DeadlockStep) *modelClaim {
	id := step.WaitId
	if id == 0 {
		id = d.refused
	}
	c := d.claim(id)
	if c == nil || !c.waitsNow() || c.by() != (modelOwner{step.SessionId, step.Owner}) || c.part(step.Lock) == nil {
		return nil
	}
	return c
}

// deadlocked are the owners that wait for themselves. It is asked of a state after
// reduce.
func (d *model) deadlocked() []modelOwner {
	var found []modelOwner
	for _, c := range d.claims {
		if who := c.by(); !slices.Contains(found, who) && d.reaches(who) {
			found = append(found, who)
		}
	}
	return found
}
