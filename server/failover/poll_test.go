package failover_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/quorumlock/quorumlock/server/failover"
)

var lost = failover.Loss{Leader: "n1", Term: 7}

var end = failover.Tail{Term: 7, Index: 40}

// poll returns the Poll of n2 in a cluster of three after n1 has died. n3 saw it as well.
func poll() failover.Poll {
	return failover.Poll{
		Loss:    lost,
		Voters:  []string{"n1", "n2", "n3"},
		Self:    failover.Self{ID: "n2", Follower: true, Leader: "n1", Term: 7, Tail: end, Observed: lost},
		Answers: map[string]failover.Answer{"n3": {Lost: true, Term: 7, Tail: end}},
	}
}

func TestDeadLeader(t *testing.T) {
	v := poll().Decide(0)
	if v.Outcome != failover.Call || v.Reason != failover.Agreed || !slices.Equal(v.Observers, []string{"n2", "n3"}) {
		t.Errorf("got %+v", v)
	}
}

// mustNotCall are polls after which a node must not call an election.
var mustNotCall = map[string]struct {
	change func(*failover.Poll)
	want   failover.Outcome
	reason failover.Reason
}{
	"a leader that was not seen dead": {
		func(h *failover.Poll) { h.Self.Observed = failover.Loss{} }, failover.Drop, failover.Alive},
	"a death seen in another term": {
		func(h *failover.Poll) { h.Self.Observed.Term = 6 }, failover.Drop, failover.Alive},
	"the death of another leader": {
		func(h *failover.Poll) { h.Self.Observed.Leader = "n3" }, failover.Drop, failover.Alive},
	"only one follower saw it": {
		func(h *failover.Poll) { h.Answers["n3"] = failover.Answer{Term: 7, Tail: end} }, failover.Wait, failover.NoMajority},
	"nobody else answers": {
		func(h *failover.Poll) { h.Answers["n3"] = failover.Answer{Silent: true} }, failover.Wait, failover.NoMajority},
	"nobody else was asked": {
		func(h *failover.Poll) { h.Answers = nil }, failover.Wait, failover.NoMajority},
	"nobody else knows the question": {
		func(h *failover.Poll) { h.Answers["n3"] = failover.Answer{Absent: true, Lost: true} }, failover.Wait, failover.NoMajority},
	"a testimony that came with silence": {
		func(h *failover.Poll) {
			h.Answers["n3"] = failover.Answer{Silent: true, Lost: true, Term: 7, Tail: end}
		}, failover.Wait, failover.NoMajority},
	"a witness that does not vote": {
		func(h *failover.Poll) {
			h.Voters = []string{"n1", "n2", "n4"}
			h.Answers["n4"] = failover.Answer{Term: 7, Tail: end}
		}, failover.Wait, failover.NoMajority},
	"the lost leader's own word": {
		func(h *failover.Poll) {
			h.Answers = map[string]failover.Answer{"n1": {Lost: true, Term: 7}, "n3": {Term: 7, Tail: end}}
		}, failover.Wait, failover.NoMajority},
	"two of five": {
		func(h *failover.Poll) { h.Voters = append(h.Voters, "n4", "n5") }, failover.Wait, failover.NoMajority},
	"a cluster of two": {
		func(h *failover.Poll) { h.Voters = []string{"n1", "n2"} }, failover.Wait, failover.NoMajority},
	"a longer log elsewhere": {
		func(h *failover.Poll) {
			h.Answers["n3"] = failover.Answer{Lost: true, Term: 7, Tail: failover.Tail{Term: 7, Index: 41}}
		},
		failover.Wait, failover.ShortLog},
	"a log of a later term elsewhere": {
		func(h *failover.Poll) {
			h.Self.Tail = failover.Tail{Term: 6, Index: 99}
			h.Answers["n3"] = failover.Answer{Lost: true, Term: 7, Tail: failover.Tail{Term: 7, Index: 1}}
		}, failover.Wait, failover.ShortLog},
	"a longer log of who saw nothing": {
		func(h *failover.Poll) {
			h.Voters = append(h.Voters, "n4", "n5")
			h.Answers["n4"] = failover.Answer{Lost: true, Term: 7, Tail: end}
			h.Answers["n5"] = failover.Answer{Term: 7, Tail: failover.Tail{Term: 7, Index: 41}}
		}, failover.Wait, failover.ShortLog},
	"a non-voter": {
		func(h *failover.Poll) { h.Voters = []string{"n1", "n3"} }, failover.Drop, failover.NotVoter},
	"a candidate or a leader": {
		func(h *failover.Poll) { h.Self.Follower = false }, failover.Drop, failover.NotFollower},
	"who follows nobody": {
		func(h *failover.Poll) { h.Self.Leader = "" }, failover.Drop, failover.MovedOn},
	"who follows another leader": {
		func(h *failover.Poll) { h.Self.Leader = "n3" }, failover.Drop, failover.MovedOn},
	"who is in a later term": {
		func(h *failover.Poll) { h.Self.Term = 8 }, failover.Drop, failover.MovedOn},
	"an election under way elsewhere": {
		func(h *failover.Poll) { h.Answers["n3"] = failover.Answer{Term: 8, Tail: end} }, failover.Drop, failover.MovedOn},
	"a second time in a term": {
		func(h *failover.Poll) { h.Self.Called = 7 }, failover.Drop, failover.Repeated},
	"an earlier term than that of the last call": {
		func(h *failover.Poll) { h.Self.Called = 8 }, failover.Drop, failover.Repeated},
}

func TestWhatMustNotCall(t *testing.T) {
	for name, c := range mustNotCall {
		t.Run(name, func(t *testing.T) {
			h := poll()
			c.change(&h)
			for turn := range 10 {
				if v := h.Decide(turn); v.Outcome != c.want || v.Reason != c.reason {
					t.Errorf("turn %d: got %+v, want %v for %q", turn, v, c.want, c.reason)
				}
			}
		})
	}
}

// TestTurns verifies that a later voter waits for the turns of those before it, and then calls without them.
func TestTurns(t *testing.T) {
	first := failover.Answer{Lost: true, Term: 7, Tail: end}
	h := poll()
	h.Self.ID = "n5"
	h.Voters = []string{"n1", "n2", "n3", "n4", "n5"}
	h.Answers = map[string]failover.Answer{
		"n2": first,
		"n3": {Lost: true, Term: 7, Tail: failover.Tail{Term: 7, Index: 39}}, // it cannot win
		"n4": {Silent: true},
	}
	for turn, want := range []failover.Reason{failover.NotFirst, failover.NotFirst, failover.Agreed, failover.NotFirst, failover.NotFirst, failover.NotFirst, failover.Agreed} {
		if v := h.Decide(turn); v.Reason != want {
			t.Errorf("turn %d: got %q, want %q", turn, v.Reason, want)
		}
	}
	h.Answers["n4"] = failover.Answer{Absent: true}
	if v := h.Decide(1); v.Reason != failover.Agreed {
		t.Errorf("got %q with one voter before it", v.Reason)
	}
}

// TestTurnsOfDrainedVoters verifies that drained voters call after all others with an equal log.
func TestTurnsOfDrainedVoters(t *testing.T) {
	equal := failover.Answer{Lost: true, Term: 7, Tail: end}
	for _, c := range []struct {
		self    string
		drained []string
		turn    int
	}{
		{"n2", nil, 0}, {"n2", []string{"n2"}, 3}, {"n2", []string{"n2", "n4"}, 2}, {"n4", []string{"n2"}, 1}, {"n4", []string{"n2", "n4"}, 3},
		{"n5", []string{"n2", "n3"}, 1},
	} {
		h := poll()
		h.Self.ID, h.Drained, h.Answers = c.self, c.drained, map[string]failover.Answer{}
		h.Voters = []string{"n1", "n2", "n3", "n4", "n5"}
		for _, id := range h.Voters[1:] {
			if id != c.self {
				h.Answers[id] = equal
			}
		}
		for turn := range 4 {
			if v := h.Decide(turn); (v.Outcome == failover.Call) != (turn == c.turn) {
				t.Errorf("%s with %v drained: turn %d: %+v", c.self, c.drained, turn, v)
			}
		}
	}
}

// TestTurnsOfSilentVoters verifies that silent voters have a turn and absent ones do not, whatever
// else their answers contain.
func TestTurnsOfSilentVoters(t *testing.T) {
	h := poll()
	h.Self.ID = "n5"
	h.Voters = []string{"n1", "n2", "n3", "n4", "n5"}
	gone := failover.Answer{Lost: true, Term: 7, Tail: failover.Tail{Term: 7, Index: 39}}
	longer := failover.Tail{Term: 8, Index: 99}
	for name, c := range map[string]struct {
		answer *failover.Answer
		turn   int
	}{
		"no answer":                    {nil, 1},
		"silent":                       {&failover.Answer{Silent: true, Tail: longer, Term: 9}, 1},
		"absent, with as long a log":   {&failover.Answer{Absent: true, Tail: end}, 0},
		"absent, with more than it is": {&failover.Answer{Absent: true, Tail: longer, Term: 9}, 0},
	} {
		h.Answers = map[string]failover.Answer{"n3": gone, "n4": gone}
		if c.answer != nil {
			h.Answers["n2"] = *c.answer
		}
		for turn := range 2 {
			if v := h.Decide(turn); (v.Outcome == failover.Call) != (turn == c.turn) {
				t.Errorf("%s: turn %d: %+v", name, turn, v)
			}
		}
	}
}

// TestTestimony verifies that a node testifies only to the loss of the leader that it currently follows, in
// its term.
func TestTestimony(t *testing.T) {
	for name, change := range map[string]func(*failover.Self){
		"":                    func(*failover.Self) {},
		"a candidate":         func(s *failover.Self) { s.Follower = false },
		"another leader's":    func(s *failover.Self) { s.Leader = "n3" },
		"in a later term":     func(s *failover.Self) { s.Term = 8 },
		"saw another's death": func(s *failover.Self) { s.Observed.Leader = "n3" },
		"saw it alive since":  func(s *failover.Self) { s.Observed = failover.Loss{} },
	} {
		self := poll().Self
		if change(&self); self.Confirms(lost) != (name == "") {
			t.Errorf("%q testifies: %v", name, self.Confirms(lost))
		}
	}
}

// condition is a possible state of a voter after the leader's death.
type condition struct {
	silent, absent bool
	saw, follows   bool
	long           bool // its log is longer
	later          bool // it was asked for its vote in a later term
	called         bool
}

func conditions() (all []condition) {
	all = append(all, condition{silent: true}, condition{absent: true})
	for bits := range 32 {
		bit := func(i int) bool { return bits>>i&1 == 1 }
		all = append(all, condition{saw: bit(0), follows: bit(1), long: bit(2), later: bit(3), called: bit(4)})
	}
	return all
}

func (c condition) tail() failover.Tail {
	if c.long {
		return end
	}
	return failover.Tail{Term: end.Term, Index: end.Index - 1}
}

func (c condition) self(id string) failover.Self {
	s := failover.Self{ID: id, Follower: c.follows, Term: lost.Term, Tail: c.tail()}
	if c.follows {
		s.Leader = lost.Leader
	}
	if c.saw {
		s.Observed = lost
	}
	if c.later {
		s.Term++
	}
	if c.called {
		s.Called = lost.Term
	}
	return s
}

func (c condition) answer(id string) failover.Answer {
	s := c.self(id)
	return failover.Answer{Silent: c.silent, Absent: c.absent, Lost: s.Confirms(lost), Term: s.Term, Tail: s.Tail}
}

// world is a cluster whose leader n1 is gone. It holds the other voters, from n2 on.
type world []condition

func (w world) poll(i int) failover.Poll {
	h := failover.Poll{Loss: lost, Voters: []string{"n1"}, Answers: map[string]failover.Answer{}}
	for j, c := range w {
		id := fmt.Sprint("n", j+2)
		h.Voters = append(h.Voters, id)
		if i == j {
			h.Self = c.self(id)
		} else {
			h.Answers[id] = c.answer(id)
		}
	}
	return h
}

// may is an independent formulation of the rule: it reports whether voter i may call at all.
func (w world) may(i int) bool {
	me, observers := w[i], 0
	for j, c := range w {
		known := !c.silent && !c.absent || i == j
		if known && (c.later || c.long && !me.long) {
			return false
		}
		if known && c.saw && c.follows {
			observers++
		}
	}
	return me.saw && me.follows && !me.called && observers >= (len(w)+1)/2+1
}

// callers returns the voters that call in each turn.
func (w world) callers() (ids [][]int) {
	ids = make([][]int, len(w))
	for i, c := range w {
		if c.silent || c.absent {
			continue
		}
		h := w.poll(i)
		for turn := range ids {
			if h.Decide(turn).Outcome == failover.Call {
				ids[turn] = append(ids[turn], i)
			}
		}
	}
	return ids
}

func (w world) check(t *testing.T) {
	t.Helper()
	var all []int
	for turn, now := range w.callers() {
		if len(now) > 1 {
			t.Errorf("%+v: %v call in turn %d", w, now, turn)
		}
		all = append(all, now...)
	}
	for i, c := range w {
		if !c.silent && !c.absent && slices.Contains(all, i) != w.may(i) {
			t.Errorf("%+v: voter %d calls: %v, may: %v", w, i, slices.Contains(all, i), w.may(i))
		}
	}
}

// TestEveryWorldOfThree checks all states of the two other voters in a cluster of three: those that call are
// exactly those that may, and never two in one turn.
func TestEveryWorldOfThree(t *testing.T) {
	all := conditions()
	for _, a := range all {
		for _, b := range all {
			world{a, b}.check(t)
		}
	}
}

// TestWorldsOfFive checks a cluster of five, for those states of the other voters that matter most.
func TestWorldsOfFive(t *testing.T) {
	var few []condition
	for _, c := range conditions() {
		if !c.called && (c.silent || c.absent || c.follows) {
			few = append(few, c)
		}
	}
	someCalled := false
	for _, a := range few {
		for _, b := range few {
			for _, c := range few {
				for _, d := range few {
					w := world{a, b, c, d}
					w.check(t)
					someCalled = someCalled || len(w.callers()[0]) == 1
				}
			}
		}
	}
	if !someCalled {
		t.Error("nobody ever calls")
	}
}
