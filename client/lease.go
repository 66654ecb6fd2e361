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
}

// AcquireLease acquires locks as one lease, for programs that cannot keep a session. It waits as long as ctx
// allows, or as [WithWait] or [WithTry] says. If ctx ends first, the error matches ErrUncertain if the lease
// may be held, or may still be granted. If the secret was generated here, the client then releases the lease
// in the background. If the caller supplied the secret, it can acquire again with it within 5 s to keep its place,
// or release it. A lease whose caller is gone, also because its process or its connection has ended, keeps its place in
// the queue, or a grant after the wait, for 5 s. Other errors are those of [Session.Lock].
func (c *Client) AcquireLease(ctx context.Context, specs []LockSpec, opts ...LeaseOption) (*Lease, error) {
	o := optionsOf(opts)
	l, request, err := c.newLease(specs, o)
	if err != nil {
		return nil, err
	}
	k := &call{kind: kindLease, done: c.freeLists.done()}
	k.request.Body = &wire.Request_AcquireLease{AcquireLease: request}
	k.after = func() { l.granted(k) }
	if err := c.call(ctx, k); err != nil {
		if maybe(err) { // the lease may be held under the generated secret
			l.abandon()
		}
		return nil, err
	}
	// A grant after a wait, or to an earlier request with the same secret, may already be old.
	if l.generated && l.Remaining() > l.ttl/2 {
		return l, nil
	}
	if err := l.Extend(ctx, 0); err != nil {
		l.abandon()
		return nil, err
	}
	return l, nil
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
}

// abandon releases, in the background and for as long as the lease can live, whatever a generated secret
// may hold: nobody else knows that secret. A lease with a secret supplied by the caller is left alone.
func (l *Lease) abandon() {
	c := l.client
	c.mu.Lock()
	defer c.unlock()
	if c.closed || !l.generated {
		return
	}
	k := newReleaseLease(l.secret, 0)
	c.submit(k)
	c.clock.AfterFunc(l.ttl, func() {
		c.mu.Lock()
		defer c.unlock()
		c.finish(k)
	})
}

func newReleaseLease(secret []byte, hold uint64) *call {
	k := &call{kind: kindLeased}
	k.request.Body = &wire.Request_ReleaseLease{ReleaseLease: &wire.ReleaseLeaseRequest{Secret: secret, HoldId: hold}}
	return k
}

// ReleaseLease releases the lease with that secret, or cancels its wait. It returns ErrNotHeld if there is
// no such lease, or if hold is neither 0 nor the lease's id. If ctx ends first, the error matches ctx's
// error and ErrUncertain.
func (c *Client) ReleaseLease(ctx context.Context, secret []byte, hold uint64) error {
	if err := checkSecret(secret); err != nil {
		return err
	}
	k := newReleaseLease(secret, hold)
	k.done = c.freeLists.done()
	err := c.readOnce(ctx, k)
	if k.err != nil && k.sends-k.answers > 1 && k.response.GetResult().GetStatus() == wire.Status_NOT_HELD {
		return nil // an earlier transmission of this request released it
	}
	return err
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
	k := &call{kind: kindLeased, done: c.freeLists.done()}
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

// Release releases the lease. It returns ErrNotHeld if the lease had ended. If ctx ends first, the error
// matches ctx's error and ErrUncertain, and Release can be called again.
func (l *Lease) Release(ctx context.Context) error {
	l.client.mu.Lock()
	l.over = true
	l.client.mu.Unlock()
	return l.client.ReleaseLease(ctx, l.secret, l.id)
}
