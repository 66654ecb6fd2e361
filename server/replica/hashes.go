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

// All nodes apply the same log and so must be in the same state. Whether they are is
// compared while they run, beside the log:
//
//   - Now and then the leader marks an entry as a hash point. Each node that applies it
//     forks its state, which costs nothing, and hashes it while it goes on.
//   - The nodes tell each other what came out, over the peers' control connections.
//   - A node that finds most of the voters in another state than its own has a bug or a
//     damage behind it that the others have not: it stops, and does not start again.
//   - Where voters differ and there is no such majority nobody knows who is right. Then
//     the leader has granting suspended, until a majority agrees on a later state.

const (
	// hashRest is how many times as long as hashing took the next point is put off: a
	// large state costs a sixtieth of a core at most.
	hashRest = 60
	// hashSoon is how soon the next point comes while granting is suspended.
	hashSoon = time.Second
	// deciding is how long voters may differ before granting is suspended: the others may
	// still be hashing, and a majority among them would settle it.
	deciding = 2 * time.Second
)

// divergedKey holds the last words of a node that stopped because of its state. It would
// come back with that: its snapshots may hold what is wrong.
var divergedKey = []byte("quorumlock.diverged")

// hashes is what this node knows of its own states and those of the others.
type hashes struct {
	// replayed is the last entry that was in the log when the node was opened: whatever
	// there was to compare before is over.
	replayed uint64
	// wake tells the hashing goroutine of a fork, news the telling one of a hash.
	wake, news chan struct{}

	mu sync.Mutex // guards what follows
	agreement
	// next is what is to be hashed when the present one is done, the latest only.
	next *fork
	// marked is when the last point was applied, moved the revision that it had.
	marked time.Time
	moved  uint64
	// took is how long hashing the last state took, which had so many units.
	took  time.Duration
	units uint64
	// differs is since when it is undecided which state is right; zero if it is not.
	differs time.Time
}

// fork is a state to be hashed.
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

// point is a hash point that was applied just now. A point that comes while two others
// are still to be hashed takes the place of the later one.
func (h *hashes) point(index uint64, machine *fsm.Machine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.marked, h.moved = time.Now(), machine.Revision()
	if index > h.replayed {
		h.next = &fork{index, machine}
		poke(h.wake)
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// due reports whether it is time for another hash point of a state that has so many units now.
func (h *hashes) due(interval time.Duration, revision, units uint64, suspended bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if suspended {
		interval = min(interval, hashSoon)
	}
	takes := h.took // at most: a state that was large once may be small now
	if units < h.units {
		takes = time.Duration(float64(takes) * float64(units) / float64(h.units))
	}
	return time.Since(h.marked) >= max(interval, hashRest*takes) && (suspended || revision != h.moved)
}

// verdict is what has come of the comparisons so far: at which revision a majority last
// agreed, and whether voters have differed since for longer than deciding takes.
func (h *hashes) verdict() (agreed uint64, undecided bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.agreed.revision, !h.differs.IsZero() && time.Since(h.differs) >= deciding
}

// extent is the last index at which a majority agreed with this node, and the last at
// which there was none.
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
	poke(r.hashes.news)
}

// untilDone is a hash that takes no more once the node stops.
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

// tellHashes tells the other nodes whenever there is something new, until the node stops.
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

// tellHashesTo exchanges hashes with one node. Whom it does not reach may reach it; if
// not, both tell more the next time.
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

// hearHashes takes in what another node says, which is nothing if it does not know how.
func (r *Replica) hearHashes(id, incarnation string, said *wire.StateHashes) {
	if said == nil {
		return
	}
	r.hashes.mu.Lock()
	r.hashes.hear(id, incarnation, said)
	r.hashes.mu.Unlock()
	r.compareHashes()
}

// compareHashes draws the consequences that a node draws for itself. Those for the
// cluster the leader's steward draws.
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

// serveHashes answers another node's hashes with this one's.
func (r *Replica) serveHashes(from *wire.PeerHello, said *wire.StateHashes) *wire.PeerResponse {
	r.hearHashes(from.GetId(), from.GetIncarnation(), said)
	return &wire.PeerResponse{Status: wire.Status_OK, Hashes: r.ownHashes()}
}
