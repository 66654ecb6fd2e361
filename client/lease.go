package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// leaseTTL is the default TTL of a lease.
	leaseTTL = 15 * time.Second
)

// Lease is a hold without a session. It lives for its TTL and is extended explicitly by any process that
// has its secret. The client does not notify anyone when a lease ends: check Remaining, and make the
// resource check Token.
type Lease struct {
	client  *Client
	secret  []byte
	names   []string
	id      uint64
	session uint64
	token   uint64
	ttl     time.Duration

	generated bool // the secret was generated here

	// Guarded by the client's mutex.
	until   time.Duration // by the client's clock
	pending []time.Duration
	over    bool
	release *call // the last one
}

// leaseTable holds the leases that are being acquired or released. It is guarded by the client's mutex.
type leaseTable struct {
	client *Client

	acquiring map[*Lease]struct{} // those with a generated secret, until their caller has them
	releasing map[leaseKey]*call
}

type leaseKey struct {
	secret string
	hold   uint64
}

// AcquireLease acquires locks as one lease, for programs that cannot keep a session. It waits as long as ctx
// allows, or as [WithWait] or [WithTry] says. If ctx ends first, the error matches ErrUncertain if the lease
// may be held, or may still be granted. If the secret was generated here, the client then releases the lease
// in the background, or cancels its wait. If the caller supplied the secret, it can acquire again with it within 5 s to
// keep its place, or release it. A lease whose caller is gone, also because its process or its connection has ended,
// keeps its place in the queue, or a grant after the wait, for 5 s. Other errors are those of [Session.Lock].
func (c *Client) AcquireLease(ctx context.Context, specs []LockSpec, opts ...LeaseOption) (*Lease, error) {
	o := optionsOf(opts)
	l, request, err := c.newLease(specs, o)
	if err != nil {
		return nil, err
	}
	if l.generated {
		c.mu.Lock()
		c.acquiring[l] = struct{}{}
		c.unlock()
	}
	keep, err := l.acquire(ctx, request)
	if err = l.acquired(keep, err); err != nil {
		return nil, err
	}
	return l, nil
}

// acquire makes the request. It reports whether there is no lease to release after an error.
func (l *Lease) acquire(ctx context.Context, request *wire.AcquireLeaseRequest) (keep bool, err error) {
	k := &call{kind: kindLease, done: l.client.freeLists.done()}
	k.request.Body = &wire.Request_AcquireLease{AcquireLease: request}
	k.after = func() { l.granted(k) }
	if err := l.client.call(ctx, k); err != nil {
		return !maybe(err), err
	}
	// A grant after a wait, or to an earlier request with the same secret, may already be old.
	if l.generated && l.Remaining() > l.ttl/2 {
		return true, nil
	}
	err = l.Extend(ctx, 0)
	return err == nil, err
}

// acquired ends an acquire. Whatever a generated secret may hold after an error is released, in the background and for
// as long as the lease can live, since nobody else knows that secret. A lease with a secret supplied by the caller is left
// alone.
func (l *Lease) acquired(keep bool, err error) error {
	c := l.client
	c.mu.Lock()
	defer c.unlock()
	delete(c.acquiring, l)
	switch {
	case c.closed:
		return cmp.Or(err, ErrClientClosed) // Close releases it
	case keep || !l.generated:
		return err
	}
	l.startRelease(0)
	return err
}

// startRelease sends the release and repeats it for as long as the lease can live.
func (l *Lease) startRelease(hold uint64) *call {
	c := l.client
	k := c.releaseLease(l.secret, hold)
	c.clock.AfterFunc(l.ttl, func() {
		c.mu.Lock()
		defer c.unlock()
		c.fail(k, &StatusError{StatusUncertain, "the lease was not released before its TTL had passed"})
	})
	return k
}

func (c *Client) newLease(specs []LockSpec, o *acquireOptions) (*Lease, *wire.AcquireLeaseRequest, error) {
	if len(specs) == 0 {
		return nil, nil, invalid("no locks: give 1 to 64")
	}
	l := &Lease{client: c, secret: slices.Clone(o.secret), ttl: cmp.Or(o.ttl, leaseTTL)}
	ttlMs, err := leaseMillis(l.ttl)
	if err != nil {
		return nil, nil, err
	}
	if l.generated = l.secret == nil; l.generated {
		l.secret = newSecret()
	} else if err := checkSecret(l.secret); err != nil {
		return nil, nil, err
	}
	k := &acquireCall{}
	if err := o.apply(k); err != nil {
		return nil, nil, err
	}
	mode := Exclusive
	if o.shared {
		mode = Shared
	}
	for _, spec := range specs {
		k.acquire.Locks = append(k.acquire.Locks, spec.request(mode))
		l.names = append(l.names, spec.Name)
	}
	return l, &wire.AcquireLeaseRequest{
		Secret: l.secret, TtlMs: ttlMs, Client: clientInfo(SessionOptions{Name: o.name, Labels: o.labels}), Acquire: &k.acquire,
	}, nil
}

func leaseMillis(ttl time.Duration) (uint32, error) {
	if ttl%time.Millisecond != 0 {
		return 0, invalid("TTL %v: give whole milliseconds", ttl)
	}
	return millis("TTL", ttl)
}

func checkSecret(secret []byte) error {
	if err := wire.CheckSecret(secret); err != nil {
		return invalid("%v", err)
	}
	return nil
}

// granted records the outcome of a lease's acquire. The lease's time began after the first request that may
// have been executed was sent.
func (l *Lease) granted(k *call) {
	result := k.response.GetResult()
	if k.err != nil || result.GetStatus() != wire.Status_GRANTED {
		return
	}
	l.id, l.token, l.session = result.GetHoldId(), result.GetToken(), result.GetSessionId()
	l.until = k.firstAt + l.ttl - margin(l.ttl)
	l.client.limitSilence(l.ttl)
}

// releaseLease sends a release, unless the same one is outstanding. The client repeats it until it is answered.
func (t *leaseTable) releaseLease(secret []byte, hold uint64) *call {
	key := leaseKey{string(secret), hold}
	if k := t.releasing[key]; k != nil {
		return k
	}
	k := &call{kind: kindReleaseLease, over: make(chan struct{})}
	k.request.Body = &wire.Request_ReleaseLease{ReleaseLease: &wire.ReleaseLeaseRequest{Secret: slices.Clone(secret), HoldId: hold}}
	k.after = func() {
		delete(t.releasing, key)
		if k.sends-k.answers > 1 && k.response.GetResult().GetStatus() == wire.Status_NOT_HELD {
			k.err = nil // an earlier transmission of this request released it
		}
	}
	t.releasing[key] = k
	t.client.submitAct(k)
	return k
}

// ReleaseLease releases the lease with that secret, or cancels its wait. It returns ErrNotHeld if there is
// no such lease, or if hold is neither 0 nor the lease's id. ctx bounds the wait only: if it ends first, or has already
// ended, the error matches ctx's error and ErrUncertain, and the client repeats the release until it is answered or the
// client is closed. A call that is made meanwhile waits for the same release.
func (c *Client) ReleaseLease(ctx context.Context, secret []byte, hold uint64) error {
	if err := checkSecret(secret); err != nil {
		return err
	}
	c.mu.Lock()
	if c.closed {
		c.unlock()
		return ErrClientClosed
	}
	k := c.releaseLease(secret, hold)
	c.unlock()
	return c.awaitAct(ctx, k)
}

// ExtendLease restarts the time of the lease with that secret, with ttl, or with the lease's current TTL if
// ttl is 0. It returns ErrNotHeld if the secret does not hold that hold, either no longer or not yet. If
// ctx ends first, the error matches ctx's error and ErrUncertain.
func (c *Client) ExtendLease(ctx context.Context, secret []byte, hold uint64, ttl time.Duration) error {
	_, err := c.extendLease(ctx, secret, hold, ttl)
	return err
}

// extendLease also returns when the successful request was sent.
func (c *Client) extendLease(ctx context.Context, secret []byte, hold uint64, ttl time.Duration) (time.Duration, error) {
	ms, err := leaseMillis(ttl)
	if err == nil {
		err = checkSecret(secret)
	}
	if err != nil {
		return 0, err
	}
	if ttl > 0 {
		c.mu.Lock()
		c.limitSilence(ttl)
		c.unlock()
	}
	k := &call{kind: kindExtendLease, done: c.freeLists.done()}
	k.request.Body = &wire.Request_ExtendLease{ExtendLease: &wire.ExtendLeaseRequest{Secret: secret, HoldId: hold, TtlMs: ms}}
	if err := c.readOnce(ctx, k); err != nil {
		return 0, err
	}
	return k.sentAt, nil
}

// ID returns the id of the hold on the cluster.
func (l *Lease) ID() uint64 { return l.id }

// Session returns the id of the lease's implicit session on the cluster.
func (l *Lease) Session() uint64 { return l.session }

// Token returns the fencing token, as [Hold.Token] does.
func (l *Lease) Token() uint64 { return l.token }

// Names returns the names of the locks, in the order of the request.
func (l *Lease) Names() []string { return slices.Clone(l.names) }

// Secret returns the secret, with which any process can extend and release the lease. Keep it private.
func (l *Lease) Secret() []byte { return slices.Clone(l.secret) }

// TTL returns how long the lease lives after its grant or last extension.
func (l *Lease) TTL() time.Duration {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	return l.ttl
}

// Remaining returns the time until the lease ends unless it is extended, or 0 if it has ended. It is never
// more than the time the leader counts. It does not reflect what other processes do with the lease.
func (l *Lease) Remaining() time.Duration {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	if l.over {
		return 0
	}
	until := l.until
	for _, at := range l.pending {
		until = min(until, at)
	}
	return max(0, until-l.client.clock.Now())
}

// Extend restarts the lease's time with ttl, or with its current TTL if ttl is 0. It returns ErrNotHeld if
// the lease has ended. If ctx ends first, the error matches ctx's error and ErrUncertain, and Remaining
// counts with the shorter of the two times.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	c := l.client
	c.mu.Lock()
	if ttl == 0 {
		ttl = l.ttl
	}
	at := c.clock.Now() + ttl - margin(ttl)
	l.pending = append(l.pending, at)
	c.mu.Unlock()
	sentAt, err := c.extendLease(ctx, l.secret, l.id, ttl)

	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(l.pending, at)
	switch {
	case err == nil:
		l.until, l.ttl = sentAt+ttl-margin(ttl), ttl
		l.pending = l.pending[i+1:] // earlier extends no longer matter, whatever their outcome
	case !maybe(err) && i >= 0:
		l.pending = slices.Delete(l.pending, i, i+1)
	}
	if errors.Is(err, ErrNotHeld) {
		l.over = true
	}
	return err
}

// Release releases the lease. It returns ErrNotHeld if the lease had ended. ctx bounds the wait only: if it ends first, or
// has already ended, the error matches ctx's error and ErrUncertain, and the client repeats the release until it is
// answered, the TTL has passed or the client is closed. Release can be called again, and returns nil once the lease is released.
func (l *Lease) Release(ctx context.Context) error {
	c := l.client
	c.mu.Lock()
	l.over = true
	if k := l.release; k == nil || k.finished && k.err != nil && !errors.Is(k.err, ErrNotHeld) {
		if c.closed {
			c.unlock()
			return ErrClientClosed
		}
		l.release = l.startRelease(l.id)
	}
	k := l.release
	c.unlock()
	return c.awaitAct(ctx, k)
}
