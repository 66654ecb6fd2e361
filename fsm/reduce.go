package fsm

import (
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// reduction is what is left after all owners that can release have done so, and every claim whose turn
// came was granted. It is computed on a copy of the part of the state that the question depends on.
type reduction struct {
	waits  map[uint64]*reducedWait
	owners map[ownerKey]*reducedOwner
	locks  map[uint64]*reducedLock
	// The same in the order in which the search reached them.
	eachWait  []*reducedWait
	eachOwner []*reducedOwner
	eachLock  []*reducedLock
	// dirty are the locks that have changed since they were settled.
	dirty []*reducedLock
	// left is the number of units that may still be used.
	left *int
	// starved are the waits for permits that would still lack some if all waits ahead of them had theirs.
	starved map[place]bool
}

type reducedWait struct {
	c     *claim
	owner *reducedOwner
	over  bool
}

type reducedOwner struct {
	key   ownerKey
	waits int
	holds []reducedHold
}

type reducedHold struct {
	lock *reducedLock
	want want
}

// reducedLock counts like a lock, but only the holds of the owners in the reduction.
type reducedLock struct {
	lock
	// queue are its waits; those before head have ended.
	queue []*reducedWait
	head  int
	// holds counts the holds that are left.
	holds int
	// rising is the wait to become exclusive.
	rising *reducedWait
}

// waitsForever reports whether a claim waits forever.
func (r *reduction) waitsForever(claim uint64) bool {
	w := r.waits[claim]
	return w != nil && !w.over
}

// short reports whether a claim that is stuck in a semaphore's queue would still lack permits if all
// claims ahead of it had theirs.
func (r *reduction) short(claim, lock uint64) bool { return r.starved[place{lock, claim}] }

// reduce simulates every grant and release that is possible among what the nodes need. It returns nil if
// that takes more units than are left.
func (m *Machine) reduce(left *int, from ...node) *reduction {
	needed := newSearch(&graph{m: m}, func(node) bool { return false }, from...)
	if !needed.run(left) {
		return nil
	}
	if *left < len(needed.reached) {
		*left = 0 // the search has come to its limit
		return nil
	}
	*left -= len(needed.reached)
	r := &reduction{
		left:    left,
		waits:   map[uint64]*reducedWait{},
		owners:  map[ownerKey]*reducedOwner{},
		locks:   map[uint64]*reducedLock{},
		starved: map[place]bool{},
	}
	for _, at := range needed.reached {
		n := at.node
		switch {
		case n.kind == grant:
			r.addWait(m, m.claimAt(n))
		case n.kind == release && n.c == 0:
			o := &reducedOwner{key: ownerKey{n.a, n.b, 0}}
			r.owners[o.key] = o
			r.eachOwner = append(r.eachOwner, o)
		}
	}
	r.link(m)
	if !r.run() {
		return nil
	}
	return r
}

func (r *reduction) addWait(m *Machine, c *claim) {
	w := &reducedWait{c: c}
	r.waits[c.id] = w
	r.eachWait = append(r.eachWait, w)
	*r.left -= len(c.wants())
	for _, want := range c.wants() {
		l := r.locks[want.lock.id]
		if l == nil {
			live := m.live(want.lock)
			l = &reducedLock{lock: lock{lockKey: live.lockKey, contention: &contention{limit: live.limit}, unfair: live.unfair}}
			r.locks[l.id] = l
			r.eachLock = append(r.eachLock, l)
		}
		if c.upgrading() {
			l.rising = w
		} else {
			l.queue = append(l.queue, w)
		}
	}
}

// link connects waits, their owners, and the holds of these owners.
func (r *reduction) link(m *Machine) {
	for _, w := range r.eachWait {
		if o := r.owners[ownerKey{w.c.session, w.c.owner, 0}]; o != nil {
			w.owner = o
			o.waits++
		}
	}
	for _, o := range r.eachOwner {
		m.owners.each(o.key, func(at *ownerRow) bool {
			if at.session != o.key.session || at.owner != o.key.owner {
				return false
			}
			if c, _ := m.claims.get(at.id); c.held() && r.locks[at.lock()] != nil {
				o.occupy(r.locks[at.lock()], c.wantOf(at.lock()))
			}
			return true
		})
	}
	for _, l := range r.eachLock {
		slices.SortFunc(l.queue, func(a, b *reducedWait) int { return int(a.c.id) - int(b.c.id) })
	}
}

func (o *reducedOwner) occupy(l *reducedLock, w want) {
	l.occupy(w)
	l.holds++
	o.holds = append(o.holds, reducedHold{l, w})
}

// run repeats until nothing changes. It reports whether the units were sufficient.
func (r *reduction) run() bool {
	for _, o := range r.eachOwner {
		if o.waits == 0 {
			r.release(o)
		}
	}
	r.dirty = append(r.dirty, r.eachLock...)
	for len(r.dirty) > 0 {
		if *r.left <= 0 {
			return false
		}
		l := r.dirty[len(r.dirty)-1]
		r.dirty = r.dirty[:len(r.dirty)-1]
		r.grantChanged(l)
	}
	for _, l := range r.eachLock {
		sum := uint64(l.used)
		for _, w := range l.queue[l.head:] {
			sum += w.c.wantOf(l.id).weight()
			if l.limit != 0 && sum > uint64(l.limit) {
				r.starved[place{l.id, w.c.id}] = true
			}
		}
	}
	return true
}

func (r *reduction) release(o *reducedOwner) {
	for _, h := range o.holds {
		h.lock.vacate(h.want)
		h.lock.holds--
		r.dirty = append(r.dirty, h.lock)
	}
	o.holds = nil
}

func (r *reduction) grantChanged(l *reducedLock) {
	*r.left--
	if l.rising != nil {
		if l.holds > 1 {
			return
		}
		r.rise(l)
	}
	for l.head < len(l.queue) && r.ready(l.queue[l.head]) {
		w := l.queue[l.head]
		for _, want := range w.c.wants() {
			at := r.locks[want.lock.id]
			at.head++
			r.dirty = append(r.dirty, at)
			if w.owner != nil && !at.unfair {
				w.owner.occupy(at, want)
			}
		}
		r.end(w)
	}
}

// rise makes the only hold of a lock exclusive.
func (r *reduction) rise(l *reducedLock) {
	w := l.rising
	l.rising = nil
	for i := range w.owner.holds {
		if h := &w.owner.holds[i]; h.lock == l {
			l.vacate(h.want)
			h.want.mode = wire.Mode_EXCLUSIVE
			l.occupy(h.want)
		}
	}
	r.end(w)
}

// ready reports whether a wait is next in all its queues. An unfair lock may draw any of its waiters, so
// all of them get it in turn unless it is held forever.
func (r *reduction) ready(w *reducedWait) bool {
	for _, want := range w.c.wants() {
		*r.left--
		l := r.locks[want.lock.id]
		if l.rising != nil || l.queue[l.head] != w || !l.fits(want) {
			return false
		}
	}
	return true
}

func (r *reduction) end(w *reducedWait) {
	w.over = true
	if w.owner == nil {
		return
	}
	w.owner.waits--
	if w.owner.waits == 0 {
		r.release(w.owner)
	}
}
