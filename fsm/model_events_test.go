package fsm

import "github.com/quorumlock/quorumlock/transport/wire"

func (d *model) tell(e *wire.Event) *wire.Event {
	e.Revision = d.revision
	d.news = append(d.news, e)
	return e
}

// tellHold tells something about a claim.
func (d *model) tellHold(what wire.Event_Type, c *modelClaim) *wire.Event {
	e := &wire.Event{
		Type: what, Lock: c.locks[0].Name, SessionId: c.session, Owner: c.owner, Seq: c.seq,
		HoldId: c.id, Token: c.token, Mode: c.locks[0].Mode, Permits: c.locks[0].Permits, Locks: c.names(),
	}
	return d.tell(e)
}

// names are all of a claim's locks where they are several.
func (c *modelClaim) names() []string {
	var names []string
	for _, l := range c.locks {
		if len(c.locks) > 1 {
			names = append(names, l.Name)
		}
	}
	return names
}

func (d *model) tellCancelled(c *modelClaim, why wire.Status_Code) {
	d.tellHold(wire.Event_CANCELLED, c).Status = why
}

// tellWait tells that a claim, or its upgrade, waits.
func (d *model) tellWait(c *modelClaim) {
	e := d.tellHold(wire.Event_QUEUED, c)
	e.Generation, e.WaitMs, e.WaitForever = c.waits, c.waitMs, c.forever
	if up := c.upgrade; up != nil {
		e.Upgrade, e.Seq = true, up.seq
		e.Generation, e.WaitMs, e.WaitForever = up.generation, up.waitMs, up.forever
	}
}

func (d *model) tellGrant(c *modelClaim, up *modelUpgrade, waited bool) {
	e := d.tellHold(wire.Event_GRANTED, c)
	e.Waited = waited
	if up != nil {
		e.Upgrade, e.Seq = true, up.seq
		return
	}
	e.MaxHoldMs, e.Generation = c.maxHold, c.holds
}

// What reads tell.

func (d *model) holderInfo(c *modelClaim, name string) *wire.HolderInfo {
	l := c.part(name)
	return &wire.HolderInfo{
		HoldId: c.id, Token: c.token, SessionId: c.session, Owner: c.owner, Mode: l.Mode, Value: c.value,
		Client: d.find(c.session).client, GrantedUnixMs: modelWall, Revision: c.granted, Permits: l.Permits,
		Count: c.count, MaxHoldMs: c.maxHold, LockDelayMs: c.delay, Revocation: c.revoked, Locks: c.names(),
	}
}

func (d *model) waiterInfo(c *modelClaim, name string, position int) *wire.WaiterInfo {
	l := c.part(name)
	info := &wire.WaiterInfo{
		WaitId: c.id, Position: uint64(position), SessionId: c.session, Owner: c.owner, Mode: l.Mode,
		Client: d.find(c.session).client, QueuedUnixMs: modelWall, WaitMs: c.waitMs, WaitForever: c.forever,
		Permits: l.Permits, Locks: c.names(),
	}
	if up := c.upgrade; up != nil {
		info.Upgrade, info.Mode, info.WaitMs, info.WaitForever = true, wire.Mode_EXCLUSIVE, up.waitMs, up.forever
	}
	return info
}

// lockInfo is all that anybody may know of a lock.
func (d *model) lockInfo(name string) *wire.LockInfo {
	l := d.locks[name]
	info := &wire.LockInfo{Name: name, Order: l.order, Limit: l.limit}
	for _, c := range d.holders(name) {
		info.Holders = append(info.Holders, d.holderInfo(c, name))
		info.PermitsUsed += c.part(name).Permits
	}
	info.HolderCount = uint64(len(info.Holders))
	for _, c := range append(d.those(name, upgradesIt), d.those(name, waitsForIt)...) {
		info.Queue = append(info.Queue, d.waiterInfo(c, name, len(info.Queue)+1))
	}
	info.QueueLength = uint64(len(info.Queue))
	for _, c := range d.those(name, delaysIt) {
		info.Delays = append(info.Delays, &wire.DelayInfo{
			HoldId: c.id, Token: c.token, SessionId: c.session, Mode: c.part(name).Mode, Permits: c.part(name).Permits,
			LockDelayMs: c.delay, SinceUnixMs: modelWall,
		})
		info.PermitsUsed += c.part(name).Permits
	}
	return info
}
