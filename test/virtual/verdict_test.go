package virtual_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/client"
)

const (
	// stampRound is what a stamp of the log loses: it counts whole milliseconds.
	stampRound = time.Millisecond
	// commitTime is how long an entry may take from its proposal in calm weather.
	commitTime = 2 * time.Second
)

// judge compares what the clients saw with what the cluster did, once it is quiet.
func judge(c *cluster, l *ledger) counts {
	c.t.Helper()
	faults := l.check()
	var h *history
	if !within(30*time.Second, func() bool { return c.level() }) {
		faults = append(faults, "the nodes do not catch up with their leader")
	}
	if h = replay(c, c.chronicler()); !h.sameBytes(c) {
		faults = append(faults, "the nodes' states are not that of the replayed log")
	}
	faults = append(faults, h.faults...)
	faults = append(faults, h.explain(l)...)
	faults = append(faults, h.deadlines(c, l)...)
	c.tap.mu.Lock()
	faults = append(faults, c.tap.faults...)
	c.tap.mu.Unlock()
	for i, f := range faults {
		if i == 10 {
			c.t.Errorf("and %d more", len(faults)-i)
			break
		}
		c.t.Error(f)
	}
	n := l.counts
	n.clusters, n.expiries, n.leaders, n.repeated, n.entries = 1, len(h.expired), len(h.barriers)-1, h.repeated, h.entries
	return n
}

// level says that all nodes have applied the same entries, and nothing is under way.
func (c *cluster) level() bool {
	at := map[uint64]bool{}
	for _, n := range c.nodes {
		last, _ := n.disk.LastIndex()
		at[last] = true
		if r := n.replica(); r != nil {
			at[r.Fork().Revision()<<32] = true
		}
	}
	return len(at) == 2
}

// chronicler is a node whose disk has seen the whole log.
func (c *cluster) chronicler() *node {
	best := c.nodes[0]
	for _, n := range c.nodes {
		last, _ := n.disk.LastIndex()
		if most, _ := best.disk.LastIndex(); last >= most && n.disk.whole() {
			best = n
		}
	}
	return best
}

// explain finds every grant and every release that was acknowledged in the log.
func (h *history) explain(l *ledger) (faults []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, seen := range l.holds {
		e := h.byHold[seen.id]
		if e == nil || e.Lock != seen.lock || e.Token != seen.token || e.SessionId != seen.session || e.Revision != seen.revision {
			faults = append(faults, fmt.Sprintf("%s: a grant that was seen, %+v, is in the log as %v", seen.lock, *seen, e))
		}
		if seen.released && !h.released[seen.id] {
			faults = append(faults, fmt.Sprintf("%s: hold %d was released and is held in the log", seen.lock, seen.id))
		}
		if over := h.expired[seen.session]; over != 0 && seen.ended > over+stampRound {
			faults = append(faults, fmt.Sprintf("%s: hold %d was held until %v, its session expired at %v", seen.lock, seen.id, seen.ended, over))
		}
	}
	return faults
}

// deadlines judges the end of every session: never before its client gave up, at the
// latest two TTLs after the later of its last sign of life and the last new leader, and
// never for one that kept its heartbeats up.
func (h *history) deadlines(c *cluster, l *ledger) (faults []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sessions {
		signs, ok := c.tap.of(s.id)
		over, expired := h.expired[s.id]
		gaveUp := errors.Is(s.why, client.ErrExpired)
		switch {
		case !ok:
			faults = append(faults, fmt.Sprintf("session %d was opened and never seen", s.id))
		case expired && over < signs.deadline()-stampRound:
			faults = append(faults, fmt.Sprintf("session %d expired at %v, before its client's deadline %v", s.id, over, signs.deadline()))
		case expired && over > c.latest(h, signs, over):
			faults = append(faults, fmt.Sprintf("session %d expired at %v only; last sign %v, TTL %v", s.id, over, signs.tried, s.ttl))
		case gaveUp && s.lost > signs.deadline()+stampRound:
			faults = append(faults, fmt.Sprintf("session %d was given up at %v, after its deadline %v", s.id, s.lost, signs.deadline()))
		case gaveUp && s.lost < signs.deadline()-s.ttl/3 && (!expired || s.lost < over):
			faults = append(faults, fmt.Sprintf("session %d was given up at %v, before its deadline %v, and lives", s.id, s.lost, signs.deadline()))
		case s.steady && (expired || gaveUp):
			faults = append(faults, fmt.Sprintf("session %d kept its heartbeats up and was lost at %v (expired: %v)", s.id, s.lost, over))
		}
	}
	return faults
}

// latest is when a session has to have expired. What a cut link held back may have
// arrived when it healed.
func (c *cluster) latest(h *history, s signs, over time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := s.tried
	for _, at := range slices.Concat(h.barriers, c.healed) {
		if at <= over {
			from = max(from, at)
		}
	}
	return from + 2*s.ttl + commitTime
}
