package fsm

import (
	"fmt"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func (r *restoring) lock(body *wire.LockRecord) error {
	if body.Limit > maxLimit {
		return fmt.Errorf("lock %q has limit %d", body.Name, body.Limit)
	}
	l := &lock{lockKey: lockKey{body.Id, body.Name}, contention: noContention, unfair: body.Order == wire.Order_UNFAIR}
	if body.Limit > 0 {
		l.vary().limit = uint32(body.Limit)
	}
	r.m.locks.load(l)
	return r.ascend(4, recordKey{name: body.Name})
}

// locksByName returns all locks in a map that is allocated at its full size.
func (r *restoring) locksByName() map[string]*lock {
	all := make(map[string]*lock, r.m.locks.len())
	r.m.locks.each("", func(l *lock) bool {
		all[l.name] = l
		return true
	})
	return all
}

// claim restores a claim, and with it the queues, the holders, the owners and the counts.
func (r *restoring) claim(body *wire.ClaimRecord) error {
	c := &claim{
		id:          body.Id,
		session:     body.SessionId,
		owner:       body.Owner,
		seq:         body.Seq,
		since:       body.QueuedUnixMs,
		waitMs:      body.WaitMs,
		waitForever: body.WaitForever,
	}
	if len(body.Locks) == 0 || len(body.Locks) > maxLocks {
		return fmt.Errorf("claim %d is for %d locks", c.id, len(body.Locks))
	}
	if wasSpecial(body) {
		*c.vary() = extraFrom(body)
	}
	if err := c.grantFrom(body); err != nil {
		return err
	}
	if r.locks == nil {
		r.locks = r.locksByName()
	}
	if err := r.enlist(c); err != nil {
		return err
	}
	r.m.claims.load(c)
	for i, request := range body.Locks {
		if err := r.want(c, &c.wants()[i], request); err != nil {
			return err
		}
	}
	r.count(c)
	return r.ascend(5, recordKey{a: c.id})
}

// count adds the units of a claim to the state and, except for a lock-delay, to its session.
func (r *restoring) count(c *claim) {
	r.m.state.bytes += c.units() + c.revocationUnits()
	if s, ok := r.m.sessions.get(c.session); ok && c.phase() != delayed {
		s.bytes += c.units()
		used := &r.m.editAccount(s.identity).used
		used.Bytes += c.units()
		used.Claims += uint64(len(c.wants()))
		if c.upgrading() {
			used.Claims++
		}
	}
}

// grantFrom restores the grant, if there was one.
func (c *claim) grantFrom(body *wire.ClaimRecord) error {
	if granted := body.Token != 0; granted != (body.GrantedRevision != 0) || !granted && body.GrantedUnixMs != 0 {
		return fmt.Errorf("claim %d has token %d, granted at %d", body.Id, body.Token, body.GrantedRevision)
	}
	if body.Token != 0 && (body.GrantedRevision != body.Id || body.GrantedUnixMs != body.QueuedUnixMs) {
		c.recordLateGrant(body.GrantedRevision)
	}
	if body.Token != 0 {
		c.token, c.since = body.Token, body.GrantedUnixMs
	}
	return nil
}

// wasSpecial reports whether a claim needs an extra part.
func wasSpecial(body *wire.ClaimRecord) bool {
	return len(body.Locks) > 1 || len(body.Value) > 0 || body.Notify || body.Wanted || body.AllowDeadlock ||
		body.Again|body.MaxHoldMs|body.LockDelayMs|body.Tokens|body.IdleMs != 0 || body.HoldGeneration|body.GraceGeneration|body.DelayGeneration != 0 ||
		body.DelayedUnixMs != 0 || body.Generation != 1 || body.Revocation != nil || body.Upgrade != nil
}

func extraFrom(body *wire.ClaimRecord) extra {
	e := extra{
		value:           body.Value,
		again:           body.Again,
		maxHoldMs:       body.MaxHoldMs,
		holdGeneration:  body.HoldGeneration,
		graceGeneration: body.GraceGeneration,
		lockDelayMs:     body.LockDelayMs,
		notify:          body.Notify,
		wanted:          body.Wanted,
		allowDeadlock:   body.AllowDeadlock,
		tokens:          body.Tokens,
		idleMs:          body.IdleMs,
		revocation:      body.Revocation,
		upgrades:        body.Generation - 1,
		delayGeneration: body.DelayGeneration,
		delayed:         body.DelayedUnixMs,
	}
	if len(body.Locks) > 1 {
		e.wants = make([]want, len(body.Locks))
	}
	if u := body.Upgrade; u != nil {
		e.upgrade = &upgrade{seq: u.Seq, waitMs: u.WaitMs, waitForever: u.WaitForever, allowDeadlock: u.AllowDeadlock, queued: u.QueuedUnixMs}
	}
	return e
}

// enlist counts a claim in its session. A lock-delay has none.
func (r *restoring) enlist(c *claim) error {
	if c.phase() == delayed {
		return nil
	}
	s, ok := r.m.sessions.get(c.session)
	if !ok {
		return fmt.Errorf("claim %d is of no session", c.id)
	}
	s.further += uint64(len(c.wants())) - 1
	if c.held() && c.recalled() {
		s.recalls++
	}
	if c.held() {
		s.holds++
		r.m.state.holds++
	}
	if !c.held() || c.upgrading() {
		s.waits++
		r.m.state.waits++
	}
	return nil
}

// want adds a claim to the queue or the holders of one of its locks.
func (r *restoring) want(c *claim, w *want, request *wire.LockRequest) error {
	l, ok := r.locks[request.GetName()]
	if !ok || request.Permits > maxLimit {
		return fmt.Errorf("claim %d wants %d permits of lock %q, which is not there", c.id, request.GetPermits(), request.GetName())
	}
	*w = want{lock: l, mode: request.Mode, permits: uint32(request.Permits)}
	if c.phase() != delayed {
		r.m.owners.load(c.ownerRowOf(*w))
	}
	if c.phase() == waiting {
		r.m.queue.load(place{l.id, c.id})
		l.vary().waiters++
		return nil
	}
	r.m.addOccupant(l, c)
	l.occupy(*w)
	l.listening = l.listening || c.listens()
	if c.phase() == delayed {
		l.vary().delays++
	}
	if c.upgrading() {
		l.vary().upgrader = c.id
		r.m.upgrades.load(place{l.id, c.id})
	}
	return nil
}
