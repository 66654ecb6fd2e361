package fsm

import "github.com/quorumlock/quorumlock/transport/wire"

// claim is a wait, from its grant on a hold, and perhaps at last a lock-delay, under
// one id: the revision of its acquire, which is also its place in every queue. There are
// many: it fills a block of the allocator, of 96 bytes.
type claim struct {
	id, session, owner, seq uint64
	// one is the lock that it is for, unless extra names several. See wants.
	one [1]want
	// extra is what few claims have; see options and vary.
	extra           *extra
	queued          int64
	token           uint64
	grantedRevision uint64
	granted         int64
	waitMs          uint32
	waitForever     bool
	version
}

// want is one lock that a claim is for.
type want struct {
	*lockKey
	mode wire.Mode
	// permits of a semaphore.
	permits uint32
}

// extra is the part of a claim that most claims do without.
type extra struct {
	// wants are the locks, if there are several.
	wants []want
	value []byte
	// again counts the acquires beyond the first that the hold counts.
	again uint32
	// maxHoldMs bounds the hold, 0 does not; holdGeneration is that of the bound's
	// deadline and of a revocation's, and never falls.
	maxHoldMs      uint32
	holdGeneration uint64
	lockDelayMs    uint32
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
	case c.extra != nil && c.extra.delayGeneration != 0:
		return delayed
	}
	return holding
}

// held says that it is a live hold.
func (c *claim) held() bool { return c.phase() == holding }

// upgrading says that it is a hold that waits to become exclusive.
func (c *claim) upgrading() bool { return c.extra != nil && c.extra.upgrade != nil }

// count is how many acquires a hold counts.
func (c *claim) count() uint32 { return c.options().again + 1 }

// wants are the locks that it is for, in the order of its request. The slice belongs
// to this version of the claim.
func (c *claim) wants() []want {
	if c.extra != nil && c.extra.wants != nil {
		return c.extra.wants
	}
	return c.one[:]
}

// wantOf is what it wants of a lock, by its id; of mode UNSPECIFIED, nothing.
func (c *claim) wantOf(lock uint64) want {
	for _, w := range c.wants() {
		if w.id == lock {
			return w
		}
	}
	return want{}
}

// generation is that of the wait's deadline: the acquire's, or the last upgrade's.
func (c *claim) generation() uint64 { return 1 + c.options().upgrades }

// options is the extra part for reading.
func (c *claim) options() extra {
	if c.extra == nil {
		return extra{}
	}
	return *c.extra
}

// vary is the extra part for changing: versions of a claim share it, so each change
// begins with a copy.
func (c *claim) vary() *extra {
	own := c.options()
	c.extra = &own
	return c.extra
}

// waitsFor says whether the request of that sequence number is what it waits for.
func (c *claim) waitsFor(seq uint64) bool {
	return c.phase() == waiting && c.seq == seq || c.upgrading() && c.extra.upgrade.seq == seq
}
