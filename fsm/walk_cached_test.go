package fsm

import (
	"slices"

	"github.com/quorumlock/quorumlock/test/model"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// setCaching decides how the cluster treats cached holds. It begins at level 1 and is raised later, or its settings
// need level 2.
func (w *walker) setCaching(limits *wire.Settings) {
	switch w.roll(8) {
	case 0:
		limits.NoCachedHolds = true
	case 1, 2, 3, 4, 5:
		limits.MaxCachedIdleMs = 2_000
	}
}

// raiseLevel mostly raises the level of the cluster to that of the program.
func (w *walker) raiseLevel() *wire.Command {
	level := []uint32{Level, Level, Level, 1}[w.roll(4)]
	return &wire.Command{Op: &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: level}}}
}

// acquireCached mostly requests one exclusive lock, with one of all numbers of tokens.
func (w *walker) acquireCached(session uint64) *wire.AcquireCached {
	op := &wire.AcquireCached{Acquire: w.acquire(session), Tokens: uint32(1 + w.roll(3)), IdleMs: uint32(1 + w.roll(2_000))}
	if !w.one(12) {
		op.Acquire.Locks = []*wire.LockRequest{{Name: w.plainName(), Mode: wire.Mode(w.roll(2))}}
		op.Acquire.Value, op.Acquire.Reentrant, op.Acquire.Order = nil, false, wire.Order(w.roll(2))
	}
	switch w.roll(60) {
	case 0:
		op.Tokens = 0
	case 1:
		op.Tokens = maxCachedTokens + 1
	case 2:
		op.IdleMs = 0
	case 3:
		op.IdleMs = 2_001
	case 4:
		op.IdleMs = defaultCachedIdleMs + 1
	case 5:
		op.Acquire = nil
	case 6, 7, 8, 9:
		op.Tokens = maxCachedTokens
	case 10, 11, 12, 13, 14, 15, 16, 17:
		op.Tokens = uint32(1 + w.roll(maxCachedTokens))
	}
	return op
}

// plainName returns the name of a lock that is mostly neither unfair nor a semaphore.
func (w *walker) plainName() string {
	name := w.name()
	for range w.names {
		if w.kinds[slices.Index(walkNames, name)] != 1 {
			name = w.name()
		}
	}
	return name
}

// token returns one of the tokens of a claim, or sometimes one next to them.
func (w *walker) token(c *model.Claim) uint64 {
	if !c.Cached() || c.Token == 0 {
		return w.about(c.Token)
	}
	first, last := c.Range()
	switch w.roll(4) {
	case 0:
		return first + uint64(w.roll(int(c.Tokens)))
	case 1:
		return w.about(last)
	}
	return w.about(first)
}
