package model

import (
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// ready reports whether a claim may be granted now.
func (d *Model) ready(c *Claim) bool {
	if c.Over {
		return false
	}
	if c.Upgrade != nil {
		return len(d.those(c.Locks[0].Name, (*Claim).closes)) == 1
	}
	if c.Token != 0 {
		return false
	}
	for _, l := range c.Locks {
		next := d.first(l.Name, (*Claim).Queued) == c || d.Locks[l.Name].Order == wire.Order_UNFAIR
		if !next || d.first(l.Name, (*Claim).Upgrading) != nil || !d.fits(l) {
			return false
		}
	}
	return true
}

// grantReady grants claims, one by one, until none is ready. One whose identity has lost the right to a lock is
// cancelled instead.
func (d *Model) grantReady() {
	for d.Suspended == 0 {
		var ready []*Claim
		for _, c := range d.Claims {
			if d.ready(c) {
				ready = append(ready, c)
			}
		}
		if len(ready) == 0 {
			return
		}
		next := ready[0]
		for _, c := range ready {
			if len(d.hint) > 0 && c.ID == d.hint[0] {
				next, d.hint = c, d.hint[1:]
				break
			}
		}
		if d.Locks[next.Locks[0].Name].Order == wire.Order_UNFAIR && len(d.those(next.Locks[0].Name, (*Claim).Queued)) > 1 {
			d.Draws++
		}
		if d.mayOn(d.Session(next.Session).Identity, wire.Verb_LOCK, next) {
			d.serve(next, true)
		} else {
			d.abandon(next, wire.Status_PERMISSION_DENIED)
		}
	}
}

// serve grants a claim, or its upgrade, under a new token.
func (d *Model) serve(c *Claim, waited bool) {
	up := c.Upgrade
	c.Token, c.Granted = d.Token+1, d.Revision
	d.Token += c.issues()
	if up != nil {
		c.Locks[0].Mode, c.Upgrade = wire.Mode_EXCLUSIVE, nil
	} else {
		c.Count, c.grantedAt = 1, d.wall // for an upgrade, the hold keeps its start
	}
	d.tellGrant(c, up, waited)
	if waited && up != nil {
		d.rewrite(c.Session, up.Seq, c.grant())
	} else if waited {
		d.rewrite(c.Session, c.Seq, c.grant())
	}
	for _, l := range c.Locks {
		if c.listens() && d.first(l.Name, (*Claim).Queued) != nil {
			d.notice(c)
		}
	}
}

// want notifies holders that asked for it that a claim waits for what they hold.
func (d *Model) want(who *Claim) {
	var told []*Claim
	for _, l := range who.Locks {
		for _, c := range d.holders(l.Name) {
			if c != who && c.listens() && !slices.Contains(told, c) {
				told = append(told, c)
			}
		}
	}
	for _, c := range told {
		d.notice(c)
	}
}
