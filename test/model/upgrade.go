package model

import "github.com/quorumlock/quorumlock/transport/wire"

// up upgrades a shared hold to exclusive.
func (d *Model) up(s *Session, seq uint64, op *wire.Upgrade) *wire.Result {
	c := d.held(s, op.HoldId, op.Token)
	switch {
	case c == nil:
		return says(wire.Status_NOT_HELD)
	case len(c.Locks) > 1 || c.Locks[0].Mode == wire.Mode_PERMITS:
		return says(wire.Status_INVALID_ARGUMENT)
	case c.Locks[0].Mode == wire.Mode_EXCLUSIVE:
		return c.grant()
	case c.Upgrade != nil:
		return says(wire.Status_ALREADY_QUEUED)
	}
	name := c.Locks[0].Name
	if d.first(name, (*Claim).Upgrading) != nil {
		return says(wire.Status_UPGRADE_CONFLICT)
	}
	alone := len(d.those(name, (*Claim).closes)) == 1
	if !alone && op.WaitMs == 0 && !op.WaitForever {
		return &wire.Result{Status: wire.Status_NOT_ACQUIRED, Holders: d.told(c.Locks, d.taken)}
	}
	if !alone && d.Names(s.ID) >= d.Limits.MaxClaimsPerSession {
		return says(wire.Status_RESOURCE_EXHAUSTED)
	}
	if !alone && !d.roomForNames(s.Identity, c.Locks) {
		return d.exhausted()
	}
	cost := extraWeight + upgradeWeight + outcomeWeight
	if alone {
		cost = 2 * outcomeWeight
	}
	if !d.affords(s, cost, roomToShrink) {
		return d.exhausted()
	}
	c.Upgrade = &Upgrade{Seq: seq, Generation: c.WaitGeneration + 1, WaitMs: op.WaitMs, WaitForever: op.WaitForever, queuedAt: d.wall}
	if alone {
		d.serve(c, false)
		return c.grant()
	}
	if !op.AllowDeadlock && d.closes(c) && !d.overlooked() {
		c.Upgrade = nil
		return says(wire.Status_DEADLOCK)
	}
	c.WaitGeneration++
	d.tellWait(c)
	d.want(c)
	return &wire.Result{Status: wire.Status_QUEUED, HoldId: c.ID, Position: 1, Holders: d.told(c.Locks, d.taken)}
}

// endUpgrade ends the wait of an upgrade; the shared hold remains.
func (d *Model) endUpgrade(c *Claim, why wire.Status_Code) *wire.Result {
	up := c.Upgrade
	if up == nil {
		return nil
	}
	c.Upgrade = nil
	e := d.tellHold(wire.Event_CANCELLED, c)
	e.Status, e.Upgrade, e.Seq = why, true, up.Seq
	return d.rewrite(c.Session, up.Seq, &wire.Result{Status: why, HoldId: c.ID})
}

// outliveUpgrade ends the wait of an upgrade whose hold ends.
func (d *Model) outliveUpgrade(c *Claim, why string) {
	if d.endUpgrade(c, wire.Status_NOT_HELD) != nil {
		d.News[len(d.News)-1].Reason = why
	}
}

func (d *Model) down(s *Session, op *wire.Downgrade) *wire.Result {
	c := d.held(s, op.HoldId, op.Token)
	switch {
	case c == nil:
		return says(wire.Status_NOT_HELD)
	case len(c.Locks) > 1 || c.Locks[0].Mode == wire.Mode_PERMITS || c.Cached():
		return says(wire.Status_INVALID_ARGUMENT)
	case c.Locks[0].Mode == wire.Mode_EXCLUSIVE:
		c.Locks[0].Mode = wire.Mode_SHARED
		d.tellHold(wire.Event_DOWNGRADED, c)
		d.grantReady()
	}
	return says(wire.Status_OK)
}
