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
	// maxQueued bounds the waiting proofs, maxBeats the waiting heartbeats. For clients' commands see
	// maxBacklog.
	maxQueued = 1 << 16
	maxBeats  = 1 << 20
	// itemOverhead is what an entry adds to each command, in bytes.
	itemOverhead = 8
	// maxSpare is the largest slice, in elements, that is kept for reuse.
	maxSpare = 1 << 12
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

// beat is a heartbeat that waits for its proof of leadership.
type beat struct {
	session uint64
	done    func(*wire.Result)
	lives   bool // the session is alive in the state that proves leadership
}

// batch is one raft entry and all its waiters.
type batch struct {
	term   uint64
	items  []item
	proves []func(*wire.Result)
	beats  []beat
	size   int
	work   int
	growth uint64
	marks  bool
	began  time.Time
	future raft.ApplyFuture
}

// proposer packs the queue into raft entries: one goroutine, at most two entries in flight. Its queue accepts
// the leadership's own commands from begin on, and clients' commands from serve on.
type proposer struct {
	apply func(data []byte, timeout time.Duration) raft.ApplyFuture
	// refusal returns why a command is not accepted while this node does not serve.
	refusal func() *wire.Result
	// flights holds the entries in log order, for the completer.
	flights chan *batch
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
	pauses   int
	drained  chan struct{}
	level    uint32 // the replicated feature level
	urgent   []item // expiries, timeouts, barriers, membership changes, operators' actions
	normal   []item
	backlog  int // total cost of normal: see item.cost
	shed     bool
	bytes    int // of urgent and normal
	work     int // of urgent and normal
	proves   []func(*wire.Result)
	beats    []beat
	due      bool // the beats have lingered long enough
	marks    bool // the next entry is a hash point
	timer    *time.Timer
	inflight int
	// underway counts the entries that were taken and whose waiters have not all been answered yet.
	underway atomic.Int32
	// spare is a finished batch whose memory the next one reuses.
	spare     *batch
	gathering gathering
}

func newProposer(apply func([]byte, time.Duration) raft.ApplyFuture, refusal func() *wire.Result) *proposer {
	p := &proposer{apply: apply, refusal: refusal, flights: make(chan *batch, 2)}
	p.cond = sync.NewCond(&p.mu)
	p.gathering.wake = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.gathering.stop()
		p.cond.Signal()
	}
	return p
}

// run proposes until stop. It ends the completer by closing flights.
func (p *proposer) run() {
	defer close(p.flights)
	for b := p.next(); b != nil; b = p.next() {
		p.propose(b)
		p.flights <- b
	}
}

// propose hands the batch to raft. The batch is complete by then, so everything that its entry proves arrived
// before the entry was proposed.
func (p *proposer) propose(b *batch) {
	b.began = time.Now()
	data, err := p.encode(b)
	if err != nil {
		b.weed()
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

// weed answers and drops the commands that cannot be encoded, which are those with text that is not valid
// UTF-8.
func (b *batch) weed() {
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
				p.underway.Add(1)
				return b
			}
			if len(p.normal) > 0 {
				p.gathering.wait()
			}
		}
		p.cond.Wait()
	}
}

// ready reports whether there is something to propose now. Called with mu held.
func (p *proposer) ready() bool {
	return len(p.urgent) > 0 || len(p.proves) > 0 || p.due || p.marks ||
		len(p.normal) > 0 && (p.gathering.enough(len(p.normal)) || p.bytes >= maxEntryBytes || p.work >= maxEntryWork)
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
	b := p.spare
	if p.spare = nil; b == nil {
		b = &batch{}
	}
	b.term = p.term
	p.gathering.stop()
	p.urgent = b.fill(p.urgent, maxEntryWork/2) // the other half is reserved for clients
	urgent := len(b.items)
	p.normal = b.fillFairly(p.normal, p.bytes <= maxEntryBytes && p.work <= maxEntryWork)
	for _, it := range b.items[urgent:] {
		p.backlog -= it.cost()
	}
	p.shed = false
	p.bytes -= b.size
	p.work -= b.work
	b.proves, p.proves = p.proves, b.proves
	b.beats, p.beats = p.beats, b.beats
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
	if cap(done) > maxSpare {
		return nil
	}
	clear(done)
	return done[:0]
}

// recycle makes the memory of a finished batch available to the next one.
func (p *proposer) recycle(b *batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*b = batch{items: reusable(b.items), proves: reusable(b.proves), beats: reusable(b.beats)}
	p.spare = b
	p.underway.Add(-1)
}

// awaited reports whether anything may wait for the result of an entry that is being applied.
func (p *proposer) awaited() bool { return p.underway.Load() > 0 }

// landed makes room for the next entry. applied is empty if this one failed.
func (p *proposer) landed(b *batch, applied appliedEntry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inflight--
	p.growth.Add(-b.growth)
	if p.inflight == 0 && p.drained != nil {
		close(p.drained)
		p.drained = nil
	}
	p.gathering.landed(b, applied, len(p.normal))
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
	if no == nil && len(p.proves) >= maxQueued {
		no = queueFull()
	}
	if no != nil {
		p.mu.Unlock()
		done(no)
		return
	}
	p.proves = append(p.proves, done)
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

// beat makes a heartbeat wait for the next entry, whatever that carries. If none comes within linger, an
// empty one is proposed for all waiting heartbeats.
func (p *proposer) beat(b beat) {
	p.mu.Lock()
	no := p.closed()
	if no == nil && len(p.beats) >= maxBeats {
		no = refused(wire.Status_UNAVAILABLE, "too many heartbeats wait for their proof")
	}
	if no != nil {
		p.mu.Unlock()
		b.done(no)
		return
	}
	p.beats = append(p.beats, b)
	if p.timer == nil && !p.due {
		p.timer = time.AfterFunc(linger, p.lingered)
	}
	p.mu.Unlock()
}

func (p *proposer) lingered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if len(p.beats) > 0 {
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
	b := &batch{items: append(p.urgent, p.normal...), proves: p.proves, beats: p.beats}
	p.term, p.serving, p.due, p.marks, p.bytes, p.work, p.backlog, p.pauses = 0, false, false, false, 0, 0, 0, 0
	p.urgent, p.normal, p.proves, p.beats = nil, nil, nil, nil
	for _, it := range b.items {
		p.growth.Add(-it.growth)
	}
	p.gathering.stop()
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
