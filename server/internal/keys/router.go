package keys

import (
	"context"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// dialTimeout bounds the opening of a link. It is short because the leader is either near or down.
const dialTimeout = time.Second

// route is where requests are executed for a while.
type route struct {
	// link leads to the leader; nil if this node leads.
	link *link
	// ctx ends when requests have to take another route.
	ctx context.Context
	end context.CancelFunc
}

func newRoute(to *link) *route {
	ctx, end := context.WithCancel(context.Background())
	return &route{link: to, ctx: ctx, end: end}
}

// router knows the present route. One goroutine looks for routes, and only while requests wait for one, so a node whose
// Redis port is not used connects to nobody.
type router struct {
	cfg     Config
	metrics *metrics
	wake    chan struct{}
	stopped chan struct{} // closed when no more routes are found
	links   sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	current *route     // nil if there is none
	found   chan struct{}
	waiting int // requests that wait for a route
	// dialing is the leader that a link is being opened to, and giveUp ends that.
	dialing string
	giveUp  context.CancelFunc
}

func newRouter(cfg Config, m *metrics) *router {
	return &router{cfg: cfg, metrics: m, wake: make(chan struct{}, 1), stopped: make(chan struct{}), found: make(chan struct{}), giveUp: func() {}}
}

// await returns the present route. It waits for one until the deadline, and then returns ErrNoLeader.
func (r *router) await(ctx context.Context, deadline time.Time) (*route, error) {
	left := time.Until(deadline)
	if left <= 0 {
		return nil, ErrNoLeader
	}
	if current, _ := r.look(0); current != nil {
		return current, ctx.Err()
	}
	current, found := r.look(+1)
	defer r.look(-1)
	r.poke()
	timer := time.NewTimer(left)
	defer timer.Stop()
	for current == nil {
		select {
		case <-found:
			current, found = r.look(0)
		case <-timer.C:
			return nil, ErrNoLeader
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.stopped:
			return nil, ErrNoLeader
		}
	}
	return current, nil
}

// look returns the present route and a channel that is closed when another one is found, and adds to the number of
// waiting requests.
func (r *router) look(more int) (current *route, found chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting += more
	return r.current, r.found
}

func (r *router) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// failed ends a route on which a request was not executed. The requests on it are repeated.
func (r *router) failed(old *route) { r.replace(old, nil) }

// replace replaces the route, unless that has happened already.
func (r *router) replace(old, next *route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != old {
		return
	}
	if r.current = next; old != nil {
		old.end()
		if old.link != nil {
			old.link.stop()
		}
	}
	if next != nil {
		close(r.found)
		r.found = make(chan struct{})
	}
}

// run looks for routes until ctx ends. It pauses between two attempts.
func (r *router) run(ctx context.Context) {
	defer r.links.Wait()
	defer r.cfg.Replica.OnLeader(r.leaderChanged)()
	for ctx.Err() == nil {
		if !r.seeking() {
			wait(ctx, nil, r.wake)
		}
		if r.update(ctx) {
			wait(ctx, time.After(retryInterval), nil)
		}
	}
	close(r.stopped)
	if current, _ := r.look(0); current != nil {
		r.failed(current)
	}
}

// wait waits until one of the channels delivers or ctx ends.
func wait(ctx context.Context, passed <-chan time.Time, woken <-chan struct{}) {
	select {
	case <-passed:
	case <-woken:
	case <-ctx.Done():
	}
}

// seeking reports whether requests wait for a route that is not known.
func (r *router) seeking() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current == nil && r.waiting > 0
}

// leaderChanged ends an attempt to reach a node that no longer leads.
func (r *router) leaderChanged(leader *wire.LeaderHint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dialing != leader.GetId() {
		r.giveUp()
	}
	r.poke()
}

// update ends a route that no longer leads to the leader, and looks for another one if that is needed. It reports
// whether it has looked.
func (r *router) update(ctx context.Context) bool {
	old, _ := r.look(0)
	switch {
	case old != nil && r.leads(old), old == nil && !r.seeking():
		return false
	case old != nil:
		r.failed(old)
	}
	next := r.find(ctx)
	r.replace(nil, next)
	if next != nil && next.link != nil {
		r.links.Go(func() {
			next.link.read()
			r.failed(next)
		})
	}
	return true
}

// leads reports whether the route leads to the leader, as far as this node knows.
func (r *router) leads(on *route) bool {
	if here := r.cfg.Replica.Serving(); here || on.link == nil {
		return here && on.link == nil
	}
	return r.cfg.Replica.Leader().GetId() == on.link.to
}

// find returns a new route, nil if there is none.
func (r *router) find(ctx context.Context) *route {
	if r.cfg.Replica.Serving() {
		return newRoute(nil)
	}
	leader := r.cfg.Replica.Leader()
	if id := leader.GetId(); id == "" || id == r.cfg.NodeID {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, dialTimeout)
	defer stop()
	r.dials(leader.GetId(), stop)
	defer r.dials("", func() {})
	conn, err := r.cfg.Replica.OpenKeys(ctx, leader)
	if err != nil {
		r.metrics.unreached()
		return nil
	}
	link, err := newLink(leader.GetId(), conn, r.cfg.Buffers)
	if err != nil {
		_ = conn.Close()
		return nil
	}
	return newRoute(link)
}

func (r *router) dials(leader string, giveUp context.CancelFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dialing, r.giveUp = leader, giveUp
}
