package model

import "github.com/quorumlock/quorumlock/transport/wire"

func (d *Model) release(s *Session, op *wire.Release) *wire.Result {
	done := &wire.Result{Status: wire.Status_OK, HoldId: op.HoldId, Token: op.Token}
	if c := d.held(s, op.HoldId, op.Token); c != nil {
		if c.Count > 1 {
			c.Count--
			done.Count = c.Count
			return done
		}
		d.outliveUpgrade(c, "the hold was released")
		d.drop(c)
		d.tellHold(wire.Event_RELEASED, c)
		d.grantReady()
		return done
	}
	for _, a := range s.shown {
		if op.Token != 0 && a.Said.Status == wire.Status_OK && a.Said.Count == 0 && a.Said.HoldId == op.HoldId && a.Said.Token == op.Token {
			return done
		}
	}
	return says(wire.Status_NOT_HELD)
}

func (d *Model) setValue(s *Session, op *wire.SetValue) *wire.Result {
	c := d.held(s, op.HoldId, op.Token)
	if c == nil {
		return says(wire.Status_NOT_HELD)
	}
	if c.Cached() {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	if !d.affordsValue(s, c, op.Value) {
		return d.exhausted()
	}
	c.Value = op.Value
	d.tellHold(wire.Event_VALUE_SET, c)
	return says(wire.Status_OK)
}

func (d *Model) cancel(s *Session, op *wire.Cancel) *wire.Result {
	for _, c := range d.Of(s.ID) {
		if c.Token == 0 && c.Seq == op.AcquireSeq {
			return d.giveUp(c, wire.Status_CANCELLED)
		}
		if c.Upgrade != nil && c.Upgrade.Seq == op.AcquireSeq {
			return d.giveUp(c, wire.Status_CANCELLED)
		}
	}
	if a := s.recall(op.AcquireSeq); a != nil {
		return d.repeat(a)
	}
	return says(wire.Status_NOT_FOUND)
}

// giveUp ends a wait, and grants what waited behind it.
func (d *Model) giveUp(c *Claim, why wire.Status_Code) *wire.Result {
	said := d.abandon(c, why)
	d.grantReady()
	return said
}

// abandon ends a wait, of a claim or of an upgrade.
func (d *Model) abandon(c *Claim, why wire.Status_Code) *wire.Result {
	if c.Upgrade != nil {
		return d.endUpgrade(c, why)
	}
	d.drop(c)
	d.tellCancelled(c, why)
	said := d.rewrite(c.Session, c.Seq, &wire.Result{Status: why, HoldId: c.ID})
	d.endLease(c)
	return said
}

func (d *Model) timeout(op *wire.TimeoutWait) *wire.Result {
	c := d.Claim(op.WaitId)
	if c == nil || c.Over {
		return says(wire.Status_NOT_FOUND)
	}
	generation, forever := c.WaitGeneration, c.WaitForever
	if c.Upgrade != nil {
		generation, forever = c.Upgrade.Generation, c.Upgrade.WaitForever
	}
	switch {
	case op.Term != d.Term, op.Generation != generation:
		return says(wire.Status_FAILED_PRECONDITION)
	case c.Token != 0 && c.Upgrade == nil:
		return c.grant()
	case forever:
		return says(wire.Status_FAILED_PRECONDITION)
	}
	return d.giveUp(c, wire.Status_TIMEOUT)
}
