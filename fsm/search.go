package fsm

import "slices"

// search traverses the graph breadth first, one node per step, until it reaches a goal.
type search struct {
	graph *graph
	goal  func(node) bool
	// reached are all nodes in the order they were reached. The nodes before next are done.
	reached []reached
	next    int
	// known contains the same nodes once they are more than few.
	known map[node]struct{}
	// found is true once the goal was reached: target, from the node at index via.
	found  bool
	target node
	via    int
}

// reached is a node and the index of its predecessor. A start node is its own predecessor.
type reached struct {
	node
	by int
}

// few is the number of nodes that are searched linearly, without an index. Most searches reach no more.
const few = 16

func newSearch(g *graph, goal func(node) bool, from ...node) *search {
	s := &search{graph: g, goal: goal, reached: make([]reached, 0, few)}
	for _, n := range from {
		s.reach(n, len(s.reached))
	}
	return s
}

func (s *search) reach(n node, by int) {
	if s.knows(n) {
		return
	}
	s.reached = append(s.reached, reached{n, by})
	switch {
	case s.known != nil:
		s.known[n] = struct{}{}
	case len(s.reached) > few:
		s.known = make(map[node]struct{}, 4*few)
		for _, r := range s.reached {
			s.known[r.node] = struct{}{}
		}
	}
}

func (s *search) knows(n node) bool {
	if s.known != nil {
		_, known := s.known[n]
		return known
	}
	return slices.ContainsFunc(s.reached, func(r reached) bool { return r.node == n })
}

// step processes one node, and charges a unit for it and one for each way out. It reports whether there
// was a node left.
func (s *search) step(left *int) bool {
	if s.next == len(s.reached) {
		return false
	}
	ways := s.graph.ways(s.reached[s.next].node)
	*left -= 1 + len(ways)
	for _, n := range ways {
		if !s.found && s.goal(n) {
			s.found, s.target, s.via = true, n, s.next
		}
		s.reach(n, s.next)
	}
	s.next++
	return true
}

// run searches until it reaches the goal, the end or the limit of units. It reports false only for the limit.
func (s *search) run(left *int) bool {
	for *left > 0 {
		if s.found || !s.step(left) {
			return true
		}
	}
	return false
}

// searchBothEnds alternates between two searches for the same path, one from each end. It returns the path, or nil
// if there is none or if the limit of units was reached first.
func searchBothEnds(left *int, forth, back *search) []node {
	for *left > 0 {
		if !forth.step(left) || forth.found {
			return forth.path()
		}
		if !back.step(left) {
			return nil
		}
		if back.found {
			return back.way()
		}
	}
	return nil
}

// path returns the nodes from the start to the goal, without the goal if it is the owner with which
// a cycle begins.
func (s *search) path() []node {
	if !s.found {
		return nil
	}
	path := s.way()
	slices.Reverse(path)
	if path[len(path)-1].kind == release {
		path = path[:len(path)-1]
	}
	return path
}

// way returns the nodes from the goal to the start.
func (s *search) way() []node {
	way := []node{s.target}
	for at := s.via; ; at = s.reached[at].by {
		way = append(way, s.reached[at].node)
		if at == s.reached[at].by {
			return way
		}
	}
}
