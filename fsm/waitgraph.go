package fsm

import "github.com/quorumlock/quorumlock/transport/wire"

// node is a node of the wait-for graph. Besides owners and claims, there are nodes for parts of a queue,
// of a lock's holders and of an owner's claims: each leads to its first member and to the part without
// it. So a node has few ways out, a queue of n claims costs n nodes and not n² edges, and a search may
// stop at any of them.
type node struct {
	kind    nodeKind
	a, b, c uint64
}

type nodeKind uint8

// In the forward direction, a node is something that has to happen, and leads to what that needs.
const (
	// release: owner b of session a has to release. None of its claims from lock c on may wait.
	release nodeKind = iota
	// grant: claim a has to be granted.
	grant
	// vacate: the holds on lock a, whose sole is c, from token b on have to end. vacateSome: of a
	// semaphore, perhaps not all of them.
	vacate
	vacateSome
	// alone: as vacate, for an upgrade, whose own hold stays.
	alone
	// becomes: claim b, which waits to become exclusive, has to release lock a.
	becomes
	// pass: all claims before claim b in the queue of lock a have to be granted and to release. passSome:
	// of a semaphore, perhaps not all have to release.
	pass
	passSome
	// follow: all claims before claim b in the queue of lock a have to be granted, and the exclusive ones
	// have to release.
	follow

	// In the backward direction, a node is something that has to happen, and leads to what needs it.

	// ofRelease: owner b of session a has to release its claims from lock c on.
	ofRelease
	// ofGrant: claim a has to be granted.
	ofGrant
	// behind: needed by the claims in the queue of lock a from claim b on. behindSome: of a semaphore,
	// perhaps not by all of them.
	behind
	behindSome
	// writersBehind, readersBehind: needed by those of them that want the lock exclusively, or shared.
	writersBehind
	readersBehind
)

// doubtful reports whether what the node leads to may not be needed after all.
func (n node) doubtful() bool {
	return n.kind == vacateSome || n.kind == passSome || n.kind == behindSome
}

// ofLock reports whether the node is about lock a.
func (n node) ofLock() bool {
	switch n.kind {
	case release, grant, ofRelease, ofGrant:
		return false
	}
	return true
}

func (m *Machine) claimAt(n node) *claim {
	c, _ := m.claims.get(n.a)
	return c
}

// graph computes where the nodes lead to.
type graph struct {
	m *Machine
	// rest, if set, leaves out what does not wait forever.
	rest *reduction
	// brief leaves out the owners in a queue that have nothing but their place in it.
	brief bool
	// within leaves out all nodes for which it returns false; nil leaves out none.
	within func(node) bool
	out    []node
}

// ways returns the nodes that a node leads to. The slice is valid until the next call.
func (g *graph) ways(n node) []node {
	g.out = g.out[:0]
	switch n.kind {
	case release:
		g.ownerWaits(n)
	case grant:
		g.claimNeeds(g.m.claimAt(n))
	case vacate, vacateSome, alone:
		g.holds(n)
	case becomes:
		c, _ := g.m.claims.get(n.b)
		g.owner(c)
	case pass, passSome:
		g.passes(n)
	case follow:
		g.follows(n)
	case ofRelease:
		g.needRelease(n)
	case ofGrant:
		g.needGrant(g.m.claimAt(n))
	default:
		g.needers(n)
	}
	return g.out
}

func (g *graph) to(kind nodeKind, a, b, c uint64) {
	n := node{kind, a, b, c}
	if g.within == nil || g.within(n) {
		g.out = append(g.out, n)
	}
}

// owner leads to a claim's owner, which has to release. An owner that waits for nothing leads nowhere.
func (g *graph) owner(c *claim) { g.to(release, c.session, c.owner, 0) }

// claim leads to a claim that has to be granted.
func (g *graph) claim(c *claim) {
	if g.rest == nil || g.rest.waitsForever(c.id) {
		g.to(grant, c.id, 0, 0)
	}
}

func (g *graph) ownerWaits(n node) {
	at, ok := g.m.owners.seek(ownerKey{n.a, n.b, n.c})
	if !ok || at.session != n.a || at.owner != n.b {
		return
	}
	if c, _ := g.m.claims.get(at.id); c.phase() == waiting || c.upgrading() {
		g.claim(c)
	}
	g.to(release, n.a, n.b, at.lock()+1)
}

func (g *graph) claimNeeds(c *claim) {
	if c.upgrading() {
		l := g.m.live(c.wants()[0].lock)
		g.to(alone, l.id, 0, l.sole)
		return
	}
	for _, w := range c.wants() {
		l := g.m.live(w.lock)
		if l.upgrader != 0 {
			g.to(becomes, l.id, l.upgrader, 0)
		}
		holds, ahead := g.excludes(c, w, l)
		if holds != follow && (w.mode != wire.Mode_SHARED || l.exclusive) {
			g.to(holds, l.id, 0, l.sole)
		}
		if !l.unfair {
			g.to(ahead, l.id, c.id, 0)
		}
	}
}

// excludes returns what a wait for a lock needs of its holders and of the claims ahead. follow as the
// first result means that it needs nothing of the holders.
func (g *graph) excludes(c *claim, w want, l *lock) (holds, ahead nodeKind) {
	switch {
	case w.mode == wire.Mode_SHARED:
		return vacate, follow
	case w.mode == wire.Mode_EXCLUSIVE || w.permits == l.limit:
		return vacate, pass
	case g.rest == nil:
		return vacateSome, passSome
	case g.rest.short(c.id, l.id):
		return vacate, pass
	}
	return follow, follow
}

func (g *graph) holds(n node) {
	c := g.m.occupant(n.a, n.c, n.b)
	if c == nil {
		return
	}
	if c.held() && !(n.kind == alone && c.upgrading()) {
		g.owner(c)
	}
	g.to(n.kind, n.a, c.token+1, n.c)
}

func (g *graph) passes(n node) {
	c := g.m.ahead(n.a, n.b)
	if c == nil {
		return
	}
	if !g.brief || !g.m.single(c) {
		g.owner(c)
	}
	g.to(n.kind, n.a, c.id, 0)
}

// follows stops at a claim that wants the lock exclusively: what is ahead of that claim is found through
// it. It continues past other claims, so that cycles are reported without them.
func (g *graph) follows(n node) {
	c := g.m.ahead(n.a, n.b)
	switch {
	case c == nil:
	case c.wantOf(n.a).mode == wire.Mode_EXCLUSIVE:
		g.owner(c)
	default:
		g.claim(c)
		g.to(follow, n.a, c.id, 0)
	}
}

// ahead returns the claim right before one in a lock's queue, or nil.
func (m *Machine) ahead(lock, claim uint64) *claim {
	at, ok := m.queue.before(place{lock, claim})
	if !ok || at.lock != lock {
		return nil
	}
	c, _ := m.claims.get(at.claim)
	return c
}

// single reports whether a place in a queue is all that a claim's owner has. Such an owner leads nowhere
// but along that queue.
func (m *Machine) single(c *claim) bool {
	rows := 0
	m.owners.each(ownerKey{c.session, c.owner, 0}, func(at *ownerRow) bool {
		if at.session == c.session && at.owner == c.owner {
			rows++
		}
		return rows == 1 && at.session == c.session && at.owner == c.owner
	})
	return rows == 1
}

func (g *graph) needRelease(n node) {
	at, ok := g.m.owners.seek(ownerKey{n.a, n.b, n.c})
	if !ok || at.session != n.a || at.owner != n.b {
		return
	}
	c, _ := g.m.claims.get(at.id)
	w := c.wantOf(at.lock())
	l := g.m.live(w.lock)
	first := uint64(0)
	if c.phase() == waiting {
		first = c.id + 1
	} else if l.upgrader != 0 && l.upgrader != c.id {
		g.to(ofGrant, l.upgrader, 0, 0)
	}
	switch {
	case first != 0 && l.unfair: // nothing is behind
	case l.limit > 1: // a semaphore that several can hold
		g.to(behindSome, l.id, first, 0)
	case w.mode == wire.Mode_SHARED && !c.upgrading():
		g.to(writersBehind, l.id, first, 0)
	default:
		g.to(behind, l.id, first, 0)
	}
	g.to(ofRelease, n.a, n.b, at.lock()+1)
}

func (g *graph) needGrant(c *claim) {
	g.to(ofRelease, c.session, c.owner, 0)
	if c.phase() != waiting {
		return
	}
	for _, w := range c.wants() {
		if l := g.m.live(w.lock); !l.unfair {
			g.to(behind, l.id, c.id+1, 0)
		}
	}
}

func (g *graph) needers(n node) {
	at, ok := g.m.queue.seek(place{n.a, n.b})
	if !ok || at.lock != n.a {
		return
	}
	c, _ := g.m.claims.get(at.claim)
	mode := c.wantOf(n.a).mode
	switch n.kind {
	case writersBehind:
		ok = mode == wire.Mode_EXCLUSIVE
	case readersBehind:
		ok = mode == wire.Mode_SHARED
	}
	if ok {
		g.to(ofGrant, c.id, 0, 0)
	}
	g.to(n.kind, n.a, c.id+1, 0)
}
