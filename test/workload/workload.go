package workload

import (
	"cmp"
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/test/history"
)

const (
	// FrailClient is the prefix of the names of clients that may be partitioned, stalled or ended. All others
	// must be able to reach the cluster again before the TTL of a steady session has passed.
	FrailClient = "frail"
	// Prefix is the prefix of the names of all locks and sessions of a load.
	Prefix = "load/"
)

// Env is the cluster that a load uses. Its functions may be called from any goroutine.
type Env struct {
	// Client creates a client, as if in its own process, with the history's tap on its connections. The load
	// closes it.
	Client func(name string) *client.Client
	// HTTP calls the nodes' HTTP ports, whose base URLs are Bases; nil if there are none.
	HTTP  connect.HTTPClient
	Bases []string
	// Stall is called by frail clients between their last check of a hold and what they do under it. Fault
	// injection that stalls a client's process lets it block there. May be nil.
	Stall func(client string)
	// Log is the history in which everything is recorded.
	Log *history.Log
	// Seed determines what actors do and when.
	Seed uint64
}

// Options configure a load.
type Options struct {
	// Parts are the parts of the load; nil means all of them.
	Parts []Part
	// TTL is the TTL of sessions that must never be lost, 15 s by default. FrailTTL is that of the others and
	// of leases, 5 s by default.
	TTL, FrailTTL time.Duration
	// Pace is roughly how long an actor rests between rounds, 200 ms by default. Locks are held for up to a
	// quarter of it.
	Pace time.Duration
	// Unguarded is set if frail clients are stalled beyond their TTL, so that only tokens protect what they
	// do then.
	Unguarded bool
}

// Part is one kind of load.
type Part struct {
	// Name is the name of its actors, their clients and their locks.
	Name string
	play func(*Run)
}

// Parts returns all parts.
func Parts() []Part {
	return []Part{Line, Lone, Hot, Readers, Permits, Several, Visitors, Leases, Waits, Fenced, Elections, Frail, Dying, Cached, FrailCached}
}

// Run is a load in progress.
type Run struct {
	env    Env
	opts   Options
	ctx    context.Context // cancels calls that still wait when the bound for them has passed
	cancel context.CancelFunc
	stop   context.Context // when done, actors finish their current round
	end    context.CancelFunc
	acting sync.WaitGroup
	// following are the goroutines that wait for the ends of sessions.
	following sync.WaitGroup
	// reader is the client for the reads of all checks.
	reader *client.Client

	mu      sync.Mutex // guards the fields below
	actors  uint64
	busy    map[string]int // running actors, for messages
	clients []*client.Client
	lives   []*Life
	did     Counts
	lines   []*line
	atEnd   []func() // called after all actors have finished
}

// Start starts every actor, and returns when the line is complete. Violations found from then on are recorded
// as faults in the log.
func Start(env Env, opts Options) *Run {
	if opts.Parts == nil {
		opts.Parts = Parts()
	}
	if env.Stall == nil {
		env.Stall = func(string) {}
	}
	opts.TTL = cmp.Or(opts.TTL, 15*time.Second)
	opts.FrailTTL = cmp.Or(opts.FrailTTL, 5*time.Second)
	opts.Pace = cmp.Or(opts.Pace, 200*time.Millisecond)
	r := &Run{env: env, opts: opts, busy: map[string]int{}, did: Counts{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.stop, r.end = context.WithCancel(context.Background())
	r.reader = r.client("reader")
	for _, part := range opts.Parts {
		part.play(r)
	}
	return r
}

// client creates a client, which is closed at the end at the latest.
func (r *Run) client(name string) *client.Client {
	c := r.env.Client(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients = append(r.clients, c)
	return c
}

// atTheEnd registers a check that is called after all actors have finished.
func (r *Run) atTheEnd(check func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.atEnd = append(r.atEnd, check)
}

// steadily returns a part with a number of actors, each with a session of a common client. The sessions must
// never be lost. The actors play their rounds until the load ends.
func steadily(name string, actors int, round func(*actor, *client.Session) error) Part {
	return Part{name, func(r *Run) {
		c := r.client(name)
		for range actors {
			r.start(name, func(a *actor) {
				s, err := a.open(r.ctx, c, r.opts.TTL, true)
				for err == nil && a.going() {
					if err = round(a, s); err == nil {
						a.rest()
					}
				}
				if err == nil {
					err = s.Close(r.ctx)
				}
				a.must("its round", err)
			})
		}
	}}
}

// fault records a violation.
func (r *Run) fault(format string, args ...any) { r.env.Log.Fault(format, args...) }

// count counts an event.
func (r *Run) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.did[what]++
}

// Did returns how often an event, one of the constants of this package, has happened so far.
func (r *Run) Did(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.did[what]
}

// counts adds to the counts.
func (r *Run) counts(more Counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.did.Add(more)
}
