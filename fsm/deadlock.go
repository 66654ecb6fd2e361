package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// Bounds of the cycle in an answer: the number of steps, the bytes of a client's name in each, the
	// steps listed in the message, and the bytes of a name there.
	maxSteps      = 32
	maxStepName   = 128
	stepsInWords  = 8
	maxNameInWord = 64
)

// closesCycle returns the cycle of owners that a claim closes that has just begun to wait, for its locks
// or for its upgrade. It returns nil if there is none, or if the search exceeds its limit.
//
// A deadlock is defined as follows. Let every owner that waits for nothing release all its holds, grant
// as the queues allow, and repeat until nothing changes. The claims that are left wait forever. The
// search looks for a cycle of owners among them that includes the new wait. Without semaphores, every
// cycle is a deadlock. With semaphores, a cycle has to be tested, since a permit may come from an owner
// outside the cycle: see reduce.
//
// The search is bidirectional: forwards from what the claim needs, and backwards from what needs its
// owner. It ends as soon as one side is exhausted, so it is short if there is a single waiter behind the
// owner or a single holder in its way, however long other queues are.
func (m *Machine) closesCycle(s *session, c *claim) []*wire.DeadlockStep {
	if s.holds+s.waits <= 1 {
		return nil // no other owner can wait for this one
	}
	limit := m.searchLimit(s)
	left := limit
	path := m.cycleOf(c, &left)
	if path == nil && c.upgrading() && s.waits > 1 {
		path = m.cycleBehind(c, &left)
	}
	m.chargeSearch(s, limit-left)
	return m.cycleSteps(path, c.id)
}

// cycleOf finds a path from what a claim needs back to its owner.
func (m *Machine) cycleOf(c *claim, left *int) []node {
	self := node{release, c.session, c.owner, 0}
	request := node{grant, c.id, 0, 0}
	isGoal := func(n node) bool { return n == self }
	return m.cycle(left, request, isGoal,
		node{ofRelease, c.session, c.owner, 0},
		func(n node) bool { return n.kind == ofGrant && n.a == c.id })
}

// cycleBehind finds a cycle that an upgrade closes without being a step of it: its owner also waits for
// something else, for an owner that could have shared the lock until now.
func (m *Machine) cycleBehind(c *claim, left *int) []node {
	lock := c.wants()[0].lock.id
	reader := func(n node) bool {
		return n.kind == grant && m.claimAt(n).phase() == waiting && m.claimAt(n).wantOf(lock).mode == wire.Mode_SHARED
	}
	own := func(n node) bool {
		if n.kind != ofGrant {
			return false
		}
		e := m.claimAt(n)
		return e.session == c.session && e.owner == c.owner
	}
	path := m.cycle(left, node{release, c.session, c.owner, 0}, reader, node{readersBehind, lock, 0, 0}, own)
	if path != nil && path[len(path)-1].kind == grant {
		path = append(path, node{becomes, lock, c.id, 0})
	}
	return path
}

// cycle searches for a path from a node to a goal along what each node needs, and at the same time for
// the same path backwards. A path that semaphores make doubtful is searched for again among the claims
// that wait forever.
func (m *Machine) cycle(left *int, from node, goal func(node) bool, back node, origin func(node) bool) []node {
	// An owner with nothing but a place in a queue leads nowhere that the queue does not.
	forth := newSearch(&graph{m: m, brief: from.kind == grant}, goal, from)
	path := searchBothEnds(left, forth, newSearch(&graph{m: m}, origin, back))
	if !slices.ContainsFunc(path, node.doubtful) {
		return path
	}
	rest := m.reduce(left, from)
	if rest == nil || from.kind == grant && !rest.waitsForever(from.a) {
		return nil
	}
	exact := newSearch(&graph{m: m, rest: rest}, goal, from)
	exact.run(left)
	return exact.path()
}

// cycleSteps returns a cycle as an answer describes it. The refused claim has no wait id, because it
// does not wait.
func (m *Machine) cycleSteps(path []node, refused uint64) []*wire.DeadlockStep {
	var steps []*wire.DeadlockStep
	for i, n := range path {
		if n.kind != grant && n.kind != ofGrant || len(steps) == maxSteps {
			continue
		}
		c := m.claimAt(n)
		s, _ := m.sessions.get(c.session)
		w := c.wants()[0]
		if i+1 < len(path) && path[i+1].ofLock() {
			w = c.wantOf(path[i+1].a)
		}
		step := &wire.DeadlockStep{SessionId: c.session, Owner: c.owner, ClientName: cut(s.client.GetName(), maxStepName), Lock: w.lock.name, WaitId: c.id}
		if c.id == refused {
			step.WaitId = 0
		}
		steps = append(steps, step)
	}
	return steps
}

// DescribeCycle returns a human-readable description of a cycle. A step without a lock is one that the reader may not
// see.
func DescribeCycle(cycle []*wire.DeadlockStep) string {
	var steps []string
	for _, step := range cycle[:min(len(cycle), stepsInWords)] {
		if step.Lock == "" {
			steps = append(steps, "a session waits for a lock that you may not read")
			continue
		}
		who := fmt.Sprintf("session %d", step.SessionId)
		if step.ClientName != "" {
			who += fmt.Sprintf(" (%s)", cut(step.ClientName, maxNameInWord))
		}
		steps = append(steps, fmt.Sprintf("%s waits for %q", who, cut(step.Lock, maxNameInWord)))
	}
	if more := len(cycle) - stepsInWords; more > 0 {
		steps = append(steps, fmt.Sprintf("and %d more", more))
	}
	return "waiting would never end: " + strings.Join(steps, ", ")
}

// cut shortens a text to at most so many bytes, at a character boundary.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
