package replica

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// maxEntryBytes bounds one raft entry, because raft's caches and thresholds count entries.
	maxEntryBytes = 256 << 10
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
	// enqueueTimeout bounds how long raft's main loop may take to accept an entry.
	enqueueTimeout = 5 * time.Second
)

// item is a queued command.
type item struct {
	cmd *wire.Command
	// connection distinguishes the senders of commands without a session: see Proposal.
	connection any
	size       int
	// work is the cost of applying cmd: see workOf.
	work int
	// growth is the number of units that cmd may add to the state.
	growth uint64
	// level is the feature level that the entry needs, if it is above the replicated level.
	level uint32
	done  func(*wire.Result)
}

// newItem returns an item for a command that is cheap to apply.
func newItem(cmd *wire.Command, done func(*wire.Result)) item {
	return item{cmd: cmd, size: proto.Size(cmd) + itemOverhead, work: 1, done: done}
}

// heartbeat is a heartbeat that waits for its proof of leadership.
type heartbeat struct {
	session uint64
	done    func(*wire.Result)
	lives   bool // the session is alive in the state that proves leadership
}

// batch is one raft entry and all its waiters.
type batch struct {
	term       uint64
	items      []item
	proofs     []func(*wire.Result)
	heartbeats []heartbeat
	size       int
	work       int
	growth     uint64
	marks      bool
	began      time.Time
	future     raft.ApplyFuture
}

// proposer packs the queue into raft entries: one goroutine, at most two entries in flight. Its queue accepts
// the leadership's own commands from begin on, and clients' commands from serve on.
type proposer struct {
	apply func(data []byte, timeout time.Duration) raft.ApplyFuture
	// refusal returns why a command is not accepted while this node does not serve.
	refusal func() *wire.Result
	// proposed holds the entries in log order, for the completer.
	proposed chan *batch
	// packed is the entry that is being encoded and written its encoding. Only run uses them.
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
	// closed when no entry is in flight any more; it is nil unless pause waits for that.
	pauses     int
	drained    chan struct{}
	level      uint32 // the replicated feature level
	urgent     []item // expiries, timeouts, barriers, membership changes, operators' actions
	normal     []item
	backlog    int // total cost of normal: see item.cost
	shed       bool
	bytes      int // of urgent and normal
	work       int // of urgent and normal
	proofs     []func(*wire.Result)
	heartbeats []heartbeat
	due        bool // the heartbeats have lingered long enough
	marks      bool // the next entry is a hash point
	timer      *time.Timer
	inflight   int
	// uncompleted counts the entries that were taken and whose waiters have not all been answered yet.
	uncompleted atomic.Int32
	// free is a finished batch whose memory the next one reuses.
	free      *batch
	coalescer coalescer
}

func newProposer(apply func([]byte, time.Duration) raft.ApplyFuture, refusal func() *wire.Result) *proposer {
	p := &proposer{apply: apply, refusal: refusal, proposed: make(chan *batch, 2)}
	p.cond = sync.NewCond(&p.mu)
	p.coalescer.wake = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.coalescer.stop()
		p.cond.Signal()
	}
	return p
}

// run proposes until stop. It ends the completer by closing proposed.
func (p *proposer) run() {
	defer close(p.proposed)
	for b := p.next(); b != nil; b = p.next() {
		p.propose(b)
		p.proposed <- b
	}
}

// propose hands the batch to raft. The batch is complete by then, so everything that its entry proves arrived
// before the entry was proposed.
func (p *proposer) propose(b *batch) {
	b.began = time.Now()
	data, err := p.encode(b)
	if err != nil {
		b.dropInvalid()
		data, err = p.encode(b)
	}
	if err != nil {
		b.future = failed{err}
		return
	}
	b.future = p.apply(data, enqueueTimeout)
}

// encode returns the encoded batch, in memory that raft may keep.
func (p *proposer) encode(b *batch) ([]byte, error) {
	commands := p.packed.Commands[:0]
	for _, it := range b.items {
		commands = append(commands, it.cmd)
	}
	p.packed = wire.Entry{Level: p.entryLevel(b), WallUnixMs: time.Now().UnixMilli(), Commands: commands, HashPoint: b.marks}
	var err error
	p.written, err = wire.AppendEntry(p.written[:0], &p.packed)
	clear(commands) // the commands belong to their senders again once they are answered
	return slices.Clone(p.written), err
}

// dropInvalid answers and drops the commands that cannot be encoded, which are those with text that is not valid
// UTF-8.
func (b *batch) dropInvalid() {
	b.items = slices.DeleteFunc(b.items, func(it item) bool {
		_, err := proto.Marshal(it.cmd)
		if err != nil {
			it.answer(refused(wire.Status_INVALID_ARGUMENT, err.Error()))
		}
		return err != nil
	})
}

// next waits until there is something to propose and fewer entries than allowed are in flight. It returns nil
// after stop.
func (p *proposer) next() *batch {
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
func (p *proposer) ready() bool {
	return len(p.urgent) > 0 || len(p.proofs) > 0 || p.due || p.marks ||
		len(p.normal) > 0 && (p.coalescer.enough(len(p.normal)) || p.bytes >= maxEntryBytes || p.work >= maxEntryWork)
}

// depth returns how many entries may be in flight. A second one makes all entries smaller, and an entry costs
// much the same whatever it carries. So a second one is allowed only if a full one is already waiting. Called
// with mu held.
func (p *proposer) depth() int {
	if p.bytes >= maxEntryBytes {
		return 2
	}
	return 1
}

// take returns the next batch: urgent commands first, then clients' commands, and all waiters for a proof. It
// contains no command if only proofs or a hash point are requested. It returns nil if nothing is ready.
// Called with mu held.
func (p *proposer) take() *batch {
	if !p.ready() {
		return nil
	}
	b := p.free
	if p.free = nil; b == nil {
		b = &batch{}
	}
	b.term = p.term
	p.coalescer.stop()
	p.urgent = b.fill(p.urgent, maxEntryWork/2) // the other half is reserved for clients
	urgent := len(b.items)
	p.normal = b.fillFairly(p.normal, p.bytes <= maxEntryBytes && p.work <= maxEntryWork)
	for _, it := range b.items[urgent:] {
		p.backlog -= it.cost()
	}
	p.shed = false
	p.bytes -= b.size
	p.work -= b.work
	b.proofs, p.proofs = p.proofs, b.proofs
	b.heartbeats, p.heartbeats = p.heartbeats, b.heartbeats
	b.marks, p.marks = p.marks, false
	p.due = false
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	return b
}

// reusable returns the memory of a finished slice, or nil if a rare peak made it large.
func reusable[T any](done []T) []T {
	if cap(done) > maxFree {
		return nil
	}
	clear(done)
	return done[:0]
}

// recycle makes the memory of a finished batch available to the next one.
func (p *proposer) recycle(b *batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*b = batch{items: reusable(b.items), proofs: reusable(b.proofs), heartbeats: reusable(b.heartbeats)}
	p.free = b
	p.uncompleted.Add(-1)
}

// awaited reports whether anything may wait for the result of an entry that is being applied.
func (p *proposer) awaited() bool { return p.uncompleted.Load() > 0 }

// finished makes room for the next entry. applied is empty if this one failed.
func (p *proposer) finished(b *batch, applied appliedEntry) {
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
func (p *proposer) closed() *wire.Result {
	if !p.serving {
		return p.refusal()
	}
	return nil
}

// queueFull returns the result for a command that was not executed because the queue is full.
func queueFull() *wire.Result {
	return refused(wire.Status_UNAVAILABLE, "the leader's queue is full: try again later")
}

// urge queues one of the leadership's own commands ahead of all clients' commands. It reports false if the
// leadership has ended.
func (p *proposer) urge(term uint64, it item) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term != term || p.stopped {
		return false
	}
	p.urgent = append(p.urgent, it)
	p.bytes += it.size
	p.work += it.work
	p.cond.Signal()
	return true
}

// prove requests an entry immediately.
func (p *proposer) prove(done func(*wire.Result)) {
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

// mark makes the next entry a hash point. If there is nothing to propose, that is an empty entry.
func (p *proposer) mark(term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term == term && p.serving {
		p.marks = true
		p.cond.Signal()
	}
}

// heartbeat makes a heartbeat wait for the next entry, whatever that carries. If none comes within linger, an
// empty one is proposed for all waiting heartbeats.
func (p *proposer) heartbeat(b heartbeat) {
	p.mu.Lock()
	no := p.closed()
	if no == nil && len(p.heartbeats) >= maxHeartbeats {
		no = refused(wire.Status_UNAVAILABLE, "too many heartbeats wait for their proof")
	}
	if no != nil {
		p.mu.Unlock()
		b.done(no)
		return
	}
	p.heartbeats = append(p.heartbeats, b)
	if p.timer == nil && !p.due {
		p.timer = time.AfterFunc(linger, p.lingered)
	}
	p.mu.Unlock()
}

func (p *proposer) lingered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if len(p.heartbeats) > 0 {
		p.due = true
		p.cond.Signal()
	}
}

// begin opens the queue for the leadership's own commands.
func (p *proposer) begin(term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.term = term
}

// serve opens the queue for clients' commands.
func (p *proposer) serve(term uint64, level uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term == term {
		p.serving, p.level = true, level
	}
}

// end closes the queue and answers everything in it with result.
func (p *proposer) end(result *wire.Result) {
	p.mu.Lock()
	b := &batch{items: append(p.urgent, p.normal...), proofs: p.proofs, heartbeats: p.heartbeats}
	p.term, p.serving, p.due, p.marks, p.bytes, p.work, p.backlog, p.pauses = 0, false, false, false, 0, 0, 0, 0
	p.urgent, p.normal, p.proofs, p.heartbeats = nil, nil, nil, nil
	for _, it := range b.items {
		p.growth.Add(-it.growth)
	}
	p.coalescer.stop()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.mu.Unlock()
	b.answer(result)
}

// pause stops proposing until resume or the end of the leadership. The returned channel is closed once no
// entry is in flight.
func (p *proposer) pause(term uint64) <-chan struct{} {
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

// resume ends one pause of that term.
func (p *proposer) resume(term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term == term && p.pauses > 0 {
		p.pauses--
		p.cond.Signal()
	}
}

// stop makes run return. The queue must have been closed with end before.
func (p *proposer) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.cond.Signal()
}

// raised makes later entries carry the new replicated level.
func (p *proposer) raised(level uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.level = max(p.level, level)
}

func (p *proposer) entryLevel(b *batch) uint32 {
	p.mu.Lock()
	level := max(p.level, 1)
	p.mu.Unlock()
	for _, it := range b.items {
		level = max(level, it.level)
	}
	return level
}

func (p *proposer) queued() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.urgent) + len(p.normal)
}

// failed is the future of an entry that never reached raft.
type failed struct{ err error }

func (f failed) Error() error  { return f.err }
func (f failed) Response() any { return nil }
func (f failed) Index() uint64 { return 0 }
