package model

import "github.com/quorumlock/quorumlock/transport/wire"

func (d *Model) tell(e *wire.Event) *wire.Event {
	e.Revision = d.Revision
	d.News = append(d.News, e)
	return e
}

// tellHold emits an event about a claim.
func (d *Model) tellHold(what wire.Event_Type, c *Claim) *wire.Event {
	e := &wire.Event{
		Type: what, Lock: c.Locks[0].Name, SessionId: c.Session, Owner: c.Owner, Seq: c.Seq,
		HoldId: c.ID, Token: c.Token, Mode: c.Locks[0].Mode, Permits: c.Locks[0].Permits, Locks: c.names(),
	}
	return d.tell(e)
}

// names returns all locks of a claim if it has more than one, and nil otherwise.
func (c *Claim) names() []string {
	var names []string
	for _, l := range c.Locks {
		if len(c.Locks) > 1 {
			names = append(names, l.Name)
		}
	}
	return names
}

func (d *Model) tellCancelled(c *Claim, why wire.Status_Code) {
	d.tellHold(wire.Event_CANCELLED, c).Status = why
}

// tellDigest adds the digest of the request that began a wait to the event that ended it. The digest of a
// request from before this log is unknown.
func (d *Model) tellDigest(a *Answer) {
	for _, e := range d.News {
		ended := e.Type == wire.Event_GRANTED && e.Waited || e.Type == wire.Event_CANCELLED
		if ended && e.SessionId == a.Session && e.Seq == a.Seq {
			e.Digest = a.Digest
		}
	}
}

// tellWait emits the event that a claim, or its upgrade, waits.
func (d *Model) tellWait(c *Claim) {
	e := d.tellHold(wire.Event_QUEUED, c)
	e.Generation, e.WaitMs, e.WaitForever = c.WaitGeneration, c.WaitMs, c.WaitForever
	if up := c.Upgrade; up != nil {
		e.Upgrade, e.Seq = true, up.Seq
		e.Generation, e.WaitMs, e.WaitForever = up.Generation, up.WaitMs, up.WaitForever
	}
}

func (d *Model) tellGrant(c *Claim, up *Upgrade, waited bool) {
	e := d.tellHold(wire.Event_GRANTED, c)
	e.Waited, e.ByValue = waited, d.Session(c.Session).ByValue
	if up != nil {
		e.Upgrade, e.Seq = true, up.Seq
		return
	}
	e.Tokens = c.Tokens
	if !c.Cached() {
		c.startMaxHold(e)
	}
}
