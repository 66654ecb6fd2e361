package groupcommit

import (
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func (p *Proposer) queueOf(identity string, cmd *wire.Command, done func(*wire.Result)) {
	for _, no := range p.Submit([]Proposal{{Command: cmd, Identity: identity, Size: 100, Work: 1, Done: done}}, nil, nil) {
		no.Answer()
	}
}

func countIdentities(items []Item) map[string]int {
	n := map[string]int{}
	for _, it := range items {
		n[it.Identity]++
	}
	return n
}

// TestIdentitiesShareEntries floods the queue from 10,000 sessions of one identity, and verifies that another identity
// has its commands in the next entry: a single one, and half of an entry if it has as many.
func TestIdentitiesShareEntries(t *testing.T) {
	const sessions, entry = 10_000, MaxEntryBytes / (100 + itemOverhead)
	for _, few := range []int{1, 10, entry} {
		t.Run(fmt.Sprintf("beside %d", few), func(t *testing.T) {
			p := queueing()
			for session := range uint64(sessions) {
				p.queueOf("flood", acquireOf(session+1, 1, 1), nil)
			}
			for seq := range uint64(few) {
				p.queueOf("ann", acquireOf(sessions+1, seq+1, 1), nil)
			}
			got := countIdentities(p.take().Items)
			if want := min(few, entry/2); got["ann"] < want || got["ann"]+got["flood"] < entry-2 {
				t.Errorf("an entry of %v, ann should have %d, and it has room for %d", got, want, entry)
			}
		})
	}
}

// TestSessionsShareTheirIdentitysPart verifies that the sessions of one identity share its part of an entry, and that
// what one identity leaves goes to the others.
func TestSessionsShareTheirIdentitysPart(t *testing.T) {
	const entry = MaxEntryBytes / (100 + itemOverhead)
	p := queueing()
	for seq := range uint64(entry) {
		p.queueOf("ann", acquireOf(1, seq+1, 1), nil)
		p.queueOf("ben", acquireOf(2, seq+1, 1), nil)
	}
	for session := range uint64(3) {
		p.queueOf("ann", acquireOf(10+session, 1, 1), nil)
	}
	p.queueOf("cid", acquireOf(20, 1, 1), nil)
	b := p.take()
	sessions := map[uint64]int{}
	for _, it := range b.Items {
		sessions[it.Command.GetSessionId()]++
	}
	half := (entry - 1) / 2
	if sessions[20] != 1 || sessions[10]+sessions[11]+sessions[12] != 3 || sessions[1] < half-5 || sessions[1] > half || sessions[2] < half-2 {
		t.Errorf("an entry of %v", sessions)
	}
}

// TestFullQueueCostsTheFloodingIdentity fills the queue from many sessions of one identity. Another identity loses
// nothing and displaces the flood, up to half of the queue.
func TestFullQueueCostsTheFloodingIdentity(t *testing.T) {
	const most = maxBacklog / minCost
	p := queueing()
	refused := map[string]int{}
	submit := func(identity string, session uint64) {
		p.queueOf(identity, acquireOf(session, 1, 1), func(*wire.Result) { refused[identity]++ })
	}
	for session := range uint64(most) {
		submit("flood", session+1)
	}
	submit("flood", most+1)
	if refused["flood"] != 1 {
		t.Fatalf("%v are refused, one more than fits should be", refused)
	}
	p.shed = false // an entry was taken
	for session := range uint64(most / 4) {
		submit("ann", most+2+session)
		submit("flood", 2*most+session)
	}
	if got := countIdentities(p.normal); refused["ann"] > 0 || got["ann"] != most/4 || got["flood"] < most/2 {
		t.Errorf("refused %v, %v are queued", refused, got)
	}
}
