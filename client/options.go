package client

import (
	"fmt"
	"math"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Mode says who may hold a lock together. Its zero value leaves the choice to the
// rest of a request.
type Mode int32

// The modes of a hold.
const (
	// Exclusive: one holder, alone.
	Exclusive = Mode(wire.Mode_EXCLUSIVE)
	// Shared: any number of holders, none of them exclusive.
	Shared = Mode(wire.Mode_SHARED)
	// Permits: some of a semaphore's permits.
	Permits = Mode(wire.Mode_PERMITS)
)

// String names the mode in lower case.
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

// LockSpec is one lock of an acquire: of a lock with modes, or some permits of a
// semaphore.
type LockSpec struct {
	Name string
	// Mode is Exclusive unless it is given. A semaphore has none.
	Mode Mode
	// Permits are those to take of a semaphore, 1 to Limit; 0 takes 1.
	Permits uint64
	// Limit makes it a semaphore of so many permits. All who use it name the same.
	Limit uint64
}

// request is the spec as it is sent.
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

// LockOption changes one lock call.
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

// WithValue stores bytes in the hold for everybody to read, at most 1 KiB unless
// the cluster is set otherwise.
func WithValue(value []byte) LockOption {
	return func(o *lockOptions) { o.value = value }
}

// WithShared asks for the lock together with others who do so: as a reader. Of several
// locks it means those whose spec leaves the mode out.
func WithShared() LockOption {
	return func(o *lockOptions) { o.shared = true }
}

// WithUnfair asks for a lock that is given to one of those who wait by lot, not in their
// order. It is for one exclusive lock, and belongs to the lock as long as that exists:
// whoever asks otherwise gets ErrMismatch.
func WithUnfair() LockOption {
	return func(o *lockOptions) { o.unfair = true }
}

// Reentrant lets an owner that holds the lock already, in this mode or exclusively,
// hold it once more instead of being refused with ErrAlreadyHeld. The lock is free after
// as many Unlocks. An owner is whoever asks with a ctx that descends from the hold's
// Context. The hold keeps the token and the bounds that it has. Not for semaphores, nor
// for several locks.
func Reentrant() LockOption {
	return func(o *lockOptions) { o.reentrant = true }
}

// WithMaxHold bounds this hold: it is lost, with ErrHoldExpired, once d has passed
// without Extend, while the session lives on. From 100 ms to 24 days, rounded up to a
// millisecond.
func WithMaxHold(d time.Duration) LockOption {
	return func(o *lockOptions) { o.maxHold = d }
}

// WithLockDelay keeps what this hold held closed for d, at most a minute, if it ends by
// time or by force rather than by Unlock: for whoever still acts on it then. It is
// rounded up to a millisecond.
func WithLockDelay(d time.Duration) LockOption {
	return func(o *lockOptions) { o.lockDelay = d }
}

// WithRevocation asks to be told when somebody begins to wait for what is held, once,
// and calls notice for that and for every word of an operator who wants the hold back.
// It is called in a goroutine of its own, one call after the other, with the latest there
// is to know; that may be before Lock has returned. A nil notice leaves it to
// [Hold.Revoked].
func WithRevocation(notice func(Notice)) LockOption {
	return func(o *lockOptions) { o.notify, o.notice = true, notice }
}

// AllowDeadlock waits even where that closes a cycle of owners that wait for each other,
// instead of being refused with ErrDeadlock.
func AllowDeadlock() LockOption {
	return func(o *lockOptions) { o.allowDeadlock = true }
}

// withOwner asks as that owner, unless the ctx descends from a hold's.
func withOwner(owner uint64) LockOption {
	return func(o *lockOptions) { o.owner = owner }
}

// ownerBit keeps the keys of lock objects apart from those of single calls, which are
// their sequence numbers.
const ownerBit = 1 << 63

// newOwner is a fresh owner key for a lock object that asks more than once.
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

// millis is d in milliseconds, rounded up, as requests carry it.
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
