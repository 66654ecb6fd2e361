package fsm

import (
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// claim is a wait, a hold from its grant on, and possibly a lock-delay at the end, all under one id: the
// revision of its acquire, which is also its place in every queue. There are many claims, so a claim is
// kept to 80 bytes, a size class of the allocator.
type claim struct {
	id, session, owner, seq uint64
	// one is the lock that the claim covers, unless extra lists several: see wants.
	one [1]want
	// more is nil for a plain claim that was granted immediately.
	more  *more
	token uint64
	// since is the time of the grant or, while the claim waits, the time it was queued.
	since       int64
	waitMs      uint32
	waitForever bool
	fresh       bool // see made
}

// more is the part of a claim that only claims need that were granted later than requested, or that have
// options. Versions of a claim share it.
type more struct {
	// queued is the time the claim was queued, and grantedRevision the revision of its grant.
	// grantedRevision is 0 if it was granted immediately.
	queued          int64
	grantedRevision uint64
	extra           *extra
}

// want is one lock that a claim covers.
type want struct {
	lock *lock
	mode wire.Mode
	// permits of a semaphore.
	permits uint32
}

// extra is the part of a claim that has options; see options and vary.
type extra struct {
	// wants are the locks, if there are several.
	wants []want
	value []byte
	// again counts the acquires of the hold beyond the first.
	again uint32
	// maxHoldMs bounds the hold unless it is 0. holdGeneration is the generation of that deadline,
	// graceGeneration that of a revocation's deadline. Generations never decrease.
	maxHoldMs       uint32
	holdGeneration  uint64
	graceGeneration uint64
	lockDelayMs     uint32
	// notify asks for a notice when something waits for the lock; wanted is true once it was sent.
	notify, wanted bool
	allowDeadlock  bool
	revocation     *wire.Revocation
	upgrade        *upgrade
	// tokens is the number of tokens of a cached hold, 0 for others, and idleMs how long its session keeps it unused.
	tokens, idleMs uint32
	// upgrades counts the waits to become exclusive: see generation.
	upgrades uint64
	// delayGeneration is the generation of the lock-delay's deadline; 0 before the delay.
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

// phase is the stage that a claim is in.
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

// held reports whether the claim is a live hold.
func (c *claim) held() bool { return c.phase() == holding }

// upgrading reports whether the claim is a hold that waits to become exclusive.
func (c *claim) upgrading() bool { return c.extra() != nil && c.extra().upgrade != nil }

// count returns the number of acquires that the hold stands for.
func (c *claim) count() uint32 { return c.options().again + 1 }

// wants returns the locks that the claim covers, in the order of its request. The slice belongs to this
// version of the claim.
func (c *claim) wants() []want {
	if c.extra() != nil && c.extra().wants != nil {
		return c.extra().wants
	}
	return c.one[:]
}

// wantOf returns what the claim wants of the lock with that id; a want of mode UNSPECIFIED if it
// wants nothing.
func (c *claim) wantOf(lock uint64) want {
	for _, w := range c.wants() {
		if w.lock.id == lock {
			return w
		}
	}
	return want{}
}

// drop removes one of several locks from the claim.
func (c *claim) drop(lock uint64) {
	own := c.vary()
	own.wants = slices.DeleteFunc(slices.Clone(own.wants), func(w want) bool { return w.lock.id == lock })
	if len(own.wants) == 1 {
		c.one[0], own.wants = own.wants[0], nil
	}
}

// generation returns the generation of the wait's deadline: that of the acquire or of the last upgrade.
func (c *claim) generation() uint64 { return 1 + c.options().upgrades }

// extra returns nil for a claim without options.
func (c *claim) extra() *extra {
	if c.more == nil {
		return nil
	}
	return c.more.extra
}

// options returns the extra part for reading.
func (c *claim) options() extra {
	if e := c.extra(); e != nil {
		return *e
	}
	return extra{}
}

// vary returns the extra part for changing. It makes a copy on each call, because versions of a
// claim share it.
func (c *claim) vary() *extra {
	var own struct { // one allocation
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

// trim drops an extra part that has nothing left in it.
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

// late reports whether the claim was granted later than requested.
func (c *claim) late() bool { return c.more != nil && c.more.grantedRevision != 0 }

func (c *claim) queued() int64 {
	if c.late() {
		return c.more.queued
	}
	return c.since
}

// granted returns the time of the grant, 0 before it. grantedRevision is 0 before the grant as well.
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

// recordLateGrant records a grant that comes later than the request.
func (c *claim) recordLateGrant(revision uint64) {
	c.more = &more{queued: c.queued(), grantedRevision: revision, extra: c.extra()}
}

// waitsFor reports whether the claim waits because of the request with that sequence number.
func (c *claim) waitsFor(seq uint64) bool {
	return c.phase() == waiting && c.seq == seq || c.upgrading() && c.extra().upgrade.seq == seq
}
