package rollback

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxPeers bounds those that are remembered and may not be members yet.
const maxPeers = 64

// Memory is what a node remembers of the others, and of how far the log is committed. All methods
// are safe for concurrent use and take no longer than a lock.
type Memory struct {
	mu     sync.Mutex // guards what follows
	peers  map[string]*peer
	kept   *wire.PeerMemory // as it was loaded
	commit uint64
	dirty  bool
}

// peer is one incarnation of a node.
type peer struct {
	known *wire.KnownState
	// clock is what its wall clock showed at heard.
	clock uint64
	heard time.Time
}

// Load returns the memory that was kept.
func Load(kept *wire.PeerMemory) *Memory {
	m := &Memory{peers: map[string]*peer{}, kept: kept, commit: kept.GetCommittedIndex()}
	for _, known := range kept.GetPeers() {
		known = proto.CloneOf(known)
		known.LastStart, known.Before = cmp.Or(known.LastStart, &wire.DiskEvidence{}), cmp.Or(known.Before, &wire.DiskEvidence{})
		m.peers[known.Incarnation] = &peer{known: known}
	}
	return m
}

// Met takes in what another node says of its start and its clock. It comes before whatever else is
// learned of that node over the same connection.
func (m *Memory) Met(incarnation string, said *wire.PeerState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[incarnation]
	if p == nil {
		p = &peer{known: &wire.KnownState{Incarnation: incarnation, LastStart: &wire.DiskEvidence{}, Before: &wire.DiskEvidence{}}}
		m.peers[incarnation] = p
	}
	p.clock, p.heard = said.GetClockUnixS(), time.Now()
	if stored := said.GetStored(); stored.GetBoot() > p.known.LastStart.Boot {
		p.known.Before = merge(p.known.Before, p.known.LastStart)
		p.known.LastStart = &wire.DiskEvidence{Boot: stored.Boot, Nonce: stored.Nonce, Term: stored.Term, VoteTerm: stored.VoteTerm}
		m.dirty = true
	}
}

// merge is the evidence of two starts.
func merge(earlier, later *wire.DiskEvidence) *wire.DiskEvidence {
	return &wire.DiskEvidence{
		Boot: later.Boot, Nonce: later.Nonce,
		Term:           max(earlier.Term, later.Term),
		VoteTerm:       max(earlier.VoteTerm, later.VoteTerm),
		CommittedIndex: max(earlier.CommittedIndex, later.CommittedIndex),
	}
}

// raise never lowers a field.
func (m *Memory) raise(field *uint64, value uint64) {
	if value > *field {
		*field = value
		m.dirty = true
	}
}

// Learn raises what is known of a node: that it was in a term, voted in one, and had all entries up
// to an index of which those up to committed are committed. Zero says nothing.
func (m *Memory) Learn(incarnation string, term, voteTerm, index, committed uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.raise(&m.commit, committed)
	p := m.peers[incarnation]
	if p == nil {
		return // it has not been met
	}
	m.raise(&p.known.LastStart.Term, term)
	m.raise(&p.known.LastStart.VoteTerm, voteTerm)
	m.raise(&p.known.LastStart.CommittedIndex, min(index, committed))
}

// Committed is the last entry that is known to be committed.
func (m *Memory) Committed() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.commit
}

// Known returns a copy of what is known of a node; nil if it was never met.
func (m *Memory) Known(incarnation string) *wire.KnownState {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[incarnation]
	if p == nil {
		return nil
	}
	return proto.CloneOf(p.known)
}

// Position is the later of the present one and the one that was kept: a node that has just started
// has yet to apply what it applied before.
func (m *Memory) Position(present *wire.LogPosition) *wire.LogPosition {
	if kept := m.kept.GetPosition(); kept.GetRevision() > present.GetRevision() {
		return kept
	}
	return present
}

// Changed reports whether there is something to keep that Keep has not returned yet.
func (m *Memory) Changed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dirty
}

// Keep returns what to keep of the members that have these incarnations.
func (m *Memory) Keep(incarnations []string, present *wire.LogPosition) *wire.PeerMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dirty = false
	keep := &wire.PeerMemory{CommittedIndex: m.commit, Position: m.Position(present)}
	for incarnation, p := range m.peers {
		if !slices.Contains(incarnations, incarnation) {
			if len(m.peers) > maxPeers {
				delete(m.peers, incarnation)
			}
			continue
		}
		keep.Peers = append(keep.Peers, proto.CloneOf(p.known))
	}
	slices.SortFunc(keep.Peers, func(a, b *wire.KnownState) int {
		return cmp.Compare(a.Incarnation, b.Incarnation)
	})
	return keep
}

// Median is the median of the wall clocks of this node and of those that it has met among others, in
// seconds since 1970; the lower one of two.
func (m *Memory) Median(own uint64, others []string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	clocks := []uint64{own}
	for _, incarnation := range others {
		if p := m.peers[incarnation]; p != nil && !p.heard.IsZero() {
			clocks = append(clocks, p.clock+uint64(time.Since(p.heard)/time.Second))
		}
	}
	slices.Sort(clocks)
	return clocks[(len(clocks)-1)/2]
}
