package model

import (
	"cmp"
	"slices"
	"strings"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func (d *Model) holderInfo(c *Claim, name string) *wire.HolderInfo {
	l := c.part(name)
	return &wire.HolderInfo{
		HoldId: c.ID, Token: c.Token, SessionId: c.Session, Owner: c.Owner, Mode: l.Mode, Value: c.Value,
		Client: d.Session(c.Session).Client, GrantedUnixMs: c.grantedAt, Revision: c.Granted, Permits: l.Permits,
		Count: c.Count, MaxHoldMs: c.MaxHold, LockDelayMs: c.Delay, Revocation: c.Revoked, Locks: c.names(),
		Tokens: c.Tokens, MaxIdleMs: c.Idle, Recalled: c.Recalled(),
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

// Contended returns the locks with the prefix that are waited for and that may be read, in the order that is asked for.
func (d *Model) Contended(prefix string, order wire.ListContendedRequest_Order, mayRead func(lock string) bool) []*wire.ContendedLock {
	var found []*wire.ContendedLock
	for name := range d.Locks {
		l := d.LockInfo(name)
		if len(l.Queue) == 0 || !strings.HasPrefix(name, prefix) || !mayRead(name) {
			continue
		}
		one := &wire.ContendedLock{Name: name, QueueLength: l.QueueLength, HolderCount: l.HolderCount, Oldest: l.Queue[0]}
		if len(l.Holders) > 0 {
			one.Holder = l.Holders[0]
		}
		// A wait to become exclusive is ahead of the queue, but need not be the oldest.
		if len(l.Queue) > 1 && l.Queue[0].Upgrade && l.Queue[1].QueuedUnixMs < one.Oldest.QueuedUnixMs {
			one.Oldest = l.Queue[1]
		}
		found = append(found, one)
	}
	slices.SortFunc(found, func(a, b *wire.ContendedLock) int {
		if order == wire.ListContendedRequest_OLDEST_WAIT && a.Oldest.QueuedUnixMs != b.Oldest.QueuedUnixMs {
			return cmp.Compare(a.Oldest.QueuedUnixMs, b.Oldest.QueuedUnixMs)
		}
		if order == wire.ListContendedRequest_QUEUE_LENGTH && a.QueueLength != b.QueueLength {
			return cmp.Compare(b.QueueLength, a.QueueLength)
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return found
}

// SessionInfo returns what is listed of a session, which must exist.
func (d *Model) SessionInfo(id uint64) *wire.SessionInfo {
	s := d.Session(id)
	info := &wire.SessionInfo{
		SessionId: id, TtlMs: s.TTL, Client: s.Client, OpenedUnixMs: s.Opened, Leased: s.Leased, Identity: s.Identity, ByValue: s.ByValue,
	}
	info.Holds, info.Waits = d.Load(id)
	return info
}

// SessionView returns a session with what it holds and waits for, as far as that may be read; nil if the session may not
// be seen. all allows to see every session, and own is the identity that sees its own.
func (d *Model) SessionView(id uint64, own string, all bool, mayRead func(lock string) bool) *wire.GetSessionResponse {
	view := &wire.GetSessionResponse{Session: d.SessionInfo(id), Revision: d.Revision}
	for _, c := range d.Of(id) {
		at := slices.IndexFunc(c.Locks, func(l *wire.LockRequest) bool { return mayRead(l.Name) })
		if at < 0 {
			continue
		}
		name := c.Locks[at].Name
		if c.Token != 0 {
			view.Holds = append(view.Holds, &wire.SessionHold{Hold: d.holderInfo(c, name), Name: name})
		}
		if c.Waiting() {
			queue := d.LockInfo(name).Queue
			wait := queue[slices.IndexFunc(queue, func(w *wire.WaiterInfo) bool { return w.WaitId == c.ID })]
			view.Waits = append(view.Waits, &wire.SessionWait{Wait: wait, Name: name})
		}
	}
	if all || own == view.Session.Identity {
		return view
	}
	if len(view.Holds)+len(view.Waits) == 0 {
		return nil
	}
	view.Session.Holds, view.Session.Waits = uint64(len(view.Holds)), uint64(len(view.Waits))
	return view
}
