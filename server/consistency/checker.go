package consistency

import (
	"context"
	"crypto/sha256"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// pauseFactor is the minimum time until the next point, as a multiple of the time that hashing took. So
	// even a large state costs no more than a sixtieth of a core.
	pauseFactor = 60
	// suspendedInterval is the maximum interval between points while granting is suspended.
	suspendedInterval = time.Second
	// decisionDelay is how long voters may differ before granting is suspended. In the meantime, others may
	// finish hashing and form a majority.
	decisionDelay = 2 * time.Second
)

// Config configures a Checker. All fields are required.
type Config struct {
	// Self is the id of this node.
	Self string
	// Voters returns the ids of the voters.
	Voters func() []string
	// Exchange sends the hashes of this node to all others, and records theirs with Checker.Record.
	Exchange func(ctx context.Context, own *wire.StateHashes)
	// Diverged is called when a majority of the voters had a different state than this node. It is called
	// again whenever hashes are compared.
	Diverged func(*Divergence)
	// Hashed is called after a state was hashed, with the time that it took.
	Hashed func(took time.Duration)
	Logger hclog.Logger
}

// Checker holds the hashes of this node's states and of those of the others. It is safe for concurrent use.
type Checker struct {
	cfg Config
	// replayed is the last entry in the log when the node was opened. Set before Run.
	replayed uint64
	// wake signals a fork to the hashing goroutine, hashed a hash to the goroutine that sends it.
	wake, hashed chan struct{}

	mu sync.Mutex // guards the fields below
	agreement
	// next is the next fork to hash, if there is one; only the latest is kept.
	next *fork
	// marked is when the last point was applied, revision its revision.
	marked   time.Time
	revision uint64
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

// New returns a Checker without hashes.
func New(cfg Config) *Checker {
	return &Checker{
		cfg:       cfg,
		wake:      make(chan struct{}, 1),
		hashed:    make(chan struct{}, 1),
		agreement: agreement{self: cfg.Self, reports: map[string]report{}},
		marked:    time.Now(),
	}
}

// Skip makes the Checker ignore points up to an entry: those were compared before the node was opened.
func (c *Checker) Skip(replayed uint64) { c.replayed = replayed }

// Mark records a hash point that was just applied, with a fork of the state. It never waits: if one state is being
// hashed and another is waiting, the new one replaces the waiting one.
func (c *Checker) Mark(index uint64, machine *fsm.Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marked, c.revision = time.Now(), machine.Revision()
	if index > c.replayed {
		c.next = &fork{index, machine}
		trigger(c.wake)
	}
}

func trigger(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Due reports whether it is time for another hash point, given the revision and the size of the current state.
func (c *Checker) Due(interval time.Duration, revision, units uint64, suspended bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if suspended {
		interval = min(interval, suspendedInterval)
	}
	takes := c.took // an upper bound: the state may have shrunk since
	if units < c.units {
		takes = time.Duration(float64(takes) * float64(units) / float64(c.units))
	}
	return time.Since(c.marked) >= max(interval, pauseFactor*takes) && (suspended || revision != c.revision)
}

// Verdict returns the revision at which a majority last agreed with this node, and reports whether voters have
// differed without a majority for too long.
func (c *Checker) Verdict() (agreed uint64, undecided bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.agreed.revision, !c.differs.IsZero() && time.Since(c.differs) >= decisionDelay
}

// Extent returns the last index at which a majority agreed with this node, and the last at which voters differed
// without a majority.
func (c *Checker) Extent() (agreed, differing uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.agreed.index, c.differing
}

// Hashes returns the last hashes of this node.
func (c *Checker) Hashes() *wire.StateHashes {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hashes()
}

// Record compares another node's hashes. A nil report is from a node that does not support them.
func (c *Checker) Record(id, incarnation string, theirs *wire.StateHashes) {
	if theirs == nil {
		return
	}
	c.mu.Lock()
	c.record(id, incarnation, theirs)
	c.mu.Unlock()
	c.compareAll()
}

// Run hashes one fork after the other until ctx ends.
func (c *Checker) Run(ctx context.Context) {
	for {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return
		}
		c.mu.Lock()
		f := c.next
		c.next = nil
		c.mu.Unlock()
		if f != nil {
			c.hash(ctx, f)
		}
	}
}

func (c *Checker) hash(ctx context.Context, f *fork) {
	began := time.Now()
	sum := sha256.New()
	if err := f.machine.WriteSnapshot(untilDone{ctx, sum}); err != nil {
		if ctx.Err() == nil {
			c.cfg.Logger.Error("the state was not hashed", "index", f.index, "error", err)
		}
		return
	}
	took := time.Since(began)
	c.cfg.Hashed(took)
	c.mu.Lock()
	c.add(point{f.index, f.machine.Revision(), [sha256.Size]byte(sum.Sum(nil))})
	c.took, c.units = took, f.machine.Units()
	c.mu.Unlock()
	c.cfg.Logger.Debug("state hashed", "index", f.index, "took", took.String())
	c.compareAll()
	trigger(c.hashed)
}

// untilDone passes data to a hash, and fails once ctx ends.
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

// RunExchange exchanges new hashes with the other nodes until ctx ends.
func (c *Checker) RunExchange(ctx context.Context) {
	for {
		select {
		case <-c.hashed:
			c.cfg.Exchange(ctx, c.Hashes())
		case <-ctx.Done():
			return
		}
	}
}

// compareAll compares the hashes, among the current voters.
func (c *Checker) compareAll() {
	voters := c.cfg.Voters()
	c.mu.Lock()
	d := c.compare(voters)
	if undecided := c.undecided(); !undecided {
		c.differs = time.Time{}
	} else if c.differs.IsZero() {
		c.differs = time.Now()
		c.cfg.Logger.Error("NODES DIFFER IN THEIR STATE, and no majority agrees: please report this", "index", c.differing)
	}
	c.mu.Unlock()
	if d != nil {
		c.cfg.Diverged(d)
	}
}
