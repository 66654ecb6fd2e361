package autopilot

import (
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/server/internal/probe"
)

// maxRound bounds the time that one round of probes adds to a member's silence. While this process, or its machine, was
// stopped, nobody was asked: that time is no silence of others.
const maxRound = 3 * updateInterval

// reply is what one round has shown of a member.
type reply struct {
	id string
	// answers is set if the member has answered. If another incarnation has, the member has lost its data, and never
	// returns as what it was.
	answers bool
	// follows is set if it follows this leader in this term.
	follows       bool
	term, applied uint64
	err           error
}

// replyOf interprets a member's answer to the leader of a term. incarnation is the one recorded for the member, empty if
// none is.
func replyOf(a probe.Answer, incarnation, leader string, term uint64) reply {
	r := reply{id: a.Peer.ID, err: a.Err}
	if a.State == nil {
		return r
	}
	// A node that does not know this one yet leaves its own incarnation out.
	if is := a.State.Member.GetIncarnation(); is != "" && incarnation != "" && is != incarnation {
		return r
	}
	r.answers, r.term, r.applied = true, a.State.Term, a.State.AppliedIndex
	r.follows = a.State.Term == term && a.State.LeaderId == leader
	return r
}

// contact is what this leader knows of a member.
type contact struct {
	// reply is the last one, with term and applied of the last answer.
	reply
	// silent is for how long the member has not answered, and apart for how long it has not followed this leader.
	silent, apart time.Duration
}

// contacts are the contacts with all members. It is safe for concurrent use.
type contacts struct {
	mu   sync.Mutex // guards the fields below
	last time.Time  // the last round, zero before the first
	byID map[string]contact
}

// record takes in the replies of a round. It forgets members that are not among them.
func (c *contacts) record(now time.Time, replies []reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var passed time.Duration
	if !c.last.IsZero() {
		passed = min(now.Sub(c.last), maxRound)
	}
	byID := make(map[string]contact, len(replies))
	for _, r := range replies {
		was, known := c.byID[r.id]
		is := contact{reply: r}
		if known && !r.answers {
			is.silent, is.term, is.applied = was.silent+passed, was.term, was.applied
		}
		if known && !r.follows {
			is.apart = was.apart + passed
		}
		byID[r.id] = is
	}
	c.last, c.byID = now, byID
}

// of returns the contact with a member.
func (c *contacts) of(id string) (contact, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.byID[id]
	return k, ok
}
