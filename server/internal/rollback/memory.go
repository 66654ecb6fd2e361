package rollback

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// maxPeers bounds the remembered nodes. Nodes that are not members yet are remembered too.
const maxPeers = 64

// Memory is what a node remembers of the other nodes and of how far the log is committed. All methods are
// safe for concurrent use and do no I/O.
type Memory struct {
	mu     sync.Mutex // guards the fields below
	peers  map[string]*peer
	kept   *wire.PeerMemory // as loaded
	commit uint64
	dirty  bool
}

// peer is one incarnation of a node.
type peer struct {
	known *wire.KnownState
	// clock is its wall clock at heard, in milliseconds since 1970.
	clock uint64
	heard time.Time
}

// Load returns a Memory with the contents of kept.
func Load(kept *wire.PeerMemory) *Memory {
	m := &Memory{peers: map[string]*peer{}, kept: kept, commit: kept.GetCommittedIndex()}
	for _, known := range kept.GetPeers() {
		known = proto.CloneOf(known)
		known.LastStart, known.Before = cmp.Or(known.LastStart, &wire.DiskEvidence{}), cmp.Or(known.Before, &wire.DiskEvidence{})
		m.peers[known.Incarnation] = &peer{known: known}
	}
	return m
}

// RecordStart records another node's start and clock. It must be called before anything else is learned of that node
// over the same connection.
func (m *Memory) RecordStart(incarnation string, said *wire.PeerState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[incarnation]
	if p == nil {
		p = &peer{known: &wire.KnownState{Incarnation: incarnation, LastStart: &wire.DiskEvidence{}, Before: &wire.DiskEvidence{}}}
		m.peers[incarnation] = p
	}
	p.clock, p.heard = said.GetClockUnixMs(), time.Now()
	if stored := said.GetStored(); stored.GetBoot() > p.known.LastStart.Boot {
		p.known.Before = merge(p.known.Before, p.known.LastStart)
		p.known.LastStart = &wire.DiskEvidence{Boot: stored.Boot, Nonce: stored.Nonce, Term: stored.Term, VoteTerm: stored.VoteTerm}
		m.dirty = true
	}
}

// merge combines the evidence of two starts.
func merge(earlier, later *wire.DiskEvidence) *wire.DiskEvidence {
	return &wire.DiskEvidence{
		Boot: later.Boot, Nonce: later.Nonce,
		Term:           max(earlier.Term, later.Term),
		VoteTerm:       max(earlier.VoteTerm, later.VoteTerm),
		CommittedIndex: max(earlier.CommittedIndex, later.CommittedIndex),
	}
}

// raise sets a field to value unless that would lower it.
func (m *Memory) raise(field *uint64, value uint64) {
	if value > *field {
		*field = value
		m.dirty = true
	}
}

// Learn raises what is known of a node: that it was in a term, voted in a term, and had all entries up to
// index, of which those up to committed are committed. A zero means unknown.
func (m *Memory) Learn(incarnation string, term, voteTerm, index, committed uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.raise(&m.commit, committed)
	p := m.peers[incarnation]
	if p == nil {
		return // RecordStart was not called for it
	}
	m.raise(&p.known.LastStart.Term, term)
	m.raise(&p.known.LastStart.VoteTerm, voteTerm)
	m.raise(&p.known.LastStart.CommittedIndex, min(index, committed))
}

// Committed returns the index of the last entry known to be committed.
func (m *Memory) Committed() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.commit
}

// Known returns a copy of what is known of a node, or nil if RecordStart was never called for it.
func (m *Memory) Known(incarnation string) *wire.KnownState {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[incarnation]
	if p == nil {
		return nil
	}
	return proto.CloneOf(p.known)
}

// Position returns the later of the present position and the one that was loaded: a node that has just
// started has yet to reapply what it applied before.
func (m *Memory) Position(present *wire.LogPosition) *wire.LogPosition {
	if kept := m.kept.GetPosition(); kept.GetRevision() > present.GetRevision() {
		return kept
	}
	return present
}

// Changed reports whether there are changes that Keep has not returned yet.
func (m *Memory) Changed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dirty
}

// Keep returns the record to persist. It includes the peers with the given incarnations.
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

// Median returns the median of the wall clocks of this node and of the nodes in others that it has met, in
// milliseconds since 1970. For an even number it is the lower of the two middle ones.
func (m *Memory) Median(own uint64, others []string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	clocks := []uint64{own}
	for _, incarnation := range others {
		if p := m.peers[incarnation]; p != nil && !p.heard.IsZero() {
			clocks = append(clocks, p.clock+uint64(time.Since(p.heard)/time.Millisecond))
		}
	}
	slices.Sort(clocks)
	return clocks[(len(clocks)-1)/2]
}
