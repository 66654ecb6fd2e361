package model

import "github.com/quorumlock/quorumlock/transport/wire"

// Graced reports whether an operator revoked the hold with a deadline.
func (c *Claim) Graced() bool { return c.Revoked.GetGraceMs() > 0 }

func (d *Model) extend(s *Session, op *wire.Extend) *wire.Result {
	c := d.held(s, op.HoldId, op.Token)
	switch {
	case c == nil:
		return says(wire.Status_NOT_HELD)
	case c.Graced(), op.MaxHoldMs == 0 && c.MaxHold == 0:
		return says(wire.Status_FAILED_PRECONDITION)
	case !d.affords(s, extraWeight+outcomeWeight, roomToShrink):
		return d.exhausted()
	case op.MaxHoldMs > 0:
		c.MaxHold = op.MaxHoldMs
	}
	c.startMaxHold(d.tellHold(wire.Event_EXTENDED, c))
	return says(wire.Status_OK)
}

func (d *Model) expireHold(op *wire.ExpireHold) *wire.Result {
	c := d.Claim(op.HoldId)
	switch {
	case c == nil || !c.Holds():
		return says(wire.Status_NOT_FOUND)
	case op.Grace && !c.Graced(), !op.Grace && !c.Bounded(), op.Term != d.Term:
		return says(wire.Status_FAILED_PRECONDITION)
	}
	switch {
	case op.Grace && op.Generation == c.GraceGeneration:
		d.takeAway(c, wire.Event_FORCED, c.Revoked.Reason)
	case !op.Grace && op.Generation == c.HoldGeneration:
		d.takeAway(c, wire.Event_EXPIRED, "")
	default:
		return says(wire.Status_FAILED_PRECONDITION)
	}
	return says(wire.Status_OK)
}

// takeAway ends a hold that its holder did not release.
func (d *Model) takeAway(c *Claim, what wire.Event_Type, reason string) {
	d.endByForce(c, what, reason)
	d.grantReady()
}

func (d *Model) endByForce(c *Claim, what wire.Event_Type, reason string) {
	why := "the hold's max_hold passed"
	if what == wire.Event_FORCED {
		why = "the hold was forced away: " + inBrief(reason)
	}
	d.outliveUpgrade(c, why)
	e := d.tellHold(what, c)
	e.Reason = reason
	if what == wire.Event_EXPIRED {
		e.Status = wire.Status_TIMEOUT
	}
	d.bury(c)
	d.endLease(c)
}

// bury ends a hold. If it has a lock-delay, its locks stay closed.
func (d *Model) bury(c *Claim) {
	if c.Delay == 0 {
		d.drop(c)
		return
	}
	c.Over, c.Count, c.delayedAt = true, 1, d.wall
	e := d.tellHold(wire.Event_DELAYED, c)
	e.LockDelayMs, e.Generation = c.Delay, 1
}

func (d *Model) endDelay(op *wire.EndDelay) *wire.Result {
	c := d.Claim(op.HoldId)
	switch {
	case c == nil || !c.Over:
		return says(wire.Status_NOT_FOUND)
	case op.Term != d.Term, op.Generation != 1:
		return says(wire.Status_FAILED_PRECONDITION)
	}
	d.reopen(c)
	d.grantReady()
	return says(wire.Status_OK)
}

func (d *Model) reopen(c *Claim) {
	d.drop(c)
	d.tellHold(wire.Event_DELAY_ENDED, c)
}
