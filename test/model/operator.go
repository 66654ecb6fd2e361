package model

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// wellPut reports whether the texts of an operator's act are valid.
func wellPut(act wire.Act) bool {
	return strings.TrimSpace(act.GetReason()) != "" && readable(act.GetReason(), 1024) && readable(act.GetOperator(), 256) && readable(act.GetTicket(), 256)
}

// record adds an audit record of an operator's act.
func (d *Model) record(action wire.AuditRecord_Action, act wire.Act, about *wire.AuditRecord) {
	d.audited++
	about.Id, about.Action, about.Operator, about.Reason, about.Ticket = d.audited, action, act.GetOperator(), act.GetReason(), act.GetTicket()
	if !aroundTheCluster[action] {
		about.Outcome = wire.Status_OK
	}
	about.Revision, about.WallUnixMs = d.Revision, d.wall
	if d.caller != nil {
		about.Caller = proto.CloneOf(d.caller)
	}
	if d.node != "" {
		about.Caller = &wire.Caller{Identity: "node " + d.node}
	}
	d.Audit = d.audit(d.Audit, about)
	if !ofMembers[action] && d.acted == 0 {
		d.acted = d.Revision
	}
}

// audit adds a record, and drops one if there are more than 256: whoever has the most records loses the oldest.
func (d *Model) audit(records []*wire.AuditRecord, r *wire.AuditRecord) []*wire.AuditRecord {
	d.tell(&wire.Event{Type: wire.Event_AUDITED, Audit: r})
	records = append(records, r)
	if len(records) <= 256 {
		return records
	}
	byIdentity := map[string][]*wire.AuditRecord{}
	for _, r := range records {
		who := r.GetCaller().GetIdentity()
		byIdentity[who] = append(byIdentity[who], r)
	}
	var most []*wire.AuditRecord
	for _, theirs := range byIdentity {
		if len(theirs) > len(most) || len(theirs) == len(most) && theirs[0].Id < most[0].Id {
			most = theirs
		}
	}
	at := slices.Index(records, most[0])
	return slices.Concat(records[:at], records[at+1:])
}

// ofMembers are the acts that do not count as a use of the cluster.
var ofMembers = map[wire.AuditRecord_Action]bool{
	wire.AuditRecord_ADD_MEMBER: true, wire.AuditRecord_REMOVE_MEMBER: true, wire.AuditRecord_TRANSFER_LEADERSHIP: true,
	wire.AuditRecord_DRAIN_MEMBER: true, wire.AuditRecord_UNDRAIN_MEMBER: true,
}

// aroundTheCluster are the acts whose outcome is recorded by a second record.
var aroundTheCluster = map[wire.AuditRecord_Action]bool{
	wire.AuditRecord_ADD_MEMBER: true, wire.AuditRecord_REMOVE_MEMBER: true, wire.AuditRecord_TRANSFER_LEADERSHIP: true, wire.AuditRecord_SAVE_SNAPSHOT: true,
}

// inBrief truncates a text to what a record has room for.
func inBrief(text string) string { return strings.ToValidUTF8(text[:min(256, len(text))], "") }

// about returns an audit record about a hold.
func (d *Model) about(c *Claim) *wire.AuditRecord {
	r := &wire.AuditRecord{Lock: c.Locks[0].Name, HoldId: c.ID, Token: c.Token, SessionId: c.Session}
	if left := 2048; len(c.Locks) > 1 {
		for _, l := range c.Locks {
			if left -= len(l.Name); left < 0 {
				r.FurtherLocks++
			} else {
				r.Locks = append(r.Locks, l.Name)
			}
		}
	}
	if s := d.Session(c.Session); s != nil {
		r.ClientName = inBrief(s.Client.GetName())
	}
	return r
}

func (d *Model) force(op *wire.ForceRelease) *wire.Result {
	c := d.Claim(op.HoldId)
	if c == nil || !c.Holds() || !c.Has(op.Token) {
		return says(wire.Status_NOT_HELD)
	}
	if !d.mayOn(d.who(), wire.Verb_OPERATE, c) {
		return says(d.unless(d.noticed(c), wire.Status_NOT_HELD))
	}
	d.record(wire.AuditRecord_FORCE_RELEASE, op, d.about(c))
	d.takeAway(c, wire.Event_FORCED, op.Reason)
	return says(wire.Status_OK)
}

func (d *Model) revoke(op *wire.Revoke) *wire.Result {
	c := d.Claim(op.HoldId)
	if c == nil || !c.Holds() || !c.Has(op.Token) {
		return says(wire.Status_NOT_HELD)
	}
	if !d.mayOn(d.who(), wire.Verb_OPERATE, c) {
		return says(d.unless(d.noticed(c), wire.Status_NOT_HELD))
	}
	if c.Revoked == nil && d.Weight()+revocationWeight > int(d.Limits.MaxStateBytes) {
		return says(wire.Status_RESOURCE_EXHAUSTED)
	}
	grace := op.GraceMs
	if grace == 0 {
		grace = c.Revoked.GetGraceMs() // keeps an earlier grace
	}
	c.Revoked = &wire.Revocation{Reason: op.Reason, GraceMs: grace, RevokedUnixMs: d.wall}
	e := d.tellHold(wire.Event_REVOKED, c)
	e.Reason = op.Reason
	if op.GraceMs > 0 {
		c.GraceGeneration++
		e.MaxHoldMs, e.Generation = op.GraceMs, c.GraceGeneration
	}
	d.record(wire.AuditRecord_REVOKE, op, d.about(c))
	return says(wire.Status_OK)
}

func (d *Model) skipDelay(op *wire.SkipDelay) *wire.Result {
	if !d.May(d.who(), wire.Verb_OPERATE, op.Name) {
		return says(wire.Status_PERMISSION_DENIED)
	}
	found := d.those(op.Name, func(c *Claim) bool { return c.Over && (op.HoldId == 0 || c.ID == op.HoldId) })
	if len(found) == 0 {
		return says(wire.Status_NOT_FOUND)
	}
	about := &wire.AuditRecord{Lock: op.Name}
	if op.HoldId != 0 {
		about.HoldId, about.Token, about.SessionId = found[0].ID, found[0].Token, found[0].Session
	}
	d.record(wire.AuditRecord_SKIP_DELAY, op, about)
	slices.SortFunc(found, byToken)
	for _, c := range found {
		d.reopenOne(c, op.Name)
	}
	d.grantReady()
	return says(wire.Status_OK)
}

// reopenOne opens one of the locks that a lock-delay keeps closed.
func (d *Model) reopenOne(c *Claim, name string) {
	if len(c.Locks) == 1 {
		d.reopen(c)
		return
	}
	part := c.part(name)
	e := d.tellHold(wire.Event_DELAY_ENDED, c)
	e.Lock, e.Locks, e.Mode, e.Permits, e.Partial = name, nil, part.Mode, part.Permits, true
	c.Locks = slices.DeleteFunc(slices.Clone(c.Locks), func(l *wire.LockRequest) bool { return l.Name == name })
	without(d.byLock, name, c)
	d.left = append(d.left, name)
}

func (d *Model) forceClose(op *wire.ForceClose) *wire.Result {
	if op.Identity != "" {
		return d.forceCloseAll(op)
	}
	s := d.Session(op.GetSessionId())
	if s == nil {
		return says(wire.Status_NOT_FOUND)
	}
	if !d.mayClose(s) {
		seen := s.Identity == d.who() || slices.ContainsFunc(d.Of(s.ID), d.noticed)
		return says(d.unless(seen, wire.Status_NOT_FOUND))
	}
	d.record(wire.AuditRecord_FORCE_CLOSE, op, &wire.AuditRecord{SessionId: s.ID, ClientName: inBrief(s.Client.GetName())})
	d.end(s, wire.Event_SESSION_CLOSED, op.Reason)
	return says(wire.Status_OK)
}

func (d *Model) forceCloseAll(op *wire.ForceClose) *wire.Result {
	if !d.mayAll(d.who(), wire.Verb_OPERATE) {
		return says(wire.Status_PERMISSION_DENIED)
	}
	d.record(wire.AuditRecord_FORCE_CLOSE, op, &wire.AuditRecord{Identity: op.Identity})
	d.closeAll(op.Reason, func(identity string) bool { return identity == op.Identity })
	return says(wire.Status_OK)
}

func (d *Model) resize(op *wire.Resize) *wire.Result {
	if !d.May(d.who(), wire.Verb_OPERATE, op.Name) {
		return says(wire.Status_PERMISSION_DENIED)
	}
	l := d.Locks[op.Name]
	if l == nil || l.Limit == 0 {
		return says(wire.Status_NOT_FOUND)
	}
	for _, c := range d.those(op.Name, (*Claim).Queued) {
		if c.part(op.Name).Permits > op.Limit {
			return says(wire.Status_FAILED_PRECONDITION)
		}
	}
	l.Limit = op.Limit
	d.tell(&wire.Event{Type: wire.Event_RESIZED, Lock: op.Name, Limit: op.Limit})
	d.record(wire.AuditRecord_RESIZE, op, &wire.AuditRecord{Lock: op.Name, Limit: op.Limit})
	d.grantReady()
	return says(wire.Status_OK)
}
