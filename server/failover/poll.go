package failover

import (
	"cmp"
	"slices"
)

// Loss identifies a leader and the term in which it was lost.
type Loss struct {
	Leader string
	Term   uint64
}

// Tail is the last entry of a log.
type Tail struct{ Term, Index uint64 }

// Compare returns a positive number if t's log is longer than o's, in raft's sense: a node with a longer log
// refuses its vote to the other.
func (t Tail) Compare(o Tail) int {
	return cmp.Or(cmp.Compare(t.Term, o.Term), cmp.Compare(t.Index, o.Index))
}

// Self is what the deciding node knows of itself, all at the same moment.
type Self struct {
	ID string
	// Follower is true if it neither leads nor is a candidate.
	Follower bool
	// Leader is the leader it follows; empty if none.
	Leader string
	// Term is its own term, or a later one in which it was asked for its vote.
	Term uint64
	Tail Tail
	// Observed is the leader that it saw die and has not seen alive since.
	Observed Loss
	// Called is the last term against whose leader it called an election.
	Called uint64
}

// Confirms reports whether the node saw that leader die and still follows it.
func (s Self) Confirms(loss Loss) bool {
	return s.Follower && s.Leader == loss.Leader && s.Term == loss.Term && s.Observed == loss
}

// Answer is another voter's answer to the question about a loss.
type Answer struct {
	// Silent is set if it did not answer in time. It may have seen the loss too and be about to call.
	Silent bool
	// Absent is set if it is unreachable, or calls no elections and does not know the question.
	Absent bool

	// Lost is its testimony: it saw that leader, in that term, close its connections and refuse new ones.
	Lost bool
	// Term and Tail are as in Self.
	Term uint64
	Tail Tail
}

func (a Answer) said() bool { return !a.Silent && !a.Absent }

// Poll is the complete input of a decision.
type Poll struct {
	Loss Loss
	Self Self
	// Voters are all voters, including this node and the lost leader.
	Voters []string
	// Drained are the voters that should not lead. They call last.
	Drained []string
	// Answers are the answers of all voters except this node and the lost leader. A voter without an answer
	// counts as silent.
	Answers map[string]Answer
}

// Outcome is the decision in a Decision.
type Outcome int

// Outcomes of a decision.
const (
	// Drop means never to call an election for this loss.
	Drop Outcome = iota
	// Wait means not to call now, but perhaps after the next answers.
	Wait
	// Call means to call an election now.
	Call
)

// Reason is the reason for an outcome. Its values can serve as metric labels.
type Reason string

// Reasons, by outcome.
const (
	// With Drop.
	Repeated    Reason = "repeated"     // it has already called an election in this term
	NotVoter    Reason = "not_voter"    // it is not a voter
	NotFollower Reason = "not_follower" // it leads or is a candidate
	MovedOn     Reason = "moved_on"     // it follows another leader or term, or a voter knows of a later term
	Alive       Reason = "alive"        // it has not seen this leader die, or has seen it alive since
	// With Wait.
	ShortLog   Reason = "short_log"   // a voter has a longer log
	NoMajority Reason = "no_majority" // too few voters saw the loss
	NotFirst   Reason = "not_first"   // it is another voter's turn
	// With Call.
	Agreed Reason = "agreed"
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{Repeated, NotVoter, NotFollower, MovedOn, Alive, ShortLog, NoMajority, NotFirst, Agreed}
}

// Decision is what the node should do, and why.
type Decision struct {
	Outcome Outcome
	Reason  Reason
	// Observers are the voters that saw the loss, including this node, sorted.
	Observers []string
}

// Decide decides what to do. turn is the number of turns that have passed since the loss, from 0. Each turn
// belongs to one voter, in their order, and after the last voter the first has its turn again. So a voter
// that missed its turn does not call together with the next one.
func (h Poll) Decide(turn int) Decision {
	if reason := h.dropReason(); reason != "" {
		return Decision{Outcome: Drop, Reason: reason}
	}
	v := Decision{Outcome: Wait, Observers: h.observers()}
	switch {
	case h.anyone(func(a Answer) bool { return a.Tail.Compare(h.Self.Tail) > 0 }):
		v.Reason = ShortLog
	case 2*len(v.Observers) <= len(h.Voters):
		v.Reason = NoMajority
	case h.rank() != turn%(len(h.others())+1):
		v.Reason = NotFirst
	default:
		v.Outcome, v.Reason = Call, Agreed
	}
	return v
}

// dropReason returns the reason why this node must never call for this loss, or "" if there is none.
func (h Poll) dropReason() Reason {
	s := h.Self
	switch {
	case s.Called >= h.Loss.Term:
		return Repeated
	case !slices.Contains(h.Voters, s.ID):
		return NotVoter
	case !s.Follower:
		return NotFollower
	case s.Leader != h.Loss.Leader, s.Term != h.Loss.Term:
		return MovedOn
	case h.anyone(func(a Answer) bool { return a.Term > h.Loss.Term }):
		return MovedOn
	case !s.Confirms(h.Loss):
		return Alive
	}
	return ""
}

// others returns the voters that were to be asked.
func (h Poll) others() []string {
	return slices.DeleteFunc(slices.Clone(h.Voters), func(id string) bool { return id == h.Self.ID || id == h.Loss.Leader })
}

func (h Poll) answer(id string) Answer {
	a, ok := h.Answers[id]
	if !ok {
		a.Silent = true
	}
	return a
}

// anyone reports whether ok holds for any answer.
func (h Poll) anyone(ok func(Answer) bool) bool {
	return slices.ContainsFunc(h.others(), func(id string) bool {
		a := h.answer(id)
		return a.said() && ok(a)
	})
}

func (h Poll) observers() []string {
	seen := []string{h.Self.ID}
	for _, id := range h.others() {
		if a := h.answer(id); a.said() && a.Lost {
			seen = append(seen, id)
		}
	}
	slices.Sort(seen)
	return seen
}

// rank returns how many voters may call before this node: those with an equal log that come before it, even if
// they have not seen the loss yet, and those of which nothing is known.
func (h Poll) rank() int {
	n := 0
	for _, id := range h.others() {
		a := h.answer(id)
		if a.Silent || a.said() && a.Tail == h.Self.Tail && h.before(id, h.Self.ID) {
			n++
		}
	}
	return n
}

// before reports whether a voter's turn comes before that of another one: by their IDs, and drained ones last.
func (h Poll) before(a, b string) bool {
	last := slices.Contains(h.Drained, a)
	if last != slices.Contains(h.Drained, b) {
		return !last
	}
	return a < b
}
