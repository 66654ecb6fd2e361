package model

import (
	"cmp"
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Queued says that it waits for its grant.
func (c *Claim) Queued() bool { return c.Token == 0 }

// Holds says that somebody has it.
func (c *Claim) Holds() bool { return c.Token != 0 && !c.Over }

// Delays says that it only keeps locks closed any more.
func (c *Claim) Delays() bool { return c.Over }

// Upgrading says that it is a hold that waits to be alone.
func (c *Claim) Upgrading() bool { return c.Upgrade != nil }

// Waiting says that it waits, as an acquire or as an upgrade.
func (c *Claim) Waiting() bool { return !c.Over && (c.Token == 0 || c.Upgrade != nil) }

// closes says that it takes up room.
func (c *Claim) closes() bool { return c.Token != 0 }

// Is says whether it is for one lock, in that mode.
func (c *Claim) Is(mode wire.Mode) bool { return len(c.Locks) == 1 && c.Locks[0].Mode == mode }

// part is what it wants of a lock; nil if nothing.
func (c *Claim) part(name string) *wire.LockRequest {
	for _, l := range c.Locks {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// add puts a claim behind all others.
func (d *Model) add(c *Claim) {
	d.Claims = append(d.Claims, c)
	d.bySession[c.Session] = append(d.bySession[c.Session], c)
	for _, l := range c.Locks {
		d.byLock[l.Name] = append(d.byLock[l.Name], c)
	}
}

// drop takes a claim off the list. Whoever calls it settles.
func (d *Model) drop(c *Claim) {
	if at, found := d.at(c.ID); found {
		d.Claims = slices.Delete(d.Claims, at, at+1)
	}
	without(d.bySession, c.Session, c)
	for _, l := range c.Locks {
		without(d.byLock, l.Name, c)
		d.left = append(d.left, l.Name)
	}
}

func without[K comparable](index map[K][]*Claim, key K, c *Claim) {
	index[key] = slices.DeleteFunc(index[key], func(o *Claim) bool { return o == c })
	if len(index[key]) == 0 {
		delete(index, key)
	}
}

// clean forgets locks that nobody has to do with any more.
func (d *Model) clean() {
	for _, name := range d.left {
		if len(d.byLock[name]) == 0 {
			delete(d.Locks, name)
		}
	}
	d.left = nil
}

func (d *Model) at(id uint64) (int, bool) {
	return slices.BinarySearchFunc(d.Claims, id, func(c *Claim, id uint64) int { return cmp.Compare(c.ID, id) })
}

// Claim is the one of that id, delays too; nil if there is none.
func (d *Model) Claim(id uint64) *Claim {
	if at, found := d.at(id); found {
		return d.Claims[at]
	}
	return nil
}

// Of are the claims of a session that it still has: no delays.
func (d *Model) Of(session uint64) []*Claim {
	var found []*Claim
	for _, c := range d.bySession[session] {
		if !c.Over {
			found = append(found, c)
		}
	}
	return found
}

// Load are the holds and the waits of a session.
func (d *Model) Load(session uint64) (holds, waits uint64) {
	for _, c := range d.Of(session) {
		if c.Token != 0 {
			holds++
		}
		if c.Token == 0 || c.Upgrade != nil {
			waits++
		}
	}
	return holds, waits
}

// Names is what counts against the session's limit: each hold and each wait as often as it
// names a lock.
func (d *Model) Names(session uint64) (names uint64) {
	for _, c := range d.Of(session) {
		names += uint64(len(c.Locks))
		if c.Upgrade != nil {
			names++
		}
	}
	return names
}

// those are the claims on a lock that fit, in the order in which they asked.
func (d *Model) those(name string, fit func(*Claim) bool) []*Claim {
	var found []*Claim
	for _, c := range d.byLock[name] {
		if fit(c) {
			found = append(found, c)
		}
	}
	return found
}

// first is the first of those; nil if there is none.
func (d *Model) first(name string, fit func(*Claim) bool) *Claim {
	for _, c := range d.byLock[name] {
		if fit(c) {
			return c
		}
	}
	return nil
}

// holders are those who hold a lock, by token.
func (d *Model) holders(name string) []*Claim {
	found := d.those(name, (*Claim).Holds)
	slices.SortFunc(found, byToken)
	return found
}

func byToken(a, b *Claim) int { return cmp.Compare(a.Token, b.Token) }

// told are at most eight holders of the first of the locks that is in the way.
func (d *Model) told(locks []*wire.LockRequest, inTheWay func(*wire.LockRequest) bool) []*wire.HolderInfo {
	var infos []*wire.HolderInfo
	for _, l := range locks {
		if !inTheWay(l) {
			continue
		}
		for _, c := range d.holders(l.Name) {
			if len(infos) < 8 {
				infos = append(infos, d.holderInfo(c, l.Name))
			}
		}
		return infos
	}
	return nil
}

// taken says whether anybody holds a lock or keeps it closed.
func (d *Model) taken(l *wire.LockRequest) bool { return d.first(l.Name, (*Claim).closes) != nil }

// busy says whether a newcomer has to wait for a lock.
func (d *Model) busy(l *wire.LockRequest) bool {
	return !d.fits(l) || d.first(l.Name, (*Claim).Queued) != nil || d.first(l.Name, (*Claim).Upgrading) != nil
}

// place in the queue of the first lock; 1 is next.
func (d *Model) place(c *Claim) uint64 {
	if c.Token != 0 {
		return 1
	}
	name := c.Locks[0].Name
	return uint64(1 + slices.Index(d.those(name, (*Claim).Queued), c) + len(d.those(name, (*Claim).Upgrading)))
}

// fits says whether those who hold the lock, or keep it closed, leave room.
func (d *Model) fits(want *wire.LockRequest) bool {
	used := want.Permits
	for _, c := range d.those(want.Name, (*Claim).closes) {
		have := c.part(want.Name)
		used += have.Permits
		if have.Mode == wire.Mode_EXCLUSIVE || want.Mode == wire.Mode_EXCLUSIVE {
			return false
		}
	}
	l := d.Locks[want.Name]
	return l == nil || l.Limit == 0 || used <= l.Limit
}

// held is the session's hold of that id and token; nil if it has none.
func (d *Model) held(s *Session, hold, token uint64) *Claim {
	c := d.Claim(hold)
	if c == nil || c.Session != s.ID || !c.Holds() || c.Token != token {
		return nil
	}
	return c
}
