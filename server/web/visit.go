package web

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"
)

// A visit is one acquire (or upgrade, or lease) that callers of this port wait for or were answered: one
// caller, or more if it was sent again meanwhile. What becomes of it when the last
// caller goes is decided here, between two promises:
//
//   - no hold is left behind silently: an acquire that nobody waits for any more is
//     cancelled, and released if the grant came first;
//   - a retry gets the latest outcome: so the cancelling waits for RetryGrace, and a
//     caller that comes back within it finds its place kept.
//
// One thing outranks both: a hold that somebody may have been told of is never
// released for him. A grant is handed out only while its caller is there, and from
// then on (or if it was made before this visit began) it ends by its own release, or
// with its session.
type visit struct {
	callers int
	// told: a grant may be known outside, so nothing is to be cancelled.
	told bool
	// timer runs while nobody is here.
	timer *time.Timer
	// ended is set when the cancelling has begun and closed when it is done.
	ended chan struct{}
}

// visitKey names what is visited: a request of a session, or a lease.
type visitKey struct {
	session, seq uint64
	// from is the hold's token before, of an upgrade; 0 of an acquire.
	from uint64
	// lease is the hash of the lease's secret.
	lease [sha256.Size]byte
	// digest is that of the request, since a caller may use the number or the secret of one
	// request for another: that is refused, and must not change what becomes of the first.
	digest uint64
}

func (k visitKey) isLease() bool { return k.session == 0 }

// visits are those of one node. They are lost with its leadership: an acquire whose
// caller goes away across a change of leader ends by its own time, or with its
// session.
type visits struct {
	grace time.Duration
	// cancel ends an abandoned acquire; it returns when that is done or hopeless.
	cancel func(visitKey)

	running sync.WaitGroup // of finish

	mu   sync.Mutex // guards open and what is in it
	open map[visitKey]*visit
}

func newVisits(grace time.Duration, cancel func(visitKey)) *visits {
	return &visits{grace: max(grace, 0), cancel: cancel, open: map[visitKey]*visit{}}
}

// enter joins the visit of key, or begins it; granted says whether the request was
// granted before. Known is whether somebody may have been told of that. If the visit
// is just being cancelled, enter waits for that, so that the caller sees how it ended.
func (v *visits) enter(ctx context.Context, key visitKey, granted func() bool) (here *visit, known bool, err error) {
	for {
		here, known, ended := v.join(key, granted)
		if here != nil {
			return here, known, nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

func (v *visits) join(key visitKey, granted func() bool) (*visit, bool, chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	here := v.open[key]
	switch {
	case here == nil:
		here = &visit{told: granted()}
		v.open[key] = here
	case here.ended != nil:
		return nil, false, here.ended
	case here.timer != nil:
		here.timer.Stop()
		here.timer = nil
	}
	here.callers++
	return here, here.told, nil
}

// tell marks that a caller gets the grant, if it is still there to get it.
func (v *visits) tell(ctx context.Context, here *visit) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	here.told = true
	return true
}

// leave is called once for every enter. abandoned says that the caller went away
// without an answer; one that was told to ask again comes back by itself.
func (v *visits) leave(key visitKey, here *visit, abandoned bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	here.callers--
	if here.callers > 0 {
		return
	}
	if !abandoned || here.told {
		delete(v.open, key)
		return
	}
	here.timer = time.AfterFunc(v.grace, func() { v.end(key, here) })
}

// end cancels a visit that nobody came back to.
func (v *visits) end(key visitKey, here *visit) {
	v.mu.Lock()
	if v.open[key] != here || here.callers > 0 || here.ended != nil {
		v.mu.Unlock()
		return
	}
	v.doom(here)
	v.mu.Unlock()
	v.finish(key, here)
}

// doom begins the end of a visit; v.mu is held. finish follows.
func (v *visits) doom(here *visit) {
	here.timer.Stop()
	here.ended = make(chan struct{})
	v.running.Add(1)
}

func (v *visits) finish(key visitKey, here *visit) {
	defer v.running.Done()
	v.cancel(key)

	v.mu.Lock()
	delete(v.open, key)
	v.mu.Unlock()
	close(here.ended)
}

// close cancels at once what nobody waits for, and waits for that. No caller enters
// any more when it is called, and all have left.
func (v *visits) close() {
	v.mu.Lock()
	for key, here := range v.open {
		if here.callers == 0 && here.ended == nil {
			v.doom(here)
			go v.finish(key, here)
		}
	}
	v.mu.Unlock()
	v.running.Wait()
}
