package model

import "github.com/quorumlock/quorumlock/transport/wire"

func (d *Model) holderInfo(c *Claim, name string) *wire.HolderInfo {
	l := c.part(name)
	return &wire.HolderInfo{
		HoldId: c.ID, Token: c.Token, SessionId: c.Session, Owner: c.Owner, Mode: l.Mode, Value: c.Value,
		Client: d.Session(c.Session).Client, GrantedUnixMs: c.grantedAt, Revision: c.Granted, Permits: l.Permits,
		Count: c.Count, MaxHoldMs: c.MaxHold, LockDelayMs: c.Delay, Revocation: c.Revoked, Locks: c.names(),
		Leased: d.Session(c.Session).Leased, ByValue: d.Session(c.Session).ByValue, Identity: d.Session(c.Session).Identity,
	}
}

func (d *Model) waiterInfo(c *Claim, name string, position int) *wire.WaiterInfo {
	l := c.part(name)
	info := &wire.WaiterInfo{
		WaitId: c.ID, Position: uint64(position), SessionId: c.Session, Owner: c.Owner, Mode: l.Mode,
		Client: d.Session(c.Session).Client, QueuedUnixMs: c.queuedAt, WaitMs: c.WaitMs, WaitForever: c.WaitForever,
		Permits: l.Permits, Locks: c.names(), Identity: d.Session(c.Session).Identity,
	}
	if up := c.Upgrade; up != nil {
		info.Upgrade, info.Mode, info.QueuedUnixMs = true, wire.Mode_EXCLUSIVE, up.queuedAt
		info.WaitMs, info.WaitForever = up.WaitMs, up.WaitForever
	}
	return info
}

// LockInfo returns everything readers may see of a lock, which must exist.
func (d *Model) LockInfo(name string) *wire.LockInfo {
	l := d.Locks[name]
	info := &wire.LockInfo{Name: name, Order: l.Order, Limit: l.Limit}
	for _, c := range d.holders(name) {
		info.Holders = append(info.Holders, d.holderInfo(c, name))
		info.PermitsUsed += c.part(name).Permits
	}
	info.HolderCount = uint64(len(info.Holders))
	for _, c := range append(d.those(name, (*Claim).Upgrading), d.those(name, (*Claim).Queued)...) {
		info.Queue = append(info.Queue, d.waiterInfo(c, name, len(info.Queue)+1))
	}
	info.QueueLength = uint64(len(info.Queue))
	for _, c := range d.those(name, (*Claim).Delays) {
		info.Delays = append(info.Delays, &wire.DelayInfo{
			HoldId: c.ID, Token: c.Token, SessionId: c.Session, Mode: c.part(name).Mode, Permits: c.part(name).Permits,
			LockDelayMs: c.Delay, SinceUnixMs: c.delayedAt,
		})
		info.PermitsUsed += c.part(name).Permits
	}
	return info
}
