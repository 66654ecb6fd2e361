package pending

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"
)

// Key identifies a request: by a session and a sequence number, or by a lease.
type Key struct {
	// Session and Seq identify a session's request; zero for a lease.
	Session, Seq uint64
	// From is the hold's token before an upgrade; 0 for an acquire.
	From uint64
	// Lease is the hash of the lease's secret.
	Lease [sha256.Size]byte
	// Identity is the caller's, on whose behalf an abandoned lease is given up.
	Identity string
	// Digest is the digest of the request, since a client may reuse the sequence number or secret of one
	// request for another. The other one is refused, and must not affect the first.
	Digest uint64
}

// IsLease reports whether the request is for a lease.
func (k Key) IsLease() bool { return k.Session == 0 }

// Request is a pending request.
type Request struct {
	key     Key
	callers int
	// delivered is set if a client may know of the grant, so that nothing may be cancelled.
	delivered bool
	// timer runs while there are no callers.
	timer *time.Timer
	// ended is set when cancelling has begun and closed when it is done.
	ended chan struct{}
}

// Requests holds the pending requests of one node. They are lost with its leadership: an acquire whose caller
// leaves during a change of leader ends by its own timeout or with its session. Requests is safe for
// concurrent use.
type Requests struct {
	grace  time.Duration
	cancel func(Key)

	running sync.WaitGroup // running calls of finish

	mu      sync.Mutex // guards pending and the requests in it
	pending map[Key]*Request
}

// New returns an empty set. A request that its last caller has left is cancelled after the grace period, at
// once if that is not positive. cancel must return when the request has ended or cannot be ended.
func New(grace time.Duration, cancel func(Key)) *Requests {
	return &Requests{grace: max(grace, 0), cancel: cancel, pending: map[Key]*Request{}}
}

// Enter adds a caller to the request of key. granted reports whether the request was granted before. known is
// true if a client may know of that grant. If the request is being cancelled, Enter waits for that, so that
// the caller sees the outcome. It returns ctx's error if ctx ends first.
func (r *Requests) Enter(ctx context.Context, key Key, granted func() bool) (req *Request, known bool, err error) {
	for {
		req, known, ended := r.join(key, granted)
		if req != nil {
			return req, known, nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

func (r *Requests) join(key Key, granted func() bool) (*Request, bool, chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	req := r.pending[key]
	switch {
	case req == nil:
		req = &Request{key: key, delivered: granted()}
		r.pending[key] = req
	case req.ended != nil:
		return nil, false, req.ended
	case req.timer != nil:
		req.timer.Stop()
		req.timer = nil
	}
	req.callers++
	return req, req.delivered, nil
}

// Deliver records that a caller is about to get the grant. It returns false if the caller is gone, which means
// that ctx has ended.
func (r *Requests) Deliver(ctx context.Context, req *Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	req.delivered = true
	return true
}

// Leave must be called once for every Enter. abandoned means that the caller left without an answer. A caller
// that was told to retry has not abandoned the request.
func (r *Requests) Leave(req *Request, abandoned bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	req.callers--
	if req.callers > 0 {
		return
	}
	if !abandoned || req.delivered {
		delete(r.pending, req.key)
		return
	}
	req.timer = time.AfterFunc(r.grace, func() { r.expire(req) })
}

// expire cancels a request if no caller has come back.
func (r *Requests) expire(req *Request) {
	r.mu.Lock()
	if r.pending[req.key] != req || req.callers > 0 || req.ended != nil {
		r.mu.Unlock()
		return
	}
	r.begin(req)
	r.mu.Unlock()
	r.finish(req)
}

// begin marks a request as ending. The caller holds r.mu and must call finish next.
func (r *Requests) begin(req *Request) {
	req.timer.Stop()
	req.ended = make(chan struct{})
	r.running.Add(1)
}

func (r *Requests) finish(req *Request) {
	defer r.running.Done()
	r.cancel(req.key)

	r.mu.Lock()
	delete(r.pending, req.key)
	r.mu.Unlock()
	close(req.ended)
}

// Close cancels the requests without callers at once, and waits for that. When it is called, all callers have
// left and none may enter.
func (r *Requests) Close() {
	r.mu.Lock()
	for _, req := range r.pending {
		if req.callers == 0 && req.ended == nil {
			r.begin(req)
			go r.finish(req)
		}
	}
	r.mu.Unlock()
	r.running.Wait()
}

// Len returns the number of pending requests, and of those without callers.
func (r *Requests) Len() (all, abandoned int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, req := range r.pending {
		if req.callers == 0 {
			abandoned++
		}
	}
	return len(r.pending), abandoned
}
