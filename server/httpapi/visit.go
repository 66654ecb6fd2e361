package httpapi

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"
)

// visit is one acquire (or upgrade, or lease) that callers of this port wait for or got an answer to. It has
// more than one caller if the request was sent again meanwhile. When its last caller leaves, the visit ends
// under two guarantees:
//
//   - No hold is left behind silently: an acquire without callers is cancelled, and released if it was
//     already granted.
//   - A retry gets the latest outcome: cancelling is delayed by RetryGrace, and a caller that comes back
//     within it finds its place in the queue kept.
//
// One rule takes precedence: the port never releases a hold that a client may know of. A grant is sent only
// while its caller is connected. After that, or if it was granted before this visit began, the hold ends by
// its own release or with its session.
type visit struct {
	callers int
	// told is set if a client may know of the grant, so that nothing may be cancelled.
	told bool
	// timer runs while there are no callers.
	timer *time.Timer
	// ended is set when cancelling has begun and closed when it is done.
	ended chan struct{}
}

// visitKey identifies a visit: a request of a session, or a lease.
type visitKey struct {
	session, seq uint64
	// from is the hold's token before an upgrade; 0 for an acquire.
	from uint64
	// lease is the hash of the lease's secret.
	lease [sha256.Size]byte
	// digest is the digest of the request, since a client may reuse the sequence number or secret of one
	// request for another. The other one is refused, and must not affect the visit of the first.
	digest uint64
}

func (k visitKey) isLease() bool { return k.session == 0 }

// visits holds the visits of one node. They are lost with its leadership: an acquire whose caller leaves
// during a change of leader ends by its own timeout or with its session.
type visits struct {
	grace time.Duration
	// cancel ends an abandoned acquire. It returns when that is done or has failed for good.
	cancel func(visitKey)

	running sync.WaitGroup // running calls of finish

	mu   sync.Mutex // guards open and the visits in it
	open map[visitKey]*visit
}

func newVisits(grace time.Duration, cancel func(visitKey)) *visits {
	return &visits{grace: max(grace, 0), cancel: cancel, open: map[visitKey]*visit{}}
}

// enter joins the visit of key, or starts it. granted reports whether the request was granted before. known
// is true if a client may know of that grant. If the visit is being cancelled, enter waits for that, so that
// the caller sees the outcome.
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

// tell records that a caller is about to get the grant. It returns false if the caller is gone.
func (v *visits) tell(ctx context.Context, here *visit) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	here.told = true
	return true
}

// leave must be called once for every enter. abandoned means that the caller left without an answer. A caller
// that was told to retry has not abandoned the visit.
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

// end cancels a visit if no caller has come back.
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

// doom marks a visit as ending. The caller holds v.mu and must call finish next.
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

// close immediately cancels the visits without callers, and waits for that. When it is called, all callers
// have left and none may enter.
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
