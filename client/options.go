package client

import (
	"fmt"
	"math"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Mode is how a lock is held. With the zero value the mode follows from the other fields of the request.
type Mode int32

// The modes of a hold.
const (
	// Exclusive allows one holder.
	Exclusive = Mode(wire.Mode_EXCLUSIVE)
	// Shared allows any number of holders, none of them exclusive.
	Shared = Mode(wire.Mode_SHARED)
	// Permits is the mode of a hold on some of a semaphore's permits.
	Permits = Mode(wire.Mode_PERMITS)
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
	// Mode defaults to Exclusive, or to Shared with [WithShared]. For a semaphore it is zero or Permits.
	Mode Mode
	// Permits is how many permits of a semaphore to take, 1 to Limit; 0 means 1.
	Permits uint64
	// Limit makes the lock a semaphore with that many permits. All its users must give the same limit.
	Limit uint64
}

// request returns the spec in wire format.
func (l LockSpec) request(shared bool) *wire.LockRequest {
	mode := l.Mode
	if mode == 0 && l.Limit == 0 {
		mode = Exclusive
		if shared {
			mode = Shared
		}
	}
	return &wire.LockRequest{Name: l.Name, Mode: wire.Mode(mode), Permits: l.Permits, Limit: l.Limit}
}

// LockOption configures one lock call.
type LockOption func(*lockOptions)

type lockOptions struct {
	value         []byte
	shared        bool
	unfair        bool
	reentrant     bool
	allowDeadlock bool
	notify        bool
	notice        func(Notice)
	maxHold       time.Duration
	lockDelay     time.Duration
	owner         uint64
}

// WithValue stores bytes in the hold that everybody can read, at most 1 KiB unless the cluster is
// configured otherwise.
func WithValue(value []byte) LockOption {
	return func(o *lockOptions) { o.value = value }
}

// WithShared requests the lock in shared mode, as a reader. For several locks it applies to those whose
// spec does not set a mode.
func WithShared() LockOption {
	return func(o *lockOptions) { o.shared = true }
}

// WithUnfair requests a lock that is granted to waiters in random order instead of arrival order. It
// applies to a single exclusive lock. The order is a property of the lock while it exists: requests with
// the other order get ErrMismatch.
func WithUnfair() LockOption {
	return func(o *lockOptions) { o.unfair = true }
}

// Reentrant lets an owner that already holds the lock, in the same mode or exclusively, acquire it again
// instead of being refused with ErrAlreadyHeld. The lock is free after as many Unlocks. An acquire belongs
// to the same owner if its ctx descends from the hold's Context. The hold keeps its token and bounds.
// Reentrant cannot be used with semaphores or with several locks.
func Reentrant() LockOption {
	return func(o *lockOptions) { o.reentrant = true }
}

// WithMaxHold bounds the hold: unless it is extended, it is lost with ErrHoldExpired once d has passed,
// while the session stays alive. d is 100 ms to 24 days, rounded up to a millisecond.
func WithMaxHold(d time.Duration) LockOption {
	return func(o *lockOptions) { o.maxHold = d }
}

// WithLockDelay keeps the lock closed for d after the hold ends by expiry or by force rather than by
// Unlock, which protects against a former holder that is still acting. d is at most one minute, rounded up
// to a millisecond.
func WithLockDelay(d time.Duration) LockOption {
	return func(o *lockOptions) { o.lockDelay = d }
}

// WithRevocation requests notices about the hold and calls notice for each: once when another owner starts
// to wait for the lock, and each time an operator asks for the hold back. Calls are made one at a time in a
// separate goroutine, possibly before Lock has returned, and always carry the latest state. If notice is
// nil, use [Hold.Revoked].
func WithRevocation(notice func(Notice)) LockOption {
	return func(o *lockOptions) { o.notify, o.notice = true, notice }
}

// AllowDeadlock waits even if that closes a cycle of owners waiting for each other, instead of returning
// ErrDeadlock.
func AllowDeadlock() LockOption {
	return func(o *lockOptions) { o.allowDeadlock = true }
}

// withOwner sets the owner of the request, unless the ctx descends from a hold's context.
func withOwner(owner uint64) LockOption {
	return func(o *lockOptions) { o.owner = owner }
}

// ownerBit separates the owner keys of lock objects from those of single calls, which are their sequence
// numbers.
const ownerBit = 1 << 63

// newOwner returns a new owner key for a lock object that makes more than one request.
func (s *Session) newOwner() uint64 {
	s.client.mu.Lock()
	defer s.client.unlock()
	s.owners++
	return ownerBit | s.owners
}

func optionsOf(opts []LockOption) *lockOptions {
	o := new(lockOptions)
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// millis converts d to milliseconds, rounded up, as requests carry it.
func millis(what string, d time.Duration) (uint32, error) {
	if d < 0 || d > math.MaxUint32*time.Millisecond {
		return 0, invalid("%s %v: give 0 to 49 days", what, d)
	}
	return uint32((d + time.Millisecond - 1) / time.Millisecond), nil
}

// apply writes the options into the request.
func (o *lockOptions) apply(k *acquireCall) (err error) {
	a := &k.acquire
	if a.MaxHoldMs, err = millis("max_hold", o.maxHold); err != nil {
		return err
	}
	if a.LockDelayMs, err = millis("lock-delay", o.lockDelay); err != nil {
		return err
	}
	a.Value, a.Owner = o.value, o.owner
	a.Reentrant, a.AllowDeadlock, a.Notify = o.reentrant, o.allowDeadlock, o.notify
	if o.unfair {
		a.Order = wire.Order_UNFAIR
	}
	k.notice = o.notice
	return nil
}
