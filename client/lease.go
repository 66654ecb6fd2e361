package client

import (
	"context"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// leaseTTL is a lease's TTL where none is given.
	leaseTTL = 15 * time.Second
)

// LeaseOptions shape a lease.
type LeaseOptions struct {
	// Secret is the only proof of whose the lease is, 16 to 64 random bytes. nil makes
	// one of 32. Whoever asks again with the secret of a lease that lives gets that lease,
	// extended.
	Secret []byte
	// TTL is how long it lives from its grant, or from its last extension, in whole
	// milliseconds; 0 is 15 s. Out of the cluster's range is an error.
	TTL time.Duration
	// Try asks once. Otherwise Wait bounds the waiting as the leader counts it, and 0
	// waits as long as ctx allows.
	Try  bool
	Wait time.Duration
	// Name and Labels are for people who look at who holds what.
	Name   string
	Labels map[string]string
}

// Lease is a hold without a session: it lives for its TTL and is extended explicitly,
// by whoever has its secret, in this process or another. Nothing is called when it is
// over; look at Remaining, and let the resource look at Token.
type Lease struct {
	client  *Client
	secret  []byte
	names   []string
	id      uint64
	session uint64
	token   uint64
	ttl     time.Duration

	// Guarded by the client's mutex.
	until   time.Duration // by the client's clock
	pending []time.Duration
	over    bool
}

// AcquireLease acquires locks as one lease, for programs that cannot keep a session. If
// ctx ends first the error matches ErrUncertain if it may be, or come to be, held. What a
// secret has that was made here is then given back in the background; one that was given
// can be asked again, or released, and ends with its TTL. Other errors are Lock's. Of the options [WithValue], [WithShared], [WithUnfair], [WithLockDelay] and
// [AllowDeadlock] mean something here.
func (c *Client) AcquireLease(ctx context.Context, specs []LockSpec, opts LeaseOptions, more ...LockOption) (*Lease, error) {
	l, request, err := c.newLease(specs, opts, more)
	if err != nil {
		return nil, err
	}
	k := &call{kind: kindLease, done: c.spare.done()}
	k.request.Body = &wire.Request_AcquireLease{AcquireLease: request}
	k.after = func() { l.granted(k) }
	if err := c.call(ctx, k); err != nil {
		if maybe(err) { // it may be held under our secret
			l.abandon(opts)
		}
		return nil, err
	}
	// A grant that had waited, or that another process had asked for, may be old.
	if opts.Secret == nil && l.Remaining() > l.ttl/2 {
		return l, nil
	}
	if err := l.Extend(ctx, 0); err != nil {
		l.abandon(opts)
		return nil, err
	}
	return l, nil
}

func (c *Client) newLease(specs []LockSpec, opts LeaseOptions, more []LockOption) (*Lease, *wire.AcquireLeaseRequest, error) {
	if len(specs) == 0 {
		return nil, nil, invalid("no locks: give 1 to 64")
	}
	o := optionsOf(more)
	if o.maxHold != 0 || o.notify || o.reentrant {
		return nil, nil, invalid("a lease is bounded by its TTL, is told nothing and is not re-entered: leave out WithMaxHold, WithRevocation and Reentrant")
	}
	l := &Lease{client: c, secret: slices.Clone(opts.Secret), ttl: opts.TTL}
	if l.ttl == 0 {
		l.ttl = leaseTTL
	}
	ttlMs, err := leaseMillis(l.ttl)
	if err != nil {
		return nil, nil, err
	}
	if l.secret == nil {
		l.secret = newSecret()
	} else if err := checkSecret(l.secret); err != nil {
		return nil, nil, err
	}
	waitMs, err := millis("wait", opts.Wait)
	if err != nil {
		return nil, nil, err
	}
	k := &acquireCall{}
	if err := o.apply(k); err != nil {
		return nil, nil, err
	}
	k.acquire.WaitMs, k.acquire.WaitForever, k.acquire.Owner = waitMs, !opts.Try && opts.Wait == 0, 0
	if opts.Try {
		k.acquire.WaitMs = 0
	}
	for _, spec := range specs {
		k.acquire.Locks = append(k.acquire.Locks, spec.request(o.shared))
		l.names = append(l.names, spec.Name)
	}
	return l, &wire.AcquireLeaseRequest{
		Secret: l.secret, TtlMs: ttlMs, Client: clientInfo(SessionOptions{Name: opts.Name, Labels: opts.Labels}), Acquire: &k.acquire,
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

// granted books the outcome of a lease's acquire. Its time began after the first request
// that may have been executed was sent.
func (l *Lease) granted(k *call) {
	result := k.response.GetResult()
	if k.err != nil || result.GetStatus() != wire.Status_GRANTED {
		return
	}
	l.id, l.token, l.session = result.GetHoldId(), result.GetToken(), result.GetSessionId()
	l.until = k.firstAt + l.ttl - margin(l.ttl)
}

// abandon gives back, in the background and for as long as it can live, what a secret has
// that nobody else knows. Others decide over theirs.
func (l *Lease) abandon(opts LeaseOptions) {
	c := l.client
	c.mu.Lock()
	defer c.unlock()
	if c.closed || opts.Secret != nil {
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

// ReleaseLease releases the lease of that secret, or cancels its wait. It returns
// ErrNotHeld if there is none, or if hold is not 0 and not its id. If ctx ends first the
// error matches ctx's and ErrUncertain.
func (c *Client) ReleaseLease(ctx context.Context, secret []byte, hold uint64) error {
	if err := checkSecret(secret); err != nil {
		return err
	}
	k := newReleaseLease(secret, hold)
	k.done = c.spare.done()
	err := c.readOnce(ctx, k)
	if k.err != nil && k.sends-k.answers > 1 && k.response.GetResult().GetStatus() == wire.Status_NOT_HELD {
		return nil // an earlier sending of this very request released it
	}
	return err
}

// ExtendLease begins the time of the lease of that secret anew, with ttl, or with the
// lease's own if ttl is 0. It returns ErrNotHeld if hold is not held by it any more, or
// not yet. If ctx ends first the error matches ctx's and ErrUncertain.
func (c *Client) ExtendLease(ctx context.Context, secret []byte, hold uint64, ttl time.Duration) error {
	_, err := c.extendLease(ctx, secret, hold, ttl)
	return err
}

// extendLease also says when the request that succeeded was sent.
func (c *Client) extendLease(ctx context.Context, secret []byte, hold uint64, ttl time.Duration) (time.Duration, error) {
	ms, err := leaseMillis(ttl)
	if err == nil {
		err = checkSecret(secret)
	}
	if err != nil {
		return 0, err
	}
	k := &call{kind: kindLeased, done: c.spare.done()}
	k.request.Body = &wire.Request_ExtendLease{ExtendLease: &wire.ExtendLeaseRequest{Secret: secret, HoldId: hold, TtlMs: ms}}
	if err := c.readOnce(ctx, k); err != nil {
		return 0, err
	}
	return k.sentAt, nil
}

// ID names the hold on the cluster.
func (l *Lease) ID() uint64 { return l.id }

// Session names the lease's implicit session on the cluster.
func (l *Lease) Session() uint64 { return l.session }

// Token is the fencing token, as of any hold.
func (l *Lease) Token() uint64 { return l.token }

// Names are the names of its locks, in the order of the request.
func (l *Lease) Names() []string { return slices.Clone(l.names) }

// Secret is what extends and releases the lease from anywhere. Keep it to yourself.
func (l *Lease) Secret() []byte { return slices.Clone(l.secret) }

// TTL is what the lease lives from its grant or last extension.
func (l *Lease) TTL() time.Duration {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	return l.ttl
}

// Remaining is the time until the lease is over unless it is extended, and 0 once it is:
// never more than the leader counts. What other processes do to it is not in it.
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

// Extend begins the lease's time anew, with ttl, or with what it has if ttl is 0. It
// returns ErrNotHeld if it is over. If ctx ends first the error matches ctx's and
// ErrUncertain; Remaining then counts with whichever time is shorter.
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
		l.pending = l.pending[i+1:] // whatever became of those before
	case !maybe(err) && i >= 0:
		l.pending = slices.Delete(l.pending, i, i+1)
	}
	if isStatus(err, wire.Status_NOT_HELD) {
		l.over = true
	}
	return err
}

// Release releases the lease. It returns ErrNotHeld if it was over. If ctx ends first the
// error matches ctx's and ErrUncertain, and Release can be called again.
func (l *Lease) Release(ctx context.Context) error {
	l.client.mu.Lock()
	l.over = true
	l.client.mu.Unlock()
	return l.client.ReleaseLease(ctx, l.secret, l.id)
}
