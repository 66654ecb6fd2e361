package client

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Mode is how a lock is held. With the zero value the mode follows from the other fields of the request.
type Mode int32

// The modes of a hold.
const (
	// Exclusive allows one holder.
	Exclusive Mode = 1
	// Shared allows any number of holders, none of them exclusive.
	Shared Mode = 2
	// Permits is the mode of a hold on some of a semaphore's permits.
	Permits Mode = 3
)

// String returns the mode's name in lower case.
func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	case Permits:
		return "permits"
	}
	return fmt.Sprintf("Mode(%d)", int32(m))
}

// LockSpec describes one lock of an acquire: a lock with a mode, or permits of a semaphore.
type LockSpec struct {
	Name string
	// Mode defaults to Exclusive. For a semaphore it is zero or Permits.
	Mode Mode
	// Permits is how many permits of a semaphore to take, 1 to Limit; 0 means 1.
	Permits uint64
	// Limit makes the lock a semaphore with that many permits. All its users must give the same limit.
	Limit uint64
}

// request returns the spec in wire format. mode is that of a lock without one.
func (l LockSpec) request(mode Mode) *wire.LockRequest {
	switch {
	case l.Mode != 0:
		mode = l.Mode
	case l.Limit != 0:
		mode = 0
	}
	return &wire.LockRequest{Name: l.Name, Mode: wire.Mode(mode), Permits: l.Permits, Limit: l.Limit}
}

// The options of a call. Each call accepts only the options that have an effect on it: the type of a
// function that returns an option lists the calls that accept it.
type (
	// LockOption configures [Session.Lock], [Session.Do] and [Session.Locker].
	LockOption interface {
		option
		forLock()
	}
	// LockAllOption configures [Session.LockAll] and [Semaphore.Acquire].
	LockAllOption interface {
		option
		forLockAll()
	}
	// UpgradeOption configures [Hold.Upgrade].
	UpgradeOption interface {
		option
		forUpgrade()
	}
	// LeaseOption configures [Client.AcquireLease].
	LeaseOption interface {
		option
		forLease()
	}
	// ElectionOption configures [Session.Election] and [Election.Campaign].
	ElectionOption interface {
		LockOption
		forElection()
	}
	// OnceOption configures [Session.Once] and [Once.Do].
	OnceOption interface {
		LockOption
		forOnce()
	}

	// option sets fields of acquireOptions.
	option interface{ set(o *acquireOptions) }
	setter func(o *acquireOptions)
)

func (s setter) set(o *acquireOptions) { s(o) }

// The types of options, by the calls that accept them.
type (
	// WaitOption sets how a call waits. Without one it waits as long as ctx allows.
	WaitOption struct{ setter }
	// ValueOption is accepted by calls that make a hold.
	ValueOption struct{ setter }
	// DelayOption is accepted by calls that make a hold.
	DelayOption struct{ setter }
	// HoldOption is accepted by calls that make a hold of a session.
	HoldOption struct{ setter }
	// SingleOption is accepted by calls for one lock.
	SingleOption struct{ setter }
	// ReentrantOption is accepted by calls for one lock of a session.
	ReentrantOption struct{ setter }
	// CachedOption is accepted by calls for one lock of a session.
	CachedOption struct{ setter }
	// OnlyLeaseOption is accepted by calls for a lease.
	OnlyLeaseOption struct{ setter }
)

func (WaitOption) forLock()     {}
func (WaitOption) forLockAll()  {}
func (WaitOption) forUpgrade()  {}
func (WaitOption) forLease()    {}
func (WaitOption) forElection() {}
func (WaitOption) forOnce()     {}

func (ValueOption) forLock()     {}
func (ValueOption) forLockAll()  {}
func (ValueOption) forLease()    {}
func (ValueOption) forElection() {}

func (DelayOption) forLock()     {}
func (DelayOption) forLockAll()  {}
func (DelayOption) forLease()    {}
func (DelayOption) forElection() {}
func (DelayOption) forOnce()     {}

func (HoldOption) forLock()     {}
func (HoldOption) forLockAll()  {}
func (HoldOption) forElection() {}
func (HoldOption) forOnce()     {}

func (SingleOption) forLock()  {}
func (SingleOption) forLease() {}

func (ReentrantOption) forLock() {}

func (CachedOption) forLock() {}

func (OnlyLeaseOption) forLease() {}

// acquireOptions is what the options of a call have set.
type acquireOptions struct {
	once          bool          // one attempt without waiting
	wait          time.Duration // 0 means as long as ctx allows, unless once is set
	value         []byte
	shared        bool
	unfair        bool
	reentrant     bool
	allowDeadlock bool
	notify        bool // when another owner waits
	wanted        func()
	revoked       func(Revocation)
	maxHold       time.Duration
	lockDelay     time.Duration
	cached        bool
	idle          time.Duration // how long a cached hold is kept unused

	ttl    time.Duration // of a lease
	secret []byte
	name   string
	labels map[string]string
}

// lockOptions joins options for calls of Lock.
func lockOptions[O LockOption](first, second []O) []LockOption {
	opts := make([]LockOption, 0, len(first)+len(second))
	for _, o := range first {
		opts = append(opts, o)
	}
	for _, o := range second {
		opts = append(opts, o)
	}
	return opts
}

// optionsOf collects the options of a call.
func optionsOf[O option](opts []O) *acquireOptions {
	o := new(acquireOptions)
	for _, opt := range opts {
		opt.set(o)
	}
	return o
}

// WithTry makes one attempt: if the lock is not free, or others wait for it, the call returns
// ErrNotAcquired without waiting.
func WithTry() WaitOption {
	return WaitOption{func(o *acquireOptions) { o.once, o.wait = true, 0 }}
}

// WithWait waits for at most d, measured by the leader, and then returns ErrTimeout. d is rounded up to a
// millisecond, and starts over after a change of leader. WithWait(0) is WithTry.
func WithWait(d time.Duration) WaitOption {
	return WaitOption{func(o *acquireOptions) { o.once, o.wait = d == 0, d }}
}

// WithValue stores bytes in the hold that everybody can read, at most 1 KiB unless the cluster is
// configured otherwise.
func WithValue(value []byte) ValueOption {
	return ValueOption{func(o *acquireOptions) { o.value = value }}
}

// WithShared requests the lock in shared mode, as a reader. Readers share the lock with each other. Requests
// are granted in arrival order: a reader that arrives while a writer waits queues behind the writer, so a
// stream of readers cannot starve writers. [Hold.Upgrade] turns a reader's hold into a writer's, and
// [Hold.Downgrade] a writer's into a reader's. Only the token of a writer fences; the tokens of readers only
// show their order.
func WithShared() SingleOption {
	return SingleOption{func(o *acquireOptions) { o.shared = true }}
}

// WithUnfair requests an exclusive lock that is granted to waiters in random order instead of arrival order.
// The order is a property of the lock while it exists: requests with the other order get ErrMismatch.
func WithUnfair() SingleOption {
	return SingleOption{func(o *acquireOptions) { o.unfair = true }}
}

// Reentrant lets an owner that already holds the lock, in the same mode or exclusively, acquire it again
// instead of being refused with ErrAlreadyHeld. The lock is free after as many Unlocks. An acquire belongs
// to the same owner if its ctx descends from the hold's Context. The hold keeps its token and bounds.
func Reentrant() ReentrantOption {
	return ReentrantOption{func(o *acquireOptions) { o.reentrant = true }}
}

// WithCached leaves the lock with the session when the hold is released, for a lock that one session uses most of the
// time. The next Lock of that name with this option in the same session is then granted locally, in arrival order and
// without a request to the cluster, each time with a new fencing token. Once another request waits for the lock, in
// this or another session, the cluster recalls it: nothing more is granted locally, and the session releases the lock
// after the present local hold. It also releases a lock that was unused for idle, which is rounded up to a millisecond
// and bounded by the cluster's settings, and keeps at most 1,024 locks unused.
//
// Only exclusive locks with FIFO order can be cached, without [WithValue] and [Reentrant]. A call whose [WithMaxHold] or
// [WithLockDelay] differs from that of the cached hold acquires the lock again, and a call whose ctx descends from a hold
// of the session goes to the cluster. [WithMaxHold] bounds each local hold.
//
// The errors, contexts and loss signals are those of any hold. While the session keeps the lock, Unlock returns without
// asking the cluster, so it does not report a forced release whose notice is still on its way.
func WithCached(idle time.Duration) CachedOption {
	if last := lastCached.Load(); last != nil && last.idle == idle {
		return last.option
	}
	option := CachedOption{func(o *acquireOptions) { o.cached, o.idle = true, idle }}
	lastCached.Store(&cachedIdle{idle, option})
	return option
}

// lastCached is the last result of WithCached: a hot path that calls it each time with the same argument then
// allocates nothing.
var lastCached atomic.Pointer[cachedIdle]

type cachedIdle struct {
	idle   time.Duration
	option CachedOption
}

// WithMaxHold bounds the hold: unless it is extended, it is lost with ErrHoldExpired once d has passed,
// while the session stays alive. d is 100 ms to 24 days, rounded up to a millisecond.
func WithMaxHold(d time.Duration) HoldOption {
	return HoldOption{func(o *acquireOptions) { o.maxHold = d }}
}

// WithLockDelay keeps the lock closed for d after the hold ends by expiry or by force rather than by
// Unlock, which protects against a former holder that is still acting. d is at most one minute, rounded up
// to a millisecond.
func WithLockDelay(d time.Duration) DelayOption {
	return DelayOption{func(o *acquireOptions) { o.lockDelay = d }}
}

// OnWanted requests a notice when another owner starts to wait for the lock, once per hold, and calls wanted
// for it in a separate goroutine, possibly before Lock has returned. It delays nothing and may call the SDK; a panic ends
// the program. wanted may be nil: see [Hold.Wanted].
// That somebody waits does not mean that the hold should be released; see OnRevoked for that.
func OnWanted(wanted func()) HoldOption {
	return HoldOption{func(o *acquireOptions) { o.notify, o.wanted = true, wanted }}
}

// OnRevoked calls revoked each time an operator asks for the hold back. Calls are made one at a time in a
// separate goroutine, possibly before Lock has returned, and carry the latest revocation. They delay nothing and may call
// the SDK; a panic ends the program. [Hold.Revoked]
// reports the same.
func OnRevoked(revoked func(Revocation)) HoldOption {
	return HoldOption{func(o *acquireOptions) { o.revoked = revoked }}
}

// AllowDeadlock waits even if that closes a cycle of owners waiting for each other, instead of returning
// ErrDeadlock.
func AllowDeadlock() WaitOption {
	return WaitOption{func(o *acquireOptions) { o.allowDeadlock = true }}
}

// WithTTL sets how long the lease lives after its grant or last extension, in whole milliseconds; the
// default is 15 s. A TTL outside the cluster's range is an error.
func WithTTL(ttl time.Duration) OnlyLeaseOption {
	return OnlyLeaseOption{func(o *acquireOptions) { o.ttl = ttl }}
}

// WithSecret sets the secret of the lease, the only proof of ownership: 16 to 64 random bytes. By default 32
// bytes are generated. Acquiring again with the secret of a live lease returns that lease, extended.
func WithSecret(secret []byte) OnlyLeaseOption {
	return OnlyLeaseOption{func(o *acquireOptions) { o.secret = secret }}
}

// WithDescription describes the holder of the lease to people who inspect the lock, as
// [SessionOptions] does for a session.
func WithDescription(name string, labels map[string]string) OnlyLeaseOption {
	return OnlyLeaseOption{func(o *acquireOptions) { o.name, o.labels = name, labels }}
}

// millis converts d to milliseconds, rounded up, as requests carry it.
func millis(what string, d time.Duration) (uint32, error) {
	if d < 0 || d > math.MaxUint32*time.Millisecond {
		return 0, invalid("%s %v: give 0 to 49 days", what, d)
	}
	return uint32((d + time.Millisecond - 1) / time.Millisecond), nil
}

// apply writes the options into the request.
func (o *acquireOptions) apply(k *acquireCall) (err error) {
	a := &k.acquire
	if a.WaitMs, err = millis("wait", o.wait); err != nil {
		return err
	}
	if a.MaxHoldMs, err = millis("max_hold", o.maxHold); err != nil {
		return err
	}
	if a.LockDelayMs, err = millis("lock-delay", o.lockDelay); err != nil {
		return err
	}
	a.WaitForever = !o.once && o.wait == 0
	a.Value = o.value
	a.Reentrant, a.AllowDeadlock, a.Notify = o.reentrant, o.allowDeadlock, o.notify
	if o.unfair {
		a.Order = wire.Order_UNFAIR
	}
	if o.shared {
		k.lock.Mode = wire.Mode_SHARED
	}
	k.wanted, k.revoked = o.wanted, o.revoked
	k.cached.IdleMs = millisOf(o.idle)
	return nil
}
