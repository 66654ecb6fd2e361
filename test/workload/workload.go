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
	// FrailClient begins the names of clients that may be cut off, held back or ended.
	// All others must get through again before a steady session's TTL has passed.
	FrailClient = "frail"
	// Prefix begins the names of all locks and sessions of a load.
	Prefix = "load/"
)

// Env is the cluster that a load uses. Its functions are called from any goroutine.
type Env struct {
	// Client makes a client as if in a process of its own, with the history's tap on its
	// connections. The load closes it.
	Client func(name string) *client.Client
	// HTTP calls the nodes' HTTP ports, which are below Bases; nil where there are none.
	HTTP  connect.HTTPClient
	Bases []string
	// Stall is called by frail clients between their last look at a hold and what they do
	// under it: whoever holds a client's process back has it block there. May be nil.
	Stall func(client string)
	// Log is the history that everything is booked in.
	Log *history.Log
	// Seed decides what actors do and when.
	Seed uint64
}

// Options shape a load.
type Options struct {
	// Parts are what it consists of; nil is all of them.
	Parts []Part
	// TTL is that of sessions that must never be lost, 15 s by default; FrailTTL that of
	// the others and of leases, 5 s by default.
	TTL, FrailTTL time.Duration
	// Pace is about how long an actor rests between what it does. It holds locks for up
	// to a quarter of that. 200 ms by default.
	Pace time.Duration
	// Unguarded says that frail clients are held back beyond their TTL, so that only
	// tokens guard what they do then.
	Unguarded bool
}

// Part is one kind of load.
type Part struct {
	// Name is that of its actors, their clients and their locks.
	Name string
	play func(*Run)
}

// Parts lists all there are.
func Parts() []Part {
	return []Part{Line, Lone, Hot, Readers, Permits, Several, Visitors, Leases, Waits, Fenced, Elections, Frail, Dying}
}

// Run is a load under way.
type Run struct {
	env    Env
	opts   Options
	ctx    context.Context // ends what still waits when the bound for it has passed
	cancel context.CancelFunc
	stop   context.Context // over: actors finish what they are at
	end    context.CancelFunc
	acting sync.WaitGroup
	// following are those who wait for the ends of sessions.
	following sync.WaitGroup
	// reader looks at the cluster for everybody.
	reader *client.Client

	mu      sync.Mutex // guards what follows
	actors  uint64
	busy    map[string]int // actors under way, for messages
	clients []*client.Client
	lives   []*Life
	did     Counts
	lines   []*line
	atEnd   []func() // called when all actors have finished
}

// Start starts every actor, and returns when the line stands. Whatever is found wrong from
// then on is a fault in the log.
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

// client makes a client that is closed at the end at the latest.
func (r *Run) client(name string) *client.Client {
	c := r.env.Client(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients = append(r.clients, c)
	return c
}

// atTheEnd has a check called when all actors have finished.
func (r *Run) atTheEnd(check func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.atEnd = append(r.atEnd, check)
}

// steadily makes a part of so many actors, each with a session of one client that must
// never be lost. They play their rounds until the load ends.
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

// fault books what must not happen.
func (r *Run) fault(format string, args ...any) { r.env.Log.Fault(format, args...) }

// count books what happened.
func (r *Run) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.did[what]++
}

// Did says how often that has happened so far: one of the constants of this package.
func (r *Run) Did(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.did[what]
}

// counts books what happened more often.
func (r *Run) counts(more Counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.did.Add(more)
}
