package fsm

import "slices"

// search walks the graph breadth first, one node at a time, until it reaches a goal.
type search struct {
	graph *graph
	goal  func(node) bool
	// by tells from where a node was reached; the first ones from themselves.
	by map[node]node
	// reached are all nodes in the order in which they were; those before next are done.
	reached []node
	next    int
	// found is the goal, reached from last.
	found       bool
	target, via node
}

func newSearch(g *graph, goal func(node) bool, from ...node) *search {
	s := &search{graph: g, goal: goal, by: make(map[node]node)}
	for _, n := range from {
		if _, known := s.by[n]; !known {
			s.by[n] = n
			s.reached = append(s.reached, n)
		}
	}
	return s
}

// step looks at one node; false says that there is none left.
func (s *search) step() bool {
	if s.next == len(s.reached) {
		return false
	}
	from := s.reached[s.next]
	s.next++
	for _, n := range s.graph.ways(from) {
		if !s.found && s.goal(n) {
			s.found, s.target, s.via = true, n, from
		}
		if _, known := s.by[n]; !known {
			s.by[n] = from
			s.reached = append(s.reached, n)
		}
	}
	return true
}

// run goes on until the goal, the end or the limit of steps. It says whether it came
// to one of the former.
func (s *search) run(left *int) bool {
	for ; *left > 0; *left-- {
		if s.found || !s.step() {
			return true
		}
	}
	return false
}

// meet lets two searches for the same way, from its two ends, take turns. It returns
// the way; nil if there is none or if the limit of steps came first.
func meet(left *int, forth, back *search) []node {
	for ; *left > 0; *left -= 2 {
		if !forth.step() || forth.found {
			return forth.path()
		}
		if !back.step() {
			return nil
		}
		if back.found {
			return back.way()
		}
	}
	return nil
}

// path are the nodes from the start to the goal, without the goal if it is the owner
// with whom a cycle began.
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

// way are the nodes from the goal to the start.
func (s *search) way() []node {
	way := []node{s.target}
	for n := s.via; ; n = s.by[n] {
		way = append(way, n)
		if n == s.by[n] {
			return way
		}
	}
}
