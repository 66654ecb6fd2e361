package fsm

import (
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxDeadlocks bounds the cycles in one answer.
const maxDeadlocks = 100

// ListDeadlocks tells the cycles among what waits: those that were allowed, and those
// that came about otherwise, by a semaphore made smaller, by the draw of an unfair
// lock, or where the search at the enqueue came to its end. Every owner on a cycle is
// part of one that is told, and none is told twice; there may be more cycles through
// the same owners. It takes time and memory in proportion to all that waits: a long
// read, for a Fork.
func (m *Machine) ListDeadlocks(*wire.ListDeadlocksRequest) *wire.ListDeadlocksResponse {
	reply := &wire.ListDeadlocksResponse{Revision: m.state.revision}
	if m.state.waits == 0 {
		return reply
	}
	var owners []node
	m.claims.each(0, func(c *claim) bool {
		if c.phase() == waiting || c.upgrading() {
			owners = append(owners, node{release, c.session, c.owner, 0})
		}
		return true
	})
	unbounded := math.MaxInt
	g := &graph{m: m, rest: m.reduce(&unbounded, owners...)}
	groups := &groups{graph: g, index: map[node]int{}, group: map[node]int{}}
	told := map[node]bool{}
	size := 0
	for _, self := range owners {
		if told[self] || len(reply.Deadlocks) == maxDeadlocks || size > maxReplyBytes {
			continue
		}
		groups.find(self)
		path := g.around(self, groups.group)
		for _, n := range path {
			told[n] = true
		}
		if path != nil {
			d := &wire.Deadlock{Cycle: m.tellCycle(path, 0)}
			size += proto.Size(d)
			reply.Deadlocks = append(reply.Deadlocks, d)
		}
	}
	return reply
}

// around finds the shortest cycle through an owner, which stays within the owner's
// group; nil if it is on none.
func (g *graph) around(self node, group map[node]int) []node {
	home := func(n node) bool { return n == self }
	s := newSearch(&graph{m: g.m, rest: g.rest, within: func(n node) bool { return group[n] == group[self] }}, home, self)
	unbounded := math.MaxInt
	s.run(&unbounded)
	return s.path()
}

// groups parts the graph into groups of nodes that all need each other (its strongly
// connected components), by Tarjan's algorithm without recursion: the depth is that
// of the longest queue.
type groups struct {
	graph *graph
	// index numbers nodes as they are reached, from 1 on; group is the number of the
	// first node of its group, once that is known.
	index, group map[node]int
	stack        []node
	visits       []visit
}

// visit is a node whose ways are being followed. lowest is the smallest index that
// is known to be in its group.
type visit struct {
	node   node
	ways   []node
	lowest int
}

// find parts what can be reached from a node.
func (g *groups) find(from node) {
	if g.index[from] != 0 {
		return
	}
	g.enter(from)
	for len(g.visits) > 0 {
		v := &g.visits[len(g.visits)-1]
		if len(v.ways) == 0 {
			g.leave(*v)
			continue
		}
		n := v.ways[0]
		v.ways = v.ways[1:]
		switch {
		case g.index[n] == 0:
			g.enter(n)
		case g.group[n] == 0:
			v.lowest = min(v.lowest, g.index[n])
		}
	}
}

func (g *groups) enter(n node) {
	g.index[n] = len(g.index) + 1
	g.stack = append(g.stack, n)
	ways := append([]node(nil), g.graph.ways(n)...)
	g.visits = append(g.visits, visit{n, ways, g.index[n]})
}

// leave ends a visit; the first of a group takes the whole group off the stack.
func (g *groups) leave(v visit) {
	g.visits = g.visits[:len(g.visits)-1]
	if len(g.visits) > 0 {
		above := &g.visits[len(g.visits)-1]
		above.lowest = min(above.lowest, v.lowest)
	}
	if v.lowest != g.index[v.node] {
		return
	}
	for {
		n := g.stack[len(g.stack)-1]
		g.stack = g.stack[:len(g.stack)-1]
		g.group[n] = v.lowest
		if n == v.node {
			return
		}
	}
}
