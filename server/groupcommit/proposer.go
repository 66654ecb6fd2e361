package groupcommit

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// MaxEntryBytes bounds one raft entry, because raft's caches and thresholds count entries.
	MaxEntryBytes = 256 << 10
	// maxQueued bounds the waiting proofs, maxHeartbeats the waiting heartbeats. For clients' commands see
	// maxBacklog.
	maxQueued     = 1 << 16
	maxHeartbeats = 1 << 20
	// itemOverhead is what an entry adds to each command, in bytes.
	itemOverhead = 8
	// maxFree is the largest slice, in elements, that is kept for reuse.
	maxFree = 1 << 12
	// linger is how long an idle cluster collects heartbeats for one empty entry.
	linger = 100 * time.Millisecond
	// EnqueueTimeout bounds how long raft's main loop may take to accept an entry.
	EnqueueTimeout = 5 * time.Second
)

// Proposer packs the queue into raft entries: one goroutine, at most two entries in flight. Its queue accepts
// the leadership's own commands from Begin on, and clients' commands from Serve on.
type Proposer struct {
	apply func(data []byte, timeout time.Duration) raft.ApplyFuture
	// refusal returns why a command is not accepted while this node does not serve.
	refusal func() *wire.Result
	// proposed holds the entries in log order, for the completer.
	proposed chan *Batch
	// packed is the entry that is being encoded and written its encoding. Only Run uses them.
	packed  wire.Entry
	written []byte
	// growth is the number of units that the queued and in-flight commands may add to the state. It is
	// changed with mu held.
	growth atomic.Uint64

	mu      sync.Mutex
	cond    *sync.Cond
	stopped bool
	term    uint64 // of the leadership, 0 if there is none
	serving bool
	// pauses counts the transfers of leadership in progress, during which nothing is proposed. drained is
	// closed when no entry is in flight any more; it is nil unless Pause waits for that.
	pauses     int
	drained    chan struct{}
	level      uint32 // the replicated feature level
	urgent     []Item // expiries, timeouts, barriers, membership changes, operators' actions
	normal     []Item
	backlog    int // total cost of normal: see Item.cost
	shed       bool
	bytes      int // of urgent and normal
	work       int // of urgent and normal
	proofs     []func(*wire.Result)
	heartbeats []Heartbeat
	due        bool // the heartbeats have lingered long enough
	marks      bool // the next entry is a hash point
	timer      *time.Timer
	inflight   int
	// uncompleted counts the entries that were taken and whose waiters have not all been answered yet.
	uncompleted atomic.Int32
	// free is a finished batch whose memory the next one reuses.
	free      *Batch
	coalescer coalescer
}

// New returns a Proposer that hands entries to apply.
func New(apply func([]byte, time.Duration) raft.ApplyFuture, refusal func() *wire.Result) *Proposer {
	p := &Proposer{apply: apply, refusal: refusal, proposed: make(chan *Batch, 2)}
	p.cond = sync.NewCond(&p.mu)
	p.coalescer.wake = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.coalescer.stop()
		p.cond.Signal()
	}
	return p
}

// Run proposes until Stop. It then closes Batches.
func (p *Proposer) Run() {
	defer close(p.proposed)
	for b := p.next(); b != nil; b = p.next() {
		p.propose(b)
		p.proposed <- b
	}
}

// propose hands the batch to raft. The batch is complete by then, so everything that its entry proves arrived
// before the entry was proposed.
func (p *Proposer) propose(b *Batch) {
	b.Began = time.Now()
	data, err := p.encode(b)
	if err != nil {
		b.dropInvalid()
		data, err = p.encode(b)
	}
	if err != nil {
		b.Future = Failed{err}
		return
	}
	b.Bytes, b.Future = len(data), p.apply(data, EnqueueTimeout)
}

// encode returns the encoded batch, in memory that raft may keep.
func (p *Proposer) encode(b *Batch) ([]byte, error) {
	commands := p.packed.Commands[:0]
	for _, it := range b.Items {
		commands = append(commands, it.Command)
	}
	p.packed = wire.Entry{Level: p.entryLevel(b), WallUnixMs: time.Now().UnixMilli(), Commands: commands, HashPoint: b.marks}
	var err error
	p.written, err = wire.AppendEntry(p.written[:0], &p.packed)
	clear(commands) // the commands belong to their senders again once they are answered
	return slices.Clone(p.written), err
}

// next waits until there is something to propose and fewer entries than allowed are in flight. It returns nil
// after Stop.
func (p *Proposer) next() *Batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.stopped {
			return nil
		}
		if p.pauses == 0 && p.inflight < p.depth() {
			if b := p.take(); b != nil {
				p.inflight++
				p.uncompleted.Add(1)
				return b
			}
			if len(p.normal) > 0 {
				p.coalescer.wait()
			}
		}
		p.cond.Wait()
	}
}

// ready reports whether there is something to propose now. Called with mu held.
func (p *Proposer) ready() bool {
	return len(p.urgent) > 0 || len(p.proofs) > 0 || p.due || p.marks ||
		len(p.normal) > 0 && (p.coalescer.enough(len(p.normal)) || p.bytes >= MaxEntryBytes || p.work >= MaxEntryWork)
}

// depth returns how many entries may be in flight. A second one makes all entries smaller, and an entry costs
// much the same whatever it carries. So a second one is allowed only if a full one is already waiting. Called
// with mu held.
func (p *Proposer) depth() int {
	if p.bytes >= MaxEntryBytes {
		return 2
	}
	return 1
}

// take returns the next batch: urgent commands first, then clients' commands, and all waiters for a proof. It
// contains no command if only proofs or a hash point are requested. It returns nil if nothing is ready.
// Called with mu held.
func (p *Proposer) take() *Batch {
	if !p.ready() {
		return nil
	}
	b := p.free
	if p.free = nil; b == nil {
		b = &Batch{}
	}
	b.Term = p.term
	p.coalescer.stop()
	p.urgent = b.fill(p.urgent, MaxEntryWork/2) // the other half is reserved for clients
	urgent := len(b.Items)
	p.normal = b.fillFairly(p.normal, p.bytes <= MaxEntryBytes && p.work <= MaxEntryWork)
	for _, it := range b.Items[urgent:] {
		p.backlog -= it.cost()
	}
	p.shed = false
	p.bytes -= b.size
	p.work -= b.work
	b.Proofs, p.proofs = p.proofs, b.Proofs
	b.Heartbeats, p.heartbeats = p.heartbeats, b.Heartbeats
	b.marks, p.marks = p.marks, false
	p.due = false
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	return b
}

// Recycle makes the memory of a finished batch available to the next one.
func (p *Proposer) Recycle(b *Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*b = Batch{Items: reusable(b.Items), Proofs: reusable(b.Proofs), Heartbeats: reusable(b.Heartbeats)}
	p.free = b
	p.uncompleted.Add(-1)
}

// Awaited reports whether anything may wait for the result of an entry that is being applied.
func (p *Proposer) Awaited() bool { return p.uncompleted.Load() > 0 }

// Growth returns the number of units that the queued and in-flight commands may add to the state.
func (p *Proposer) Growth() uint64 { return p.growth.Load() }

// Batches returns the entries in log order. It is closed after Stop.
func (p *Proposer) Batches() <-chan *Batch { return p.proposed }

// Finished makes room for the next entry. applied is nil if this one failed.
func (p *Proposer) Finished(b *Batch, applied *fsm.Applied) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inflight--
	p.growth.Add(-b.growth)
	if p.inflight == 0 && p.drained != nil {
		close(p.drained)
		p.drained = nil
	}
	p.coalescer.finished(b, applied, len(p.normal))
	p.cond.Signal()
}

// closed returns why nothing is accepted, or nil if the proposer serves. Called with mu held.
func (p *Proposer) closed() *wire.Result {
	if !p.serving {
		return p.refusal()
	}
	return nil
}

// queueFull returns the result for a command that was not executed because the queue is full.
func queueFull() *wire.Result {
	return status.Result(wire.Status_UNAVAILABLE, "the leader's queue is full: try again later")
}

// ProposeUrgent queues one of the leadership's own commands ahead of all clients' commands. It reports false if the
// leadership has ended.
func (p *Proposer) ProposeUrgent(term uint64, it Item) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term != term || p.stopped {
		return false
	}
	p.urgent = append(p.urgent, it)
	p.bytes += it.size
	p.work += it.Work
	p.cond.Signal()
	return true
}

// Prove requests an entry immediately.
func (p *Proposer) Prove(done func(*wire.Result)) {
	p.mu.Lock()
	no := p.closed()
	if no == nil && len(p.proofs) >= maxQueued {
		no = queueFull()
	}
	if no != nil {
		p.mu.Unlock()
		done(no)
		return
	}
	p.proofs = append(p.proofs, done)
	p.cond.Signal()
	p.mu.Unlock()
}

// Mark makes the next entry a hash point. If there is nothing to propose, that is an empty entry.
func (p *Proposer) Mark(term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term == term && p.serving {
		p.marks = true
		p.cond.Signal()
	}
}

// AddHeartbeat makes a heartbeat wait for the next entry, whatever that carries. If none comes within linger, an
// empty one is proposed for all waiting heartbeats.
func (p *Proposer) AddHeartbeat(h Heartbeat) {
	p.mu.Lock()
	no := p.closed()
	if no == nil && len(p.heartbeats) >= maxHeartbeats {
		no = status.Result(wire.Status_UNAVAILABLE, "too many heartbeats wait for their proof")
	}
	if no != nil {
		p.mu.Unlock()
		h.Done(no)
		return
	}
	p.heartbeats = append(p.heartbeats, h)
	if p.timer == nil && !p.due {
		p.timer = time.AfterFunc(linger, p.lingerEnded)
	}
	p.mu.Unlock()
}

func (p *Proposer) lingerEnded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if len(p.heartbeats) > 0 {
		p.due = true
		p.cond.Signal()
	}
}

// Begin opens the queue for the leadership's own commands.
func (p *Proposer) Begin(term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.term = term
}

// Serve opens the queue for clients' commands.
func (p *Proposer) Serve(term uint64, level uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term == term {
		p.serving, p.level = true, level
	}
}

// End closes the queue and answers everything in it with result.
func (p *Proposer) End(result *wire.Result) {
	p.mu.Lock()
	b := &Batch{Items: append(p.urgent, p.normal...), Proofs: p.proofs, Heartbeats: p.heartbeats}
	p.term, p.serving, p.due, p.marks, p.bytes, p.work, p.backlog, p.pauses = 0, false, false, false, 0, 0, 0, 0
	p.urgent, p.normal, p.proofs, p.heartbeats = nil, nil, nil, nil
	for _, it := range b.Items {
		p.growth.Add(-it.growth)
	}
	p.coalescer.stop()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.mu.Unlock()
	b.Answer(result)
}

// Pause stops proposing until Resume or the end of the leadership. The returned channel is closed once no
// entry is in flight.
func (p *Proposer) Pause(term uint64) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term == term {
		p.pauses++
	}
	drained := p.drained
	if drained == nil {
		drained = make(chan struct{})
	}
	if p.inflight == 0 {
		close(drained)
		return drained
	}
	p.drained = drained
	return drained
}

// Resume ends one pause of that term.
func (p *Proposer) Resume(term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term == term && p.pauses > 0 {
		p.pauses--
		p.cond.Signal()
	}
}

// Stop makes Run return. The queue must have been closed with End before.
func (p *Proposer) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.cond.Signal()
}

// RaiseLevel makes later entries carry the new replicated level.
func (p *Proposer) RaiseLevel(level uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.level = max(p.level, level)
}

func (p *Proposer) entryLevel(b *Batch) uint32 {
	p.mu.Lock()
	level := max(p.level, 1)
	p.mu.Unlock()
	for _, it := range b.Items {
		level = max(level, it.Level)
	}
	return level
}

// Queued returns the number of commands that wait to be proposed.
func (p *Proposer) Queued() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.urgent) + len(p.normal)
}
