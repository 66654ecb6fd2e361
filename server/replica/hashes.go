package replica

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// All nodes apply the same log, so they must be in the same state. This is verified at run time, outside the
// log:
//
//   - From time to time the leader marks an entry as a hash point. Each node that applies it forks its state
//     in O(1) and hashes the fork in the background.
//   - The nodes exchange the hashes over the peers' control connections.
//   - A node that finds most voters in a different state than its own has a bug or damage that the others do
//     not have. It stops and does not start again.
//   - If voters differ and there is no such majority, it is unknown which state is right. The leader then
//     suspends granting until a majority agrees on a later state.

const (
	// hashRest is the minimum time until the next point, as a multiple of the time that hashing took. So even
	// a large state costs no more than a sixtieth of a core.
	hashRest = 60
	// hashSoon is the maximum interval between points while granting is suspended.
	hashSoon = time.Second
	// deciding is how long voters may differ before granting is suspended. In the meantime, others may finish
	// hashing and form a majority.
	deciding = 2 * time.Second
)

// divergedKey is the key of the final message of a node that stopped because of its state. Starting it again
// would not help: its snapshots may contain the error.
var divergedKey = []byte("quorumlock.diverged")

// hashes holds the hashes of this node's states and of those of the others.
type hashes struct {
	// replayed is the last entry in the log when the node was opened. Earlier hash points are not compared
	// again.
	replayed uint64
	// wake signals a fork to the hashing goroutine, news a hash to the goroutine that sends it.
	wake, news chan struct{}

	mu sync.Mutex // guards the fields below
	agreement
	// next is the next fork to hash, if there is one; only the latest is kept.
	next *fork
	// marked is when the last point was applied, moved its revision.
	marked time.Time
	moved  uint64
	// took is how long hashing the last state took, units that state's size.
	took  time.Duration
	units uint64
	// differs is since when it is undecided which state is right; zero if it is not.
	differs time.Time
}

// fork is a state that is to be hashed.
type fork struct {
	index   uint64
	machine *fsm.Machine
}

func newHashes(self string) *hashes {
	return &hashes{
		wake:      make(chan struct{}, 1),
		news:      make(chan struct{}, 1),
		agreement: agreement{self: self, reports: map[string]hashReport{}},
		marked:    time.Now(),
	}
}

// point records a hash point that was just applied. If one state is being hashed and another is waiting, the
// new one replaces the waiting one.
func (h *hashes) point(index uint64, machine *fsm.Machine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.marked, h.moved = time.Now(), machine.Revision()
	if index > h.replayed {
		h.next = &fork{index, machine}
		trigger(h.wake)
	}
}

func trigger(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// due reports whether it is time for another hash point, given the revision and the size of the current
// state.
func (h *hashes) due(interval time.Duration, revision, units uint64, suspended bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if suspended {
		interval = min(interval, hashSoon)
	}
	takes := h.took // an upper bound: the state may have shrunk since
	if units < h.units {
		takes = time.Duration(float64(takes) * float64(units) / float64(h.units))
	}
	return time.Since(h.marked) >= max(interval, hashRest*takes) && (suspended || revision != h.moved)
}

// verdict returns the revision at which a majority last agreed with this node, and reports whether voters
// have differed for longer than deciding.
func (h *hashes) verdict() (agreed uint64, undecided bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.agreed.revision, !h.differs.IsZero() && time.Since(h.differs) >= deciding
}

// extent returns the last index at which a majority agreed with this node, and the last at which voters
// differed without a majority.
func (h *hashes) extent() (agreed, differing uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.agreed.index, h.differing
}

// hashStates hashes one fork after the other until the node stops.
func (r *Replica) hashStates() {
	for {
		select {
		case <-r.hashes.wake:
		case <-r.ctx.Done():
			return
		}
		r.hashes.mu.Lock()
		f := r.hashes.next
		r.hashes.next = nil
		r.hashes.mu.Unlock()
		if f != nil {
			r.hashState(f)
		}
	}
}

func (r *Replica) hashState(f *fork) {
	began := time.Now()
	sum := sha256.New()
	if err := f.machine.WriteSnapshot(untilDone{r.ctx, sum}); err != nil {
		if r.ctx.Err() == nil {
			r.log.Error("the state was not hashed", "index", f.index, "error", err)
		}
		return
	}
	took := time.Since(began)
	r.metrics.hashing.Observe(took.Seconds())
	r.hashes.mu.Lock()
	r.hashes.add(hashPoint{f.index, f.machine.Revision(), [sha256.Size]byte(sum.Sum(nil))})
	r.hashes.took, r.hashes.units = took, f.machine.Units()
	r.hashes.mu.Unlock()
	r.log.Debug("state hashed", "index", f.index, "took", took)
	r.compareHashes()
	trigger(r.hashes.news)
}

// untilDone passes data to a hash, and fails once the node stops.
type untilDone struct {
	ctx context.Context
	sum io.Writer
}

func (u untilDone) Write(data []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.sum.Write(data)
}

// tellHashes sends new hashes to the other nodes until the node stops.
func (r *Replica) tellHashes() {
	for {
		select {
		case <-r.hashes.news:
		case <-r.ctx.Done():
			return
		}
		var told sync.WaitGroup
		for id, server := range r.servers() {
			if id != r.cfg.ID {
				told.Go(func() { r.tellHashesTo(r.peer(server)) })
			}
		}
		told.Wait()
	}
}

// tellHashesTo exchanges hashes with one node. If that node cannot be reached, it may reach this one instead;
// otherwise the next exchange contains these hashes too.
func (r *Replica) tellHashesTo(p Peer) {
	ctx, cancel := context.WithTimeout(r.ctx, probeTimeout)
	defer cancel()
	req := &wire.PeerRequest{Body: &wire.PeerRequest_Hashes{Hashes: &wire.HashesRequest{Hashes: r.ownHashes()}}}
	resp, reply, err := r.layer.Call(ctx, p.Addr, p.ID, req)
	if err != nil {
		r.log.Debug("a node was not told what this state hashes to", "node", p.ID, "error", err)
		return
	}
	r.hearHashes(p.ID, reply.GetIncarnation(), resp.GetHashes())
}

func (r *Replica) ownHashes() *wire.StateHashes {
	r.hashes.mu.Lock()
	defer r.hashes.mu.Unlock()
	return r.hashes.said()
}

// hearHashes records another node's hashes. A nil report is from a node that does not support them.
func (r *Replica) hearHashes(id, incarnation string, said *wire.StateHashes) {
	if said == nil {
		return
	}
	r.hashes.mu.Lock()
	r.hashes.hear(id, incarnation, said)
	r.hashes.mu.Unlock()
	r.compareHashes()
}

// compareHashes compares the hashes and draws the consequences for this node. The leader's reconciler draws
// those for the cluster.
func (r *Replica) compareHashes() {
	var voters []string
	for id, server := range r.servers() {
		if server.Suffrage == raft.Voter {
			voters = append(voters, id)
		}
	}
	r.hashes.mu.Lock()
	d := r.hashes.compare(voters)
	if undecided := r.hashes.undecided(); !undecided {
		r.hashes.differs = time.Time{}
	} else if r.hashes.differs.IsZero() {
		r.hashes.differs = time.Now()
		r.log.Error("NODES DIFFER IN THEIR STATE, and no majority agrees: please report this", "index", r.hashes.differing)
	}
	r.hashes.mu.Unlock()
	if d != nil && r.halted.Load() == nil {
		r.diverged(d)
	}
}

// diverged stops this node for good.
func (r *Replica) diverged(d *dissent) {
	words := fmt.Sprintf("after log entry %d it hashes to %.8x, and on %s, %d of %d voters, to %.8x. "+
		"Please report this, and keep the data directory for it. To replace this node, %s",
		d.index, d.sum, strings.Join(d.majority, " and "), len(d.majority), d.voters, d.theirs, r.replacement("diverged"))
	r.stopForGood(divergedKey, ErrDiverged, words)
}

// serveHashes answers another node's hashes with those of this node.
func (r *Replica) serveHashes(from *wire.PeerHello, said *wire.StateHashes) *wire.PeerResponse {
	r.hearHashes(from.GetId(), from.GetIncarnation(), said)
	return &wire.PeerResponse{Status: wire.Status_OK, Hashes: r.ownHashes()}
}
