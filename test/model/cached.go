package model

import "github.com/quorumlock/quorumlock/transport/wire"

// A cached hold has a range of tokens, all issued at its grant. Its session uses them one after the other, and gives
// the hold back after it was recalled: when a claim waits for the lock.

// Range returns the first and the last token of a hold. They are the same unless it is cached.
func (c *Claim) Range() (first, last uint64) { return c.Token, c.Token + c.issues() - 1 }

// Has reports whether a token belongs to a claim that was granted.
func (c *Claim) Has(token uint64) bool {
	first, last := c.Range()
	return c.Token != 0 && first <= token && token <= last
}

// issues returns the number of tokens of a grant.
func (c *Claim) issues() uint64 {
	if c.Cached() {
		return uint64(c.Tokens)
	}
	return 1
}

// Cached reports whether c is for a cached hold.
func (c *Claim) Cached() bool { return c.Tokens != 0 }

// Recalled reports whether c is a cached hold that its session has to give back.
func (c *Claim) Recalled() bool { return c.Cached() && c.wanted }

// Bounded reports whether max_hold ends the hold some time. Before the recall and the first extension, only the session
// of a cached hold applies max_hold, to each of its local grants.
func (c *Claim) Bounded() bool {
	return c.MaxHold > 0 && c.Holds() && (!c.Cached() || c.HoldGeneration > 0)
}

// startMaxHold starts max_hold in full, if the hold has one, and adds it to the event.
func (c *Claim) startMaxHold(e *wire.Event) {
	if c.MaxHold > 0 {
		c.HoldGeneration++
		e.MaxHoldMs, e.Generation = c.MaxHold, c.HoldGeneration
	}
}

// listens reports whether the holder wants to be notified of the first waiter.
func (c *Claim) listens() bool { return (c.notify || c.Cached()) && !c.wanted }

// notice notifies a holder of the first waiter, which recalls a cached hold.
func (d *Model) notice(c *Claim) {
	c.wanted = true
	if e := d.tellHold(wire.Event_WANTED, c); c.Cached() && !c.Bounded() {
		c.startMaxHold(e)
	}
}

// faultOfCached returns what is wrong with an acquire of a cached hold; 0 if nothing is.
func (d *Model) faultOfCached(op *wire.AcquireCached) wire.Status_Code {
	longest := d.Limits.GetMaxCachedIdleMs()
	if longest == 0 {
		longest = 10 * 60 * 1000
	}
	if !validAcquire(op.GetAcquire()) {
		return wire.Status_INVALID_ARGUMENT
	}
	if d.Limits.GetNoCachedHolds() {
		return wire.Status_FAILED_PRECONDITION
	}
	only := op.Acquire.Locks[0]
	exclusive := len(op.Acquire.Locks) == 1 && plain(only).Mode == wire.Mode_EXCLUSIVE
	simple := !op.Acquire.Reentrant && len(op.Acquire.Value) == 0 && op.Acquire.Order != wire.Order_UNFAIR
	if !exclusive || !simple || op.Tokens < 1 || op.Tokens > 16_384 || op.IdleMs < 1 || op.IdleMs > longest {
		return wire.Status_INVALID_ARGUMENT
	}
	return 0
}

// levelOf returns the feature level that a command needs.
func levelOf(cmd *wire.Command) uint32 {
	if cmd.GetAcquireCached() != nil {
		return 2
	}
	return levelOfLimits(cmd.GetRestoreBackup().GetSettings())
}

// levelOfLimits returns the feature level that settings need: 2 for those about cached holds.
func levelOfLimits(given *wire.Settings) uint32 {
	if given.GetMaxCachedIdleMs() > 0 || given.GetNoCachedHolds() {
		return 2
	}
	return 1
}
