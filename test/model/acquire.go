package model

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// plain returns a copy of the lock request with its defaults filled in.
func plain(l *wire.LockRequest) *wire.LockRequest {
	l = proto.CloneOf(l)
	switch {
	case l.Limit > 0:
		l.Mode, l.Permits = wire.Mode_PERMITS, max(l.Permits, 1)
	case l.Mode == wire.Mode_MODE_UNSPECIFIED:
		l.Mode = wire.Mode_EXCLUSIVE
	}
	return l
}

func validAcquire(op *wire.Acquire) bool {
	names := map[string]bool{}
	for _, l := range op.GetLocks() {
		semaphore := l.Limit > 0 && (l.Mode == 0 || l.Mode == wire.Mode_PERMITS) && l.Permits <= l.Limit && l.Limit <= 1<<31
		lock := l.Limit == 0 && l.Permits == 0 && l.Mode >= 0 && l.Mode <= wire.Mode_SHARED
		if names[l.Name] || !validName(l.Name) || !semaphore && !lock || l.Limit > 0 && op.Reentrant {
			return false
		}
		names[l.Name] = true
	}
	one := len(op.GetLocks()) == 1
	unfair := op.GetOrder() == wire.Order_UNFAIR
	switch {
	case len(op.GetLocks()) == 0 || len(op.Locks) > 64, op.Reentrant && !one, op.Order < 0 || op.Order > wire.Order_UNFAIR:
		return false
	case unfair && (!one || op.Locks[0].Limit > 0 || op.Locks[0].Mode == wire.Mode_SHARED):
		return false
	}
	return op.LockDelayMs <= 60_000 && validMaxHold(op.MaxHoldMs)
}

// validName reports whether a lock may have this name.
func validName(name string) bool {
	for segment := range strings.SplitSeq(name, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return readable(name, 512)
}

func validMaxHold(ms uint32) bool { return ms == 0 || ms >= 100 && ms <= 1<<31 }

func (d *Model) acquire(s *Session, seq uint64, op *wire.Acquire) *wire.Result {
	return d.acquireAs(s, seq, &wire.AcquireCached{Acquire: op})
}

// acquireAs acquires a cached hold if it is to have a range of tokens, and a plain one otherwise.
func (d *Model) acquireAs(s *Session, seq uint64, as *wire.AcquireCached) *wire.Result {
	op := as.Acquire
	order := max(op.Order, wire.Order_FIFO)
	free := true
	for _, l := range op.Locks {
		if known := d.Locks[l.Name]; known != nil && (known.Order != order || known.Limit != l.Limit) {
			return says(wire.Status_MISMATCH)
		}
		if mine := d.Mine(s.ID, op.Owner, l.Name); mine != nil {
			return d.second(mine, plain(l), op.Reentrant)
		}
		free = free && !d.busy(plain(l))
	}
	if !free && op.WaitMs == 0 && !op.WaitForever {
		return &wire.Result{Status: wire.Status_NOT_ACQUIRED, Holders: d.told(plainAll(op.Locks), d.busy)}
	}
	if !d.room(s, op, free) {
		return says(wire.Status_RESOURCE_EXHAUSTED)
	}
	if !d.roomForNames(s.Identity, op.Locks) {
		return d.exhausted()
	}
	c := d.claimFor(s, seq, as, order)
	if !d.affords(s, outcomeWeight, roomToShrink) {
		d.drop(c)
		return d.exhausted()
	}
	if free {
		d.serve(c, false)
		return c.grant()
	}
	if !op.AllowDeadlock && d.closes(c) && !d.overlooked() {
		d.drop(c)
		return says(wire.Status_DEADLOCK)
	}
	d.tellWait(c)
	d.want(c)
	return &wire.Result{Status: wire.Status_QUEUED, HoldId: c.ID, Position: d.place(c), Holders: d.told(c.Locks, d.taken)}
}

func plainAll(locks []*wire.LockRequest) []*wire.LockRequest {
	var all []*wire.LockRequest
	for _, l := range locks {
		all = append(all, plain(l))
	}
	return all
}

// Mine returns the owner's claim on the lock, delays excluded; nil if it has none.
func (d *Model) Mine(session, owner uint64, name string) *Claim {
	for _, c := range d.Of(session) {
		if c.Owner == owner && c.part(name) != nil {
			return c
		}
	}
	return nil
}

func (d *Model) second(c *Claim, l *wire.LockRequest, reentrant bool) *wire.Result {
	if c.Token == 0 {
		return says(wire.Status_ALREADY_QUEUED)
	}
	if have := c.part(l.Name); !reentrant || have.Mode != wire.Mode_EXCLUSIVE && have.Mode != l.Mode {
		return says(wire.Status_ALREADY_HELD)
	}
	if !d.affords(d.Session(c.Session), extraWeight+2*outcomeWeight, roomToShrink) {
		return d.exhausted()
	}
	c.Count++
	return c.grant()
}

// room reports whether one more claim stays within the limits.
func (d *Model) room(s *Session, op *wire.Acquire, free bool) bool {
	locks := uint64(len(d.Locks))
	for _, l := range op.Locks {
		if d.Locks[l.Name] == nil {
			locks++
		}
		if !free && len(d.those(l.Name, (*Claim).Queued)) >= int(d.Limits.MaxWaitersPerLock) {
			return false
		}
	}
	return d.Names(s.ID)+uint64(len(op.Locks)) <= d.Limits.MaxClaimsPerSession && (locks == uint64(len(d.Locks)) || locks <= d.Limits.MaxLocks)
}

// claimFor adds a new claim behind all others.
func (d *Model) claimFor(s *Session, seq uint64, as *wire.AcquireCached, order wire.Order) *Claim {
	op := as.Acquire
	c := &Claim{
		ID: d.Revision, Session: s.ID, Owner: op.Owner, Seq: seq, Locks: plainAll(op.Locks), Value: op.Value,
		WaitMs: op.WaitMs, WaitForever: op.WaitForever, WaitGeneration: 1,
		notify: op.Notify, tolerant: op.AllowDeadlock, MaxHold: op.MaxHoldMs, Delay: op.LockDelayMs, queuedAt: d.wall,
		Tokens: as.Tokens, Idle: as.IdleMs,
	}
	d.add(c)
	for _, l := range c.Locks {
		if d.Locks[l.Name] == nil {
			d.Locks[l.Name] = &Lock{order, l.Limit}
		}
	}
	return c
}

// grant returns the answer to the grant of c.
func (c *Claim) grant() *wire.Result {
	return &wire.Result{Status: wire.Status_GRANTED, Revision: c.Granted, HoldId: c.ID, Token: c.Token, Count: c.Count}
}
