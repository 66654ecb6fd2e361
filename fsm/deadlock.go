package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// Bounds of the cycle in an answer: steps, bytes of a client's name in each, steps
	// told in the message and bytes of a name there.
	maxSteps      = 32
	maxStepName   = 128
	stepsInWords  = 8
	maxNameInWord = 64
)

// closesCycle returns the cycle of owners that a claim, which has just begun to wait
// or to wait for its upgrade, closes; nil if it closes none.
//
// Let every owner that waits for nothing release all that it holds, grant as the
// queues say, and repeat until nothing moves any more: what waits then waits for
// ever. A cycle of owners among those that the new wait is part of is what is looked
// for. Without semaphores every cycle is one of these. With them it has to be tried,
// since a permit may come from somebody outside the cycle: see reduce.
//
// The search goes both ways at once, from what the claim needs and from who needs its
// owner, and ends with the first side that has no more: one waiter behind the owner
// or one holder in its way make it short, however long the queues are elsewhere.
func (m *Machine) closesCycle(s *session, c *claim) []*wire.DeadlockStep {
	if s.holds+s.waits <= 1 {
		return nil // nobody can wait for it
	}
	limit := m.searchLimit(s)
	left := limit
	path := m.cycleOf(c, &left)
	if path == nil && c.upgrading() && s.waits > 1 {
		path = m.cycleBehind(c, &left)
	}
	m.chargeSearch(s, limit-left)
	return m.tellCycle(path, c.id)
}

// cycleOf finds a way from what a claim needs back to its owner.
func (m *Machine) cycleOf(c *claim, left *int) []node {
	self := node{release, c.session, c.owner, 0}
	request := node{grant, c.id, 0, 0}
	home := func(n node) bool { return n == self }
	return m.cycle(left, request, home,
		node{ofRelease, c.session, c.owner, 0},
		func(n node) bool { return n.kind == ofGrant && n.a == c.id })
}

// cycleBehind finds a cycle that an upgrade closes without being a step of it: its
// owner waits for something else, too, for one who could have shared the lock until
// now.
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

// cycle looks for a way from a node to a goal among what is needed, and at the same
// time for the same way backwards. A way that semaphores make doubtful is looked for
// again among what waits for ever.
func (m *Machine) cycle(left *int, from node, goal func(node) bool, back node, origin func(node) bool) []node {
	// Who has nothing but a place in a queue leads nowhere that the queue does not.
	forth := newSearch(&graph{m: m, brief: from.kind == grant}, goal, from)
	path := meet(left, forth, newSearch(&graph{m: m}, origin, back))
	if !slices.ContainsFunc(path, node.doubtful) {
		return path
	}
	rest := m.reduce(left, from)
	if rest == nil || from.kind == grant && !rest.stuck(from.a) {
		return nil
	}
	exact := newSearch(&graph{m: m, rest: rest}, goal, from)
	exact.run(left)
	return exact.path()
}

// tellCycle tells a cycle to the client. The claim that was refused has no wait.
func (m *Machine) tellCycle(path []node, refused uint64) []*wire.DeadlockStep {
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

// describeCycle tells a cycle to people.
func describeCycle(cycle []*wire.DeadlockStep) string {
	var steps []string
	for _, step := range cycle[:min(len(cycle), stepsInWords)] {
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

// cut shortens a text to whole characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
