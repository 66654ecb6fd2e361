package failover

import (
	"cmp"
	"slices"
)

// Loss names a leader and the term in which it was lost.
type Loss struct {
	Leader string
	Term   uint64
}

// Tail is where a log ends.
type Tail struct{ Term, Index uint64 }

// Compare is positive if t's log is longer than o's, in raft's sense: whoever has the
// longer log refuses the other its vote.
func (t Tail) Compare(o Tail) int {
	return cmp.Or(cmp.Compare(t.Term, o.Term), cmp.Compare(t.Index, o.Index))
}

// Self is what the node that judges knows of itself, all of one moment.
type Self struct {
	ID string
	// Follower: it neither leads nor stands for election.
	Follower bool
	// Leader is whom it follows; empty if nobody.
	Leader string
	// Term is its own, or a later one in which it was asked for its vote.
	Term uint64
	Tail Tail
	// Saw is the leader that it has seen dead and not alive since.
	Saw Loss
	// Called is the last term whose leader it has called an election against.
	Called uint64
}

// Testifies says whether the node has seen that leader dead and follows it still.
func (s Self) Testifies(loss Loss) bool {
	return s.Follower && s.Leader == loss.Leader && s.Term == loss.Term && s.Saw == loss
}

// Answer is what another voter said when it was asked about a loss.
type Answer struct {
	// Silent: it said nothing in time. It may have seen the same and be about to call.
	Silent bool
	// Absent: it cannot be reached, or calls no elections and does not know the question.
	Absent bool

	// Gone is its testimony: it saw that leader in that term close and refuse.
	Gone bool
	// Term and Tail are as in Self.
	Term uint64
	Tail Tail
}

func (a Answer) said() bool { return !a.Silent && !a.Absent }

// Hearing is all that a verdict rests on.
type Hearing struct {
	Loss Loss
	Self Self
	// Voters are all that vote, this node and the lost leader included.
	Voters []string
	// Answers are those of all voters but this node and the lost leader. A voter without
	// one counts as silent.
	Answers map[string]Answer
}

// Outcome is what a verdict comes to.
type Outcome int

// The outcomes.
const (
	// Drop: there is nothing to call against, for this loss and for good.
	Drop Outcome = iota
	// Wait: not now, perhaps with the next answers.
	Wait
	// Call: call an election.
	Call
)

// Reason says why, in a word that can label a metric.
type Reason string

// The reasons.
const (
	// With Drop.
	Repeated    Reason = "repeated"     // it has called one in this term already
	NotVoter    Reason = "not_voter"    // it does not vote
	NotFollower Reason = "not_follower" // it leads or stands for election
	MovedOn     Reason = "moved_on"     // it follows another leader or term, or somebody knows of a later term
	Alive       Reason = "alive"        // it has not seen this leader dead, or has seen it alive since
	// With Wait.
	ShortLog   Reason = "short_log"   // somebody has a longer log
	NoMajority Reason = "no_majority" // too few saw it
	NotFirst   Reason = "not_first"   // others come first
	// With Call.
	Agreed Reason = "agreed"
)

// Verdict is what the node has to do.
type Verdict struct {
	Outcome Outcome
	Reason  Reason
	// Witnesses are those who saw the loss, this node included, in order.
	Witnesses []string
}

// Judge decides. turn counts from 0 the turns that have passed since the loss: each is one
// voter's, in their order, and after the last the first has its turn again. So whoever has
// missed its own does not call together with the next.
func (h Hearing) Judge(turn int) Verdict {
	if reason := h.obstacle(); reason != "" {
		return Verdict{Outcome: Drop, Reason: reason}
	}
	v := Verdict{Outcome: Wait, Witnesses: h.witnesses()}
	switch {
	case h.anyone(func(a Answer) bool { return a.Tail.Compare(h.Self.Tail) > 0 }):
		v.Reason = ShortLog
	case 2*len(v.Witnesses) <= len(h.Voters):
		v.Reason = NoMajority
	case h.rank() != turn%(len(h.others())+1):
		v.Reason = NotFirst
	default:
		v.Outcome, v.Reason = Call, Agreed
	}
	return v
}

// obstacle is why this node may not call, whatever else the others say.
func (h Hearing) obstacle() Reason {
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
	case !s.Testifies(h.Loss):
		return Alive
	}
	return ""
}

// others are the voters who were to be asked.
func (h Hearing) others() []string {
	return slices.DeleteFunc(slices.Clone(h.Voters), func(id string) bool { return id == h.Self.ID || id == h.Loss.Leader })
}

func (h Hearing) answer(id string) Answer {
	a, ok := h.Answers[id]
	if !ok {
		a.Silent = true
	}
	return a
}

// anyone says whether there is an answer for which ok holds.
func (h Hearing) anyone(ok func(Answer) bool) bool {
	return slices.ContainsFunc(h.others(), func(id string) bool {
		a := h.answer(id)
		return a.said() && ok(a)
	})
}

func (h Hearing) witnesses() []string {
	seen := []string{h.Self.ID}
	for _, id := range h.others() {
		if a := h.answer(id); a.said() && a.Gone {
			seen = append(seen, id)
		}
	}
	slices.Sort(seen)
	return seen
}

// rank is how many may call before this node does: those whose log is as long and whose id
// comes first, also if they have not seen the loss yet, and those of whom nothing is known.
func (h Hearing) rank() int {
	n := 0
	for _, id := range h.others() {
		a := h.answer(id)
		if a.Silent || a.said() && a.Tail == h.Self.Tail && id < h.Self.ID {
			n++
		}
	}
	return n
}
