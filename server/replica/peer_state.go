package replica

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

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/rollback"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/server/storage"
	"github.com/quorumlock/quorumlock/transport/peerport"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Keys of the stable store for package rollback.
var (
	bootKey   = []byte("quorumlock.boot")
	memoryKey = []byte("quorumlock.peers")
	// rolledBackKey and forkedKey are the keys of the final message of a node that stopped because its disk
	// was rolled back, or because its log has forked from those of most voters.
	rolledBackKey = []byte("quorumlock.rolled-back")
	forkedKey     = []byte("quorumlock.forked")
)

const (
	// memoryInterval is how often the memory of the other nodes is written to the disk, if it has changed.
	memoryInterval = 800 * time.Millisecond
	// startWait is how long a start waits for members that do not answer.
	startWait = 500 * time.Millisecond
	// keptStarts and toldStarts are how many starts of terms are stored and sent to others.
	keptStarts, toldStarts = 64, 16
)

// peerStates compares what this node and the others know about each other.
type peerStates struct {
	r      *Replica
	boot   *rollback.Boot
	memory *rollback.Memory

	mu sync.Mutex // guards the fields below
	// met holds the nodes as they were last met, by id.
	met map[string]metPeer
	// forked holds the ids of the nodes whose logs have forked from this one's and that know it.
	forked map[string]bool

	term  atomic.Uint64 // of the last BeginTerm in the applied state
	begun chan struct{} // signalled when term has changed
}

// metPeer is what another node said about itself when the two last connected.
type metPeer struct {
	incarnation string
	position    *wire.LogPosition
}

// openPeerStates counts this start. It returns an error if the directory belongs to a node that has stopped
// for good.
func openPeerStates(r *Replica) (*peerStates, error) {
	stable := r.stores.Values
	for _, stopped := range []struct {
		key  []byte
		kind error
	}{{divergedKey, status.ErrDiverged}, {rolledBackKey, status.ErrRolledBack}, {forkedKey, status.ErrForked}} {
		if words, err := storage.Get(stable, stopped.key); err != nil {
			return nil, err
		} else if len(words) > 0 {
			return nil, fmt.Errorf("%w: %s", stopped.kind, words)
		}
	}
	var last wire.BootRecord
	var kept wire.PeerMemory
	if err := errors.Join(load(stable, bootKey, &last), load(stable, memoryKey, &kept)); err != nil {
		return nil, err
	}
	stored, err := r.stores.Stored()
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
	return &peerStates{
		r: r, boot: boot, memory: rollback.Load(&kept), met: map[string]metPeer{}, forked: map[string]bool{}, begun: make(chan struct{}, 1),
	}, nil
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

// state returns what this node sends to another one.
func (s *peerStates) state(incarnation string) *wire.PeerState {
	return &wire.PeerState{
		Stored:      s.boot.Stored,
		Known:       s.memory.Known(incarnation),
		Position:    latest(s.position(), toldStarts),
		ClockUnixMs: unixMs(time.Now()),
	}
}

// position returns how far this node has ever applied the log.
func (s *peerStates) position() *wire.LogPosition {
	now := &wire.LogPosition{}
	s.r.machine.View(func(m *fsm.Machine) { now.Revision, now.TermStarts = m.Revision(), m.TermStarts() })
	return s.memory.Position(now)
}

// latest returns a position with only the last starts of terms.
func latest(p *wire.LogPosition, starts int) *wire.LogPosition {
	return &wire.LogPosition{Revision: p.GetRevision(), TermStarts: p.GetTermStarts()[max(0, len(p.GetTermStarts())-starts):]}
}

// meet compares this node with another one and remembers the result. If it returns an error, the two nodes
// must not communicate. If the log has forked, both nodes remember their own branch, and the branch with more
// voters continues.
func (s *peerStates) meet(id, incarnation string, said *wire.PeerState) error {
	if err := s.compareLogs(id, said.GetPosition()); err != nil {
		return err
	}
	if _, own := s.r.directory.Self(); said.GetKnown().GetIncarnation() == own {
		if lacks := s.boot.Check(said.GetKnown()); lacks != "" {
			s.r.rolledBack(id, lacks)
			return fmt.Errorf("%w: %s", status.ErrRolledBack, lacks)
		}
	}
	s.memory.Met(incarnation, said)
	s.mu.Lock()
	s.met[id] = metPeer{incarnation, said.GetPosition()}
	delete(s.forked, id)
	s.mu.Unlock()
	return nil
}

// compareLogs returns an error if the other node's log has forked from this one's.
func (s *peerStates) compareLogs(id string, theirs *wire.LogPosition) error {
	difference := rollback.Forked(s.position(), theirs)
	if difference == "" {
		return nil
	}
	s.r.alarmAbout(id, difference)
	return fmt.Errorf("%w: node %q: %s", status.ErrForked, id, difference)
}

// parted stops this node if the logs of most voters have forked from its own. By then, each of them has
// received this node's position, so they raise alarms before this node stops.
func (s *peerStates) parted(id string, err error) {
	if !errors.Is(err, status.ErrForked) {
		return
	}
	s.mu.Lock()
	s.forked[id] = true
	s.mu.Unlock()
	s.r.forkedFromMost()
}

// applied records the term of the applied state.
func (s *peerStates) applied(term uint64) {
	if s.term.Load() == term {
		return
	}
	s.term.Store(term)
	select {
	case s.begun <- struct{}{}:
	default:
	}
}

// meetAgain disconnects nodes whose logs turn out to have forked, now that this node has applied more, and
// contacts them again. Two leaders of the same term leave entries in two logs that raft considers equal. Only
// the content of the entries distinguishes them.
func (s *peerStates) meetAgain() {
	mine := s.position()
	var others []string
	s.mu.Lock()
	for id, met := range s.met {
		if rollback.Forked(mine, met.position) != "" {
			others = append(others, id)
			delete(s.met, id)
		}
	}
	s.mu.Unlock()
	for _, id := range others {
		s.r.layer.Disconnect(id)
	}
	if len(others) > 0 {
		s.r.askAround(s.r.ctx)
	}
}

// forkedFromMost stops this node if the logs of most voters have forked from its own.
func (r *Replica) forkedFromMost() {
	members := r.votersKnown()
	s := r.states
	s.mu.Lock()
	var others []string
	for id := range s.forked {
		if slices.Contains(members, id) {
			others = append(others, id)
		}
	}
	s.mu.Unlock()
	if len(others) > len(members)/2 {
		slices.Sort(others)
		r.forked(fmt.Sprintf("those of most voters, %v, have another one", others))
	}
}

// votersKnown returns the ids of the voters or, before raft runs, of all members.
func (r *Replica) votersKnown() (ids []string) {
	if r.cluster.Raft() != nil {
		return r.cluster.Voters()
	}
	_, _, members := r.directory.Record()
	for id := range members {
		ids = append(ids, id)
	}
	return ids
}

// rolledBack stops this node for good.
func (r *Replica) rolledBack(knower, lacks string) {
	r.stopForGood(rolledBackKey, status.ErrRolledBack, fmt.Sprintf("%s, as node %q knows.\n"+
		"An old copy of it was put back, or it is in use elsewhere. Votes and entries that this node vouched for are lost here, so it must not take part. "+
		"Nothing was changed. Replace it: %s\n"+
		"That needs a leader. If most of the disks went back, there can be none. %s", lacks, knower, r.advice().Replace("rolled-back"), r.advice().StartOver(nil)))
}

// forked stops this node for good.
func (r *Replica) forked(why string) {
	r.stopForGood(forkedKey, status.ErrForked, fmt.Sprintf("%s.\n"+
		"A disk was rolled back, and the other nodes continued from an earlier point. Entries that this node knows to be committed are not deleted. "+
		"Locks may have been granted here and there; the tokens there are larger. Keep the data directory to see what was granted, and replace this node: %s",
		why, r.advice().Replace("forked")))
}

// stopForGood halts the node and stores the message, so that every later start fails with the same error.
func (r *Replica) stopForGood(key []byte, kind error, words string) {
	if r.halted.Load() != nil {
		return
	}
	if err := r.stores.Values.Set(key, []byte(words)); err != nil {
		r.log.Error("cannot store the reason why this node stops", "error", err)
	}
	r.halt(fmt.Errorf("%w: %s", kind, words))
}

// Incarnation implements peerport.Observer.
func (s *peerStates) Incarnation(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.met[id].incarnation
}

// InTerm implements peerport.Observer.
func (s *peerStates) InTerm(incarnation string, term uint64) {
	s.memory.Learn(incarnation, term, 0, 0, 0)
}

// Voted implements peerport.Observer.
func (s *peerStates) Voted(incarnation string, term uint64) {
	s.memory.Learn(incarnation, 0, term, 0, 0)
}

// Acknowledged implements peerport.Observer.
func (s *peerStates) Acknowledged(incarnation string, index uint64) {
	if node := s.r.cluster.Raft(); node != nil {
		s.memory.Learn(incarnation, 0, 0, index, node.CommitIndex())
	}
}

// Announced implements peerport.Observer.
func (s *peerStates) Announced(incarnation string, index uint64) {
	s.r.catchUp.Announced(index)
	s.memory.Learn(incarnation, 0, 0, index, index)
}

// keepMemory writes the memory of the other nodes to the disk periodically, and immediately when a term has
// begun, until the node stops.
func (r *Replica) keepMemory() {
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	for {
		begun := false
		select {
		case <-tick.C:
		case <-r.states.begun:
			begun = true
		case <-r.ctx.Done():
			return
		}
		if begun {
			r.states.meetAgain()
		} else if !r.states.memory.Changed() {
			continue
		}
		if err := r.states.keep(); err != nil && r.ctx.Err() == nil {
			r.log.Debug("cannot store what is known about the other nodes", "error", err)
		}
	}
}

func (s *peerStates) keep() error {
	_, _, members := s.r.directory.Record()
	var incarnations []string
	for _, m := range members {
		incarnations = append(incarnations, m.GetIncarnation())
	}
	data, err := proto.Marshal(s.memory.Keep(incarnations, latest(s.position(), keptStarts)))
	if err != nil {
		return err
	}
	return s.r.stores.SetBeside(memoryKey, data)
}

// askAround probes the other members, which send what they know about this node, before it takes part.
func (r *Replica) askAround(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	r.prober.All(ctx, r.directory.Peers(nil))
}

// keepsCommitted returns an error if entries are to be deleted that are committed and in no snapshot.
func (r *Replica) keepsCommitted(lowest, highest uint64) error {
	if lowest > max(r.states.memory.Committed(), r.machine.AppliedIndex()) {
		return nil
	}
	snapshot, err := r.stores.SnapshotIndex()
	if err != nil || highest <= snapshot {
		return err
	}
	r.mu.Lock()
	if !r.closing {
		r.running.Go(func() {
			r.askAround(r.ctx) // so that the others learn of it
			r.forked(fmt.Sprintf("the leader has other entries from %d on, and this node knows its own to be committed", lowest))
		})
	}
	r.mu.Unlock()
	return fmt.Errorf("%w: entries %d to %d are committed", status.ErrForked, lowest, highest)
}

var _ peerport.Observer = (*peerStates)(nil)

// medianClock returns the median of the voters' clocks, as far as they are known. own is the clock of this
// node.
func (s *peerStates) medianClock(own uint64) uint64 {
	var others []string
	s.mu.Lock()
	for id, met := range s.met {
		if s.r.cluster.Votes(id) {
			others = append(others, met.incarnation)
		}
	}
	s.mu.Unlock()
	return s.memory.Median(own, others)
}
