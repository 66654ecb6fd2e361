package peers

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/internal/cluster"
	"github.com/quorumlock/quorumlock/server/internal/directory"
	"github.com/quorumlock/quorumlock/server/internal/rollback"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Keys of the stable store for package rollback.
var (
	bootKey   = []byte("quorumlock.boot")
	memoryKey = []byte("quorumlock.peers")
)

const (
	// keepInterval is how often the memory of the other nodes is written to the disk, if it has changed.
	keepInterval = 800 * time.Millisecond
	// keptStarts and sentStarts are how many starts of terms are stored and sent to others.
	keptStarts, sentStarts = 64, 16
)

// Config configures Peers. All fields are required.
type Config struct {
	Stores    *storage.Stores
	Machine   *fsm.Replicated
	Directory *directory.Directory
	Cluster   *cluster.Cluster
	// Alarm raises an alarm about a node whose log has forked from this one's.
	Alarm func(id, difference string)
	// RolledBack stops this node, because knower knows more of it than its disk has.
	RolledBack func(knower, lacks string)
	// Forked stops this node, because its log has forked from those of most voters.
	Forked func(why string)
	// Disconnect closes the connections with a node.
	Disconnect func(id string)
	// Contact contacts the other members, which then compare themselves with this node.
	Contact func(ctx context.Context)
	// Announced is called with each commit index that a leader announces.
	Announced func(index uint64)
	Logger    hclog.Logger
}

// Peers compares what this node and the others know about each other. It is safe for concurrent use.
type Peers struct {
	cfg    Config
	boot   *rollback.Boot
	memory *rollback.Memory

	mu sync.Mutex // guards the fields below
	// states holds what other nodes said when they last connected, by id.
	states map[string]peerState
	// forked holds the ids of the nodes whose logs have forked from this one's and that know it.
	forked map[string]bool

	latest      atomic.Pointer[wire.TermStart] // where the present term began in the applied state
	termChanged chan struct{}                  // signalled when term has changed
}

// peerState is what another node said about itself when the two last connected.
type peerState struct {
	incarnation string
	position    *wire.LogPosition
}

// Open counts this start.
func Open(cfg Config) (*Peers, error) {
	stable := cfg.Stores.Values
	var last wire.BootRecord
	var kept wire.PeerMemory
	if err := errors.Join(load(stable, bootKey, &last), load(stable, memoryKey, &kept)); err != nil {
		return nil, err
	}
	stored, err := cfg.Stores.Stored()
	if err != nil {
		return nil, err
	}
	var nonce [8]byte
	_, _ = rand.Read(nonce[:]) // never fails
	boot := rollback.NewBoot(&last, binary.BigEndian.Uint64(nonce[:]), stored)
	record, err := proto.Marshal(boot.Record())
	if err == nil {
		err = stable.Set(bootKey, record)
	}
	if err != nil {
		return nil, fmt.Errorf("count this start: %w", err)
	}
	return &Peers{
		cfg: cfg, boot: boot, memory: rollback.Load(&kept), states: map[string]peerState{}, forked: map[string]bool{}, termChanged: make(chan struct{}, 1),
	}, nil
}

// Committed returns the index of the last entry that a node knew to be committed, to about the last second before it
// stopped. values are those of the node's stores.
func Committed(values raft.StableStore) (uint64, error) {
	var kept wire.PeerMemory
	err := load(values, memoryKey, &kept)
	return kept.GetCommittedIndex(), err
}

// load reads a message from the stable store; a missing one leaves it empty.
func load(stable raft.StableStore, key []byte, into proto.Message) error {
	data, err := storage.Get(stable, key)
	if err == nil {
		err = proto.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	return nil
}

// State returns what this node sends to the one with that incarnation.
func (p *Peers) State(incarnation string) *wire.PeerState {
	return &wire.PeerState{
		Stored:      p.boot.Stored,
		Known:       p.memory.Known(incarnation),
		Position:    latest(p.Position(), sentStarts),
		ClockUnixMs: uint64(max(0, time.Now().UnixMilli())),
	}
}

// Position returns how far this node has ever applied the log.
func (p *Peers) Position() *wire.LogPosition {
	now := &wire.LogPosition{}
	p.cfg.Machine.View(func(m *fsm.Machine) { now.Revision, now.TermStarts = m.Revision(), m.TermStarts() })
	return p.memory.Position(now)
}

// latest returns a position with only the last starts of terms.
func latest(at *wire.LogPosition, starts int) *wire.LogPosition {
	return &wire.LogPosition{Revision: at.GetRevision(), TermStarts: at.GetTermStarts()[max(0, len(at.GetTermStarts())-starts):]}
}

// CheckState compares this node with another one and remembers the result. If it returns an error, the two nodes
// must not communicate. If the log has forked, both nodes remember their own branch, and the branch with more
// voters continues.
func (p *Peers) CheckState(id, incarnation string, said *wire.PeerState) error {
	if err := p.compareLogs(id, said.GetPosition()); err != nil {
		return err
	}
	if _, own := p.cfg.Directory.Self(); said.GetKnown().GetIncarnation() == own {
		if lacks := p.boot.Check(said.GetKnown()); lacks != "" {
			p.cfg.RolledBack(id, lacks)
			return fmt.Errorf("%w: %s", status.ErrRolledBack, lacks)
		}
	}
	p.memory.RecordStart(incarnation, said)
	p.mu.Lock()
	p.states[id] = peerState{incarnation, said.GetPosition()}
	delete(p.forked, id)
	p.mu.Unlock()
	return nil
}

// compareLogs returns an error if the other node's log has forked from this one's.
func (p *Peers) compareLogs(id string, theirs *wire.LogPosition) error {
	difference := rollback.Forked(p.Position(), theirs)
	if difference == "" {
		return nil
	}
	p.cfg.Alarm(id, difference)
	return fmt.Errorf("%w: node %q: %s", status.ErrForked, id, difference)
}

// Incompatible stops this node if the logs of most voters have forked from its own. By then, each of them has
// received this node's position, so they raise alarms before this node stops.
func (p *Peers) Incompatible(id string, err error) {
	if !errors.Is(err, status.ErrForked) {
		return
	}
	p.mu.Lock()
	p.forked[id] = true
	p.mu.Unlock()
	p.forkedFromMost()
}

// LatestTerm returns where the present term began in the applied state, or nil before the first one. What was applied
// before the call precedes the next term.
func (p *Peers) LatestTerm() *wire.TermStart { return p.latest.Load() }

// Applied records the present term of the applied state, before anybody learns the results of the entry.
func (p *Peers) Applied(latest *wire.TermStart) {
	if p.latest.Load().GetTerm() == latest.GetTerm() {
		return
	}
	p.latest.Store(latest)
	select {
	case p.termChanged <- struct{}{}:
	default:
	}
}

// recheck disconnects nodes whose logs turn out to have forked, now that this node has applied more, and
// contacts them again. Two leaders of the same term leave entries in two logs that raft considers equal. Only
// the content of the entries distinguishes them.
func (p *Peers) recheck(ctx context.Context) {
	mine := p.Position()
	var others []string
	p.mu.Lock()
	for id, peer := range p.states {
		if rollback.Forked(mine, peer.position) != "" {
			others = append(others, id)
			delete(p.states, id)
		}
	}
	p.mu.Unlock()
	for _, id := range others {
		p.cfg.Disconnect(id)
	}
	if len(others) > 0 {
		p.cfg.Contact(ctx)
	}
}

// forkedFromMost stops this node if the logs of most voters have forked from its own.
func (p *Peers) forkedFromMost() {
	members := p.votersKnown()
	p.mu.Lock()
	var others []string
	for id := range p.forked {
		if slices.Contains(members, id) {
			others = append(others, id)
		}
	}
	p.mu.Unlock()
	if len(others) > len(members)/2 {
		slices.Sort(others)
		p.cfg.Forked(fmt.Sprintf("those of most voters, %v, have another one", others))
	}
}

// votersKnown returns the ids of the voters or, before raft runs, of all members.
func (p *Peers) votersKnown() (ids []string) {
	if p.cfg.Cluster.Raft() != nil {
		return p.cfg.Cluster.Voters()
	}
	_, _, members := p.cfg.Directory.Record()
	for id := range members {
		ids = append(ids, id)
	}
	return ids
}

// Incarnation implements peerport.Observer.
func (p *Peers) Incarnation(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.states[id].incarnation
}

// InTerm implements peerport.Observer.
func (p *Peers) InTerm(incarnation string, term uint64) {
	p.memory.Learn(incarnation, term, 0, 0, 0)
}

// Voted implements peerport.Observer.
func (p *Peers) Voted(incarnation string, term uint64) {
	p.memory.Learn(incarnation, 0, term, 0, 0)
}

// Acknowledged implements peerport.Observer.
func (p *Peers) Acknowledged(incarnation string, index uint64) {
	if node := p.cfg.Cluster.Raft(); node != nil {
		p.memory.Learn(incarnation, 0, 0, index, node.CommitIndex())
	}
}

// Announced implements peerport.Observer.
func (p *Peers) Announced(incarnation string, index uint64) {
	p.cfg.Announced(index)
	p.memory.Learn(incarnation, 0, 0, index, index)
}

// Run writes the memory of the other nodes to the disk periodically, and immediately when a term has
// begun, until ctx ends.
func (p *Peers) Run(ctx context.Context) {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	for {
		termChanged := false
		select {
		case <-tick.C:
		case <-p.termChanged:
			termChanged = true
		case <-ctx.Done():
			return
		}
		if termChanged {
			p.recheck(ctx)
		} else if !p.memory.Changed() {
			continue
		}
		if err := p.keep(); err != nil && ctx.Err() == nil {
			p.cfg.Logger.Debug("cannot store what is known about the other nodes", "error", err)
		}
	}
}

func (p *Peers) keep() error {
	_, _, members := p.cfg.Directory.Record()
	var incarnations []string
	for _, m := range members {
		incarnations = append(incarnations, m.GetIncarnation())
	}
	data, err := proto.Marshal(p.memory.Keep(incarnations, latest(p.Position(), keptStarts)))
	if err != nil {
		return err
	}
	return p.cfg.Stores.SetIndependently(memoryKey, data)
}

var _ peerport.Observer = (*Peers)(nil)

// MedianClock returns the median of the voters' clocks, as far as they are known. own is the clock of this
// node.
func (p *Peers) MedianClock(own uint64) uint64 {
	var others []string
	p.mu.Lock()
	for id, peer := range p.states {
		if p.cfg.Cluster.Votes(id) {
			others = append(others, peer.incarnation)
		}
	}
	p.mu.Unlock()
	return p.memory.Median(own, others)
}

// Nonce returns the random number of this start.
func (p *Peers) Nonce() uint64 { return p.boot.Stored.GetNonce() }

// Boot returns the number of this start, from 1 on.
func (p *Peers) Boot() uint64 { return p.boot.Stored.GetBoot() }

// Committed returns the largest index that this node knows to be committed.
func (p *Peers) Committed() uint64 { return p.memory.Committed() }
