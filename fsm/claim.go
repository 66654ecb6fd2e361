package fsm

import (
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// claim is a wait, from its grant on a hold, and perhaps at last a lock-delay, under
// one id: the revision of its acquire, which is also its place in every queue. There are
// many: it fills a block of the allocator, of 80 bytes.
type claim struct {
	id, session, owner, seq uint64
	// one is the lock that it is for, unless extra names several: see wants.
	one [1]want
	// more is what a plain claim that was granted at once does without.
	more  *more
	token uint64
	// since is when it was granted or, while it waits, queued.
	since       int64
	waitMs      uint32
	waitForever bool
	fresh       bool // see made
}

// more is the part of a claim that it has if it was granted later than it asked, or if
// it is special. Versions of a claim share it.
type more struct {
	// queued is when the claim was, grantedRevision when it was granted. Without the
	// latter it was granted at once.
	queued          int64
	grantedRevision uint64
	extra           *extra
}

// want is one lock that a claim is for.
type want struct {
	lock *lock
	mode wire.Mode
	// permits of a semaphore.
	permits uint32
}

// extra is what makes a claim special; see options and vary.
type extra struct {
	// wants are the locks, if there are several.
	wants []want
	value []byte
	// again counts the acquires beyond the first that the hold counts.
	again uint32
	// maxHoldMs bounds the hold, 0 does not; holdGeneration is that of the bound's
	// deadline, graceGeneration that of a revocation's. Neither falls.
	maxHoldMs       uint32
	holdGeneration  uint64
	graceGeneration uint64
	lockDelayMs     uint32
	// notify asks to be told when somebody waits; wanted says that it was.
	notify, wanted bool
	allowDeadlock  bool
	revocation     *wire.Revocation
	upgrade        *upgrade
	// upgrades counts the waits to become exclusive: see generation.
	upgrades uint64
	// delayGeneration is that of the lock-delay's deadline; 0 before the delay.
	delayGeneration uint64
	delayed         int64
}

// upgrade is a hold's wait to become exclusive.
type upgrade struct {
	seq           uint64
	waitMs        uint32
	waitForever   bool
	allowDeadlock bool
	queued        int64
}

// phase is how far a claim has come.
type phase uint8

const (
	waiting phase = iota
	holding
	delayed
)

func (c *claim) phase() phase {
	switch {
	case c.token == 0:
		return waiting
	case c.extra() != nil && c.extra().delayGeneration != 0:
		return delayed
	}
	return holding
}

// held says that it is a live hold.
func (c *claim) held() bool { return c.phase() == holding }

// upgrading says that it is a hold that waits to become exclusive.
func (c *claim) upgrading() bool { return c.extra() != nil && c.extra().upgrade != nil }

// count is how many acquires a hold counts.
func (c *claim) count() uint32 { return c.options().again + 1 }

// wants are the locks that it is for, in the order of its request. The slice belongs
// to this version of the claim.
func (c *claim) wants() []want {
	if c.extra() != nil && c.extra().wants != nil {
		return c.extra().wants
	}
	return c.one[:]
}

// wantOf is what it wants of a lock, by its id; of mode UNSPECIFIED, nothing.
func (c *claim) wantOf(lock uint64) want {
	for _, w := range c.wants() {
		if w.lock.id == lock {
			return w
		}
	}
	return want{}
}

// drop takes one of several locks out of what it wants.
func (c *claim) drop(lock uint64) {
	own := c.vary()
	own.wants = slices.DeleteFunc(slices.Clone(own.wants), func(w want) bool { return w.lock.id == lock })
	if len(own.wants) == 1 {
		c.one[0], own.wants = own.wants[0], nil
	}
}

// generation is that of the wait's deadline: the acquire's, or the last upgrade's.
func (c *claim) generation() uint64 { return 1 + c.options().upgrades }

// extra is nil for a claim that is not special.
func (c *claim) extra() *extra {
	if c.more == nil {
		return nil
	}
	return c.more.extra
}

// options is the extra part for reading.
func (c *claim) options() extra {
	if e := c.extra(); e != nil {
		return *e
	}
	return extra{}
}

// vary is the extra part for changing: versions of a claim share it, so each change
// begins with a copy.
func (c *claim) vary() *extra {
	var own struct { // in one piece
		more  more
		extra extra
	}
	if c.more != nil {
		own.more = *c.more
	}
	own.extra = c.options()
	own.more.extra = &own.extra
	c.more = &own.more
	return &own.extra
}

// trim lets go of an extra part that has nothing left in it.
func (c *claim) trim() {
	e := c.extra()
	if e == nil || e.special() || e.wanted || e.revocation != nil || e.holdGeneration|e.delayGeneration != 0 {
		return
	}
	if c.late() {
		c.more = &more{queued: c.more.queued, grantedRevision: c.more.grantedRevision}
	} else {
		c.more = nil
	}
}

// late says that it was granted later than it asked.
func (c *claim) late() bool { return c.more != nil && c.more.grantedRevision != 0 }

func (c *claim) queued() int64 {
	if c.late() {
		return c.more.queued
	}
	return c.since
}

// granted is 0 before the grant, and so is grantedRevision.
func (c *claim) granted() int64 {
	if c.token == 0 {
		return 0
	}
	return c.since
}

func (c *claim) grantedRevision() uint64 {
	switch {
	case c.token == 0:
		return 0
	case c.late():
		return c.more.grantedRevision
	}
	return c.id
}

// grantLate notes a grant that comes later than the request.
func (c *claim) grantLate(revision uint64) {
	c.more = &more{queued: c.queued(), grantedRevision: revision, extra: c.extra()}
}

// waitsFor says whether the request of that sequence number is what it waits for.
func (c *claim) waitsFor(seq uint64) bool {
	return c.phase() == waiting && c.seq == seq || c.upgrading() && c.extra().upgrade.seq == seq
}
