package fsm

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// up is an upgrade: a reader wants to be alone.
func (d *model) up(s *modelSession, seq uint64, op *wire.Upgrade) *wire.Result {
	c := d.held(s, op.HoldId, op.Token)
	switch {
	case c == nil:
		return says(wire.Status_NOT_HELD)
	case len(c.locks) > 1 || c.locks[0].Mode == wire.Mode_PERMITS:
		return says(wire.Status_INVALID_ARGUMENT)
	case c.locks[0].Mode == wire.Mode_EXCLUSIVE:
		return d.grantOf(c)
	case c.upgrade != nil:
		return says(wire.Status_ALREADY_QUEUED)
	}
	name := c.locks[0].Name
	if len(d.those(name, upgradesIt)) > 0 {
		return says(wire.Status_UPGRADE_CONFLICT)
	}
	alone := len(d.those(name, closesIt)) == 1
	if !alone && op.WaitMs == 0 && !op.WaitForever {
		return &wire.Result{Status: wire.Status_NOT_ACQUIRED, Holders: d.told(c.locks, d.taken)}
	}
	if holds, waits := d.load(s.id); !alone && holds+waits >= d.limits.MaxClaimsPerSession {
		return says(wire.Status_RESOURCE_EXHAUSTED)
	}
	c.upgrade = &modelUpgrade{seq: seq, generation: c.waits + 1, waitMs: op.WaitMs, forever: op.WaitForever}
	if alone {
		d.serve(c, false)
		return d.grantOf(c)
	}
	if !op.AllowDeadlock && d.closes(c) {
		c.upgrade = nil
		return says(wire.Status_DEADLOCK)
	}
	c.waits++
	d.tellWait(c)
	d.want(c)
	return &wire.Result{Status: wire.Status_QUEUED, HoldId: c.id, Position: 1, Holders: d.told(c.locks, d.taken)}
}

// endUpgrade ends the wait of a reader that wanted to be alone; it still reads.
func (d *model) endUpgrade(c *modelClaim, why wire.Status_Code) *wire.Result {
	up := c.upgrade
	if up == nil {
		return nil
	}
	c.upgrade = nil
	e := d.tellHold(wire.Event_CANCELLED, c)
	e.Status, e.Upgrade, e.Seq = why, true, up.seq
	return d.rewrite(c.session, up.seq, &wire.Result{Status: why, HoldId: c.id})
}

func (d *model) down(s *modelSession, op *wire.Downgrade) *wire.Result {
	c := d.held(s, op.HoldId, op.Token)
	switch {
	case c == nil:
		return says(wire.Status_NOT_HELD)
	case len(c.locks) > 1 || c.locks[0].Mode == wire.Mode_PERMITS:
		return says(wire.Status_INVALID_ARGUMENT)
	case c.locks[0].Mode == wire.Mode_EXCLUSIVE:
		c.locks[0].Mode = wire.Mode_SHARED
		d.tellHold(wire.Event_DOWNGRADED, c)
		d.settle()
	}
	return says(wire.Status_OK)
}

// graced says that an operator's patience with the hold has an end.
func graced(c *modelClaim) bool { return c.revoked.GetGraceMs() > 0 }

func (d *model) extend(s *modelSession, op *wire.Extend) *wire.Result {
	c := d.held(s, op.HoldId, op.Token)
	switch {
	case !modelMaxHold(op.MaxHoldMs):
		return says(wire.Status_INVALID_ARGUMENT)
	case c == nil:
		return says(wire.Status_NOT_HELD)
	case graced(c), op.MaxHoldMs == 0 && c.maxHold == 0:
		return says(wire.Status_FAILED_PRECONDITION)
	case op.MaxHoldMs > 0:
		c.maxHold = op.MaxHoldMs
	}
	c.holds++
	e := d.tellHold(wire.Event_EXTENDED, c)
	e.MaxHoldMs, e.Generation = c.maxHold, c.holds
	return says(wire.Status_OK)
}

func (d *model) expireHold(op *wire.ExpireHold) *wire.Result {
	c := d.claim(op.HoldId)
	switch {
	case c == nil || !holdsIt(c):
		return says(wire.Status_NOT_FOUND)
	case op.Term != d.term, op.Generation != c.holds, d.deadline(c) == 0:
		return says(wire.Status_FAILED_PRECONDITION)
	}
	if graced(c) {
		d.takeAway(c, wire.Event_FORCED, c.revoked.Reason)
	} else {
		d.takeAway(c, wire.Event_EXPIRED, "")
	}
	return says(wire.Status_OK)
}

// deadline is how long a hold may last; 0 as long as it likes.
func (d *model) deadline(c *modelClaim) uint32 {
	if graced(c) {
		return c.revoked.GraceMs
	}
	return c.maxHold
}

// takeAway ends a hold against the will of its holder.
func (d *model) takeAway(c *modelClaim, what wire.Event_Type, reason string) {
	d.endUpgrade(c, wire.Status_CANCELLED)
	e := d.tellHold(what, c)
	e.Reason = reason
	if what == wire.Event_EXPIRED {
		e.Status = wire.Status_TIMEOUT
	}
	d.bury(c)
	d.endLease(c)
	d.settle()
}

// bury ends a hold. With a lock-delay its locks stay closed.
func (d *model) bury(c *modelClaim) {
	if c.delay == 0 {
		d.drop(c)
		return
	}
	c.over = true
	e := d.tellHold(wire.Event_DELAYED, c)
	e.LockDelayMs, e.Generation = c.delay, 1
}

func (d *model) endDelay(op *wire.EndDelay) *wire.Result {
	c := d.claim(op.HoldId)
	switch {
	case c == nil || !c.over:
		return says(wire.Status_NOT_FOUND)
	case op.Term != d.term, op.Generation != 1:
		return says(wire.Status_FAILED_PRECONDITION)
	}
	d.reopen(c)
	d.settle()
	return says(wire.Status_OK)
}

func (d *model) reopen(c *modelClaim) {
	d.drop(c)
	d.tellHold(wire.Event_DELAY_ENDED, c)
}

// wellPut says whether an operator's words can be kept.
func wellPut(reason, operator string) bool {
	return len(reason) <= 256 && len(operator) <= 256
}

// record keeps what an operator did.
func (d *model) record(action wire.AuditRecord_Action, operator, reason string, about *wire.AuditRecord) {
	d.audited++
	about.Id, about.Action, about.Operator, about.Reason = d.audited, action, operator, reason
	about.Revision, about.WallUnixMs = d.revision, modelWall
	d.audit = append(d.audit, about)
	if len(d.audit) > 256 {
		d.audit = d.audit[1:]
	}
}

// about is a record about a hold.
func (d *model) about(c *modelClaim) *wire.AuditRecord {
	r := &wire.AuditRecord{Lock: c.locks[0].Name, HoldId: c.id, Token: c.token, SessionId: c.session}
	if s := d.find(c.session); s != nil {
		r.ClientName = s.client.GetName()
	}
	return r
}

func (d *model) force(op *wire.ForceRelease) *wire.Result {
	if !wellPut(op.Reason, op.Operator) || op.Reason == "" {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	c := d.claim(op.HoldId)
	if c == nil || !holdsIt(c) || c.token != op.Token {
		return says(wire.Status_NOT_HELD)
	}
	d.record(wire.AuditRecord_FORCE_RELEASE, op.Operator, op.Reason, d.about(c))
	d.takeAway(c, wire.Event_FORCED, op.Reason)
	return says(wire.Status_OK)
}

func (d *model) revoke(op *wire.Revoke) *wire.Result {
	if !wellPut(op.Reason, op.Operator) {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	c := d.claim(op.HoldId)
	if c == nil || !holdsIt(c) || c.token != op.Token {
		return says(wire.Status_NOT_HELD)
	}
	grace := op.GraceMs
	if grace == 0 {
		grace = c.revoked.GetGraceMs() // leaves the deadline alone, also an earlier grace
	}
	c.revoked = &wire.Revocation{Reason: op.Reason, GraceMs: grace, RevokedUnixMs: modelWall}
	e := d.tellHold(wire.Event_REVOKED, c)
	e.Reason = op.Reason
	if op.GraceMs > 0 {
		c.holds++
		e.MaxHoldMs, e.Generation = op.GraceMs, c.holds
	}
	d.record(wire.AuditRecord_REVOKE, op.Operator, op.Reason, d.about(c))
	return says(wire.Status_OK)
}

func (d *model) skipDelay(op *wire.SkipDelay) *wire.Result {
	if !wellPut(op.Reason, op.Operator) {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	found := d.those(op.Name, func(c *modelClaim) bool { return c.over && (op.HoldId == 0 || c.id == op.HoldId) })
	if len(found) == 0 {
		return says(wire.Status_NOT_FOUND)
	}
	about := &wire.AuditRecord{Lock: op.Name}
	if op.HoldId != 0 {
		about.HoldId, about.Token, about.SessionId = found[0].id, found[0].token, found[0].session
	}
	d.record(wire.AuditRecord_SKIP_DELAY, op.Operator, op.Reason, about)
	slices.SortFunc(found, byToken)
	for _, c := range found {
		d.reopen(c)
	}
	d.settle()
	return says(wire.Status_OK)
}

func (d *model) resize(op *wire.Resize) *wire.Result {
	if !wellPut(op.Reason, op.Operator) || op.Limit == 0 || op.Limit > 1<<31 {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	l := d.locks[op.Name]
	if l == nil || l.limit == 0 {
		return says(wire.Status_NOT_FOUND)
	}
	for _, c := range d.those(op.Name, waitsForIt) {
		if c.part(op.Name).Permits > op.Limit {
			return says(wire.Status_FAILED_PRECONDITION)
		}
	}
	l.limit = op.Limit
	d.tell(&wire.Event{Type: wire.Event_RESIZED, Lock: op.Name, Limit: op.Limit})
	d.record(wire.AuditRecord_RESIZE, op.Operator, op.Reason, &wire.AuditRecord{Lock: op.Name, Limit: op.Limit})
	d.settle()
	return says(wire.Status_OK)
}

func (d *model) restoreBackup(op *wire.RestoreBackup) *wire.Result {
	limits := DefaultSettings()
	proto.Merge(limits, op.Settings)
	switch {
	case !wellPut(op.Reason, op.Operator), op.Lineage == "", len(op.Lineage) > 64, limits.MinTtlMs > limits.MaxTtlMs:
		return says(wire.Status_INVALID_ARGUMENT)
	case len(d.live) > 0 || len(d.claims) > 0:
		return says(wire.Status_FAILED_PRECONDITION)
	}
	d.token = max(d.token, op.TokenFloor)
	d.limits, d.lineage = limits, op.Lineage
	d.audit, d.audited = slices.Clone(op.Audit), 0
	if n := len(op.Audit); n > 0 {
		d.audited = op.Audit[n-1].Id
	}
	d.record(wire.AuditRecord_RESTORE, op.Operator, op.Reason, &wire.AuditRecord{})
	return says(wire.Status_OK)
}

// openLease is a session and its only acquire in one.
func (d *model) openLease(op *wire.OpenLease) *wire.Result {
	if len(op.SecretHash) != 32 {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	if s := d.byHash(op.SecretHash); s != nil {
		return d.repeatLease(s)
	}
	if refusal := d.mayOpen(op.TtlMs, op.Client); refusal != nil {
		return refusal
	}
	s := d.begin(op.SecretHash, op.TtlMs, op.Client)
	s.leased = true
	before := d.news
	d.tell(&wire.Event{Type: wire.Event_SESSION_OPENED, SessionId: s.id, Generation: 1, TtlMs: s.ttl, Leased: true})
	asked := &wire.Acquire{}
	if op.Acquire != nil {
		asked = proto.CloneOf(op.Acquire)
	}
	asked.Owner = 0
	answer := d.acquire(s, 1, asked)
	if answer.Status != wire.Status_GRANTED && answer.Status != wire.Status_QUEUED {
		d.live, d.news = d.live[:len(d.live)-1], before
		d.opened--
		return answer
	}
	d.note(s, 1, answer)
	answer.SessionId = s.id
	return answer
}

func (d *model) repeatLease(s *modelSession) *wire.Result {
	if !s.leased {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	a := d.recall(s.id, 1)
	if a.said.Status == wire.Status_QUEUED {
		d.prolong(s)
	}
	answer := d.repeat(a)
	answer.SessionId = s.id
	return answer
}

func (d *model) prolong(s *modelSession) {
	s.generation++
	d.tell(&wire.Event{Type: wire.Event_SESSION_EXTENDED, SessionId: s.id, Generation: s.generation, TtlMs: s.ttl, Leased: true})
}

// startLease begins the time of a leased hold that was waited for.
func (d *model) startLease(c *modelClaim, waited bool) {
	if s := d.find(c.session); s.leased && waited {
		d.prolong(s)
	}
}

// endLease ends the session of a lease that has come to an end.
func (d *model) endLease(c *modelClaim) {
	s := d.find(c.session)
	if s == nil || !s.leased {
		return
	}
	d.live = slices.DeleteFunc(d.live, func(o *modelSession) bool { return o == s })
	d.tell(&wire.Event{Type: wire.Event_SESSION_CLOSED, SessionId: s.id, Generation: s.generation, Leased: true})
}

func (d *model) extendLease(op *wire.ExtendLease) *wire.Result {
	if op.TtlMs != 0 && (op.TtlMs < d.limits.MinTtlMs || op.TtlMs > d.limits.MaxTtlMs) {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	s := d.byHash(op.SecretHash)
	if s == nil || !s.leased {
		return says(wire.Status_NOT_HELD)
	}
	c := d.of(s.id)[0]
	if c.token == 0 || c.id != op.HoldId {
		return says(wire.Status_NOT_HELD)
	}
	if op.TtlMs != 0 {
		s.ttl = op.TtlMs
	}
	d.prolong(s)
	return &wire.Result{Status: wire.Status_OK, SessionId: s.id}
}

func (d *model) releaseLease(op *wire.ReleaseLease) *wire.Result {
	s := d.byHash(op.SecretHash)
	if s == nil || !s.leased {
		return says(wire.Status_NOT_HELD)
	}
	c := d.of(s.id)[0]
	if op.HoldId != 0 && op.HoldId != c.id {
		return says(wire.Status_NOT_HELD)
	}
	d.drop(c)
	if c.token != 0 {
		d.tellHold(wire.Event_RELEASED, c)
	} else {
		d.tellCancelled(c, wire.Status_CANCELLED)
	}
	d.endLease(c)
	d.settle()
	return &wire.Result{Status: wire.Status_OK, SessionId: s.id}
}
