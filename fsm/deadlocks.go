package fsm

import (
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxDeadlocks bounds the cycles in one answer.
const maxDeadlocks = 100

// ListDeadlocks returns the existing cycles: those that were allowed, and those that arose otherwise,
// when a semaphore was made smaller, by the draw of an unfair lock, or because the search at the enqueue
// reached its limit. Every owner on a cycle is part of a listed one, and no cycle is listed twice; there
// may be more cycles through the same owners. Time and memory are proportional to the number of waits, so
// call it on a Fork.
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
	reported := map[node]bool{}
	size := 0
	for _, self := range owners {
		if reported[self] || len(reply.Deadlocks) == maxDeadlocks || size > maxReplyBytes {
			continue
		}
		groups.find(self)
		path := g.around(self, groups.group)
		for _, n := range path {
			reported[n] = true
		}
		if path != nil {
			d := &wire.Deadlock{Cycle: m.cycleSteps(path, 0)}
			size += proto.Size(d)
			reply.Deadlocks = append(reply.Deadlocks, d)
		}
	}
	return reply
}

// around finds the shortest cycle through an owner. It stays within the owner's group and returns nil if
// there is none.
func (g *graph) around(self node, group map[node]int) []node {
	isGoal := func(n node) bool { return n == self }
	s := newSearch(&graph{m: g.m, rest: g.rest, within: func(n node) bool { return group[n] == group[self] }}, isGoal, self)
	unbounded := math.MaxInt
	s.run(&unbounded)
	return s.path()
}

// groups divides the graph into its strongly connected components, groups of nodes that all need each
// other, by Tarjan's algorithm. It does not recurse, since the depth is that of the longest queue.
type groups struct {
	graph *graph
	// index numbers nodes in the order they are reached, from 1 on. group is the index of the first node
	// of a node's group, once that is known.
	index, group map[node]int
	stack        []node
	visits       []visit
}

// visit is a node whose ways are being followed. lowest is the smallest index known to be in its group.
type visit struct {
	node   node
	ways   []node
	lowest int
}

// find assigns groups to all nodes that can be reached from a node.
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

// leave ends a visit. The first node of a group takes the whole group off the stack.
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
