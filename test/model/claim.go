package model

import (
	"cmp"
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Queued reports whether c waits for its grant.
func (c *Claim) Queued() bool { return c.Token == 0 }

// Holds reports whether c is a hold.
func (c *Claim) Holds() bool { return c.Token != 0 && !c.Over }

// Delays reports whether c is a lock-delay: its hold is over, and it keeps the locks closed.
func (c *Claim) Delays() bool { return c.Over }

// Upgrading reports whether c is a hold that waits to become exclusive.
func (c *Claim) Upgrading() bool { return c.Upgrade != nil }

// Waiting reports whether c waits, as an acquire or as an upgrade.
func (c *Claim) Waiting() bool { return !c.Over && (c.Token == 0 || c.Upgrade != nil) }

// closes reports whether c occupies its locks, as a hold or as a lock-delay.
func (c *Claim) closes() bool { return c.Token != 0 }

// Is reports whether c is for a single lock, in that mode.
func (c *Claim) Is(mode wire.Mode) bool { return len(c.Locks) == 1 && c.Locks[0].Mode == mode }

// part returns what c requests of a lock; nil if nothing.
func (c *Claim) part(name string) *wire.LockRequest {
	for _, l := range c.Locks {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// add appends a claim behind all others.
func (d *Model) add(c *Claim) {
	d.Claims = append(d.Claims, c)
	d.bySession[c.Session] = append(d.bySession[c.Session], c)
	for _, l := range c.Locks {
		d.byLock[l.Name] = append(d.byLock[l.Name], c)
	}
}

// drop removes a claim from the list. The caller must settle.
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

// clean deletes locks without claims.
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

// Claim returns the claim with that ID, which may be a delay; nil if there is none.
func (d *Model) Claim(id uint64) *Claim {
	if at, found := d.at(id); found {
		return d.Claims[at]
	}
	return nil
}

// Of returns the claims of a session, without delays.
func (d *Model) Of(session uint64) []*Claim {
	var found []*Claim
	for _, c := range d.bySession[session] {
		if !c.Over {
			found = append(found, c)
		}
	}
	return found
}

// Load returns the number of holds and of waits of a session.
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

// Names returns what counts towards the session's limit: each hold and each wait counts once for every lock
// it names.
func (d *Model) Names(session uint64) (names uint64) {
	for _, c := range d.Of(session) {
		names += uint64(len(c.Locks))
		if c.Upgrade != nil {
			names++
		}
	}
	return names
}

// those returns the claims on a lock for which fit holds, in the order of their requests.
func (d *Model) those(name string, fit func(*Claim) bool) []*Claim {
	var found []*Claim
	for _, c := range d.byLock[name] {
		if fit(c) {
			found = append(found, c)
		}
	}
	return found
}

// first returns the first claim that those would return; nil if there is none.
func (d *Model) first(name string, fit func(*Claim) bool) *Claim {
	for _, c := range d.byLock[name] {
		if fit(c) {
			return c
		}
	}
	return nil
}

// holders returns the holders of a lock, ordered by token.
func (d *Model) holders(name string) []*Claim {
	found := d.those(name, (*Claim).Holds)
	slices.SortFunc(found, byToken)
	return found
}

func byToken(a, b *Claim) int { return cmp.Compare(a.Token, b.Token) }

// told returns at most eight holders of the first of the locks for which inTheWay holds.
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

// taken reports whether the lock is held, or closed by a lock-delay.
func (d *Model) taken(l *wire.LockRequest) bool { return d.first(l.Name, (*Claim).closes) != nil }

// busy reports whether a new request for the lock has to wait.
func (d *Model) busy(l *wire.LockRequest) bool {
	return !d.fits(l) || d.first(l.Name, (*Claim).Queued) != nil || d.first(l.Name, (*Claim).Upgrading) != nil
}

// place returns the claim's position in the queue of its first lock; 1 is next.
func (d *Model) place(c *Claim) uint64 {
	if c.Token != 0 {
		return 1
	}
	name := c.Locks[0].Name
	return uint64(1 + slices.Index(d.those(name, (*Claim).Queued), c) + len(d.those(name, (*Claim).Upgrading)))
}

// fits reports whether the lock's holders and lock-delays leave room for the request.
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

// held returns the session's hold with that ID and token; nil if it has none.
func (d *Model) held(s *Session, hold, token uint64) *Claim {
	c := d.Claim(hold)
	if c == nil || c.Session != s.ID || !c.Holds() || !c.Has(token) {
		return nil
	}
	return c
}
