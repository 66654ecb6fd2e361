package fsm

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// claim is the one of that id, delays too; nil if there is none.
func (d *model) claim(id uint64) *modelClaim {
	for _, c := range d.claims {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (c *modelClaim) part(name string) *wire.LockRequest {
	for _, l := range c.locks {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// those are the claims on a lock that fit, in the order in which they asked.
func (d *model) those(name string, fit func(*modelClaim) bool) []*modelClaim {
	var found []*modelClaim
	for _, c := range d.claims {
		if c.part(name) != nil && fit(c) {
			found = append(found, c)
		}
	}
	return found
}

func waitsForIt(c *modelClaim) bool { return c.token == 0 }
func holdsIt(c *modelClaim) bool    { return c.token != 0 && !c.over }
func delaysIt(c *modelClaim) bool   { return c.over }
func closesIt(c *modelClaim) bool   { return c.token != 0 }
func upgradesIt(c *modelClaim) bool { return c.upgrade != nil }

// holders are those who hold a lock, by token.
func (d *model) holders(name string) []*modelClaim {
	found := d.those(name, holdsIt)
	slices.SortFunc(found, byToken)
	return found
}

func byToken(a, b *modelClaim) int { return int(a.token) - int(b.token) }

// told are at most eight holders of the first of the locks that is in the way.
func (d *model) told(locks []*wire.LockRequest, inTheWay func(*wire.LockRequest) bool) []*wire.HolderInfo {
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
func (d *model) taken(l *wire.LockRequest) bool { return len(d.those(l.Name, closesIt)) > 0 }

// busy says whether a newcomer has to wait for a lock.
func (d *model) busy(l *wire.LockRequest) bool {
	return !d.fits(l) || len(d.those(l.Name, waitsForIt)) > 0 || len(d.those(l.Name, upgradesIt)) > 0
}

// place in the queue of the first lock; 1 is next.
func (d *model) place(c *modelClaim) uint64 {
	if c.token != 0 {
		return 1
	}
	name := c.locks[0].Name
	return uint64(1 + slices.Index(d.those(name, waitsForIt), c) + len(d.those(name, upgradesIt)))
}

// fits says whether those who hold the lock, or keep it closed, leave room.
func (d *model) fits(want *wire.LockRequest) bool {
	used := want.Permits
	for _, c := range d.those(want.Name, closesIt) {
		have := c.part(want.Name)
		used += have.Permits
		if have.Mode == wire.Mode_EXCLUSIVE || want.Mode == wire.Mode_EXCLUSIVE {
			return false
		}
	}
	l := d.locks[want.Name]
	return l == nil || l.limit == 0 || used <= l.limit
}

// plain is a lock request with everything filled in.
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

func (d *model) validAcquire(op *wire.Acquire) bool {
	names := map[string]bool{}
	for _, l := range op.Locks {
		semaphore := l.Limit > 0 && (l.Mode == 0 || l.Mode == wire.Mode_PERMITS) && l.Permits <= l.Limit && l.Limit <= 1<<31
		lock := l.Limit == 0 && l.Permits == 0 && l.Mode >= 0 && l.Mode <= wire.Mode_SHARED
		if names[l.Name] || strings.Contains(l.Name, "//") || !semaphore && !lock || l.Limit > 0 && op.Reentrant {
			return false
		}
		names[l.Name] = true
	}
	one := len(op.Locks) == 1
	unfair := op.Order == wire.Order_UNFAIR
	switch {
	case len(op.Locks) == 0 || len(op.Locks) > 64, op.Reentrant && !one, op.Order < 0 || op.Order > wire.Order_UNFAIR:
		return false
	case unfair && (!one || op.Locks[0].Limit > 0 || op.Locks[0].Mode == wire.Mode_SHARED):
		return false
	}
	return op.LockDelayMs <= 60_000 && modelMaxHold(op.MaxHoldMs)
}

func modelMaxHold(ms uint32) bool { return ms == 0 || ms >= 100 && ms <= 1<<31 }

func (d *model) acquire(s *modelSession, seq uint64, op *wire.Acquire) *wire.Result {
	if !d.validAcquire(op) {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	if len(op.Value) > int(d.limits.MaxValueBytes) {
		return says(wire.Status_RESOURCE_EXHAUSTED)
	}
	order := max(op.Order, wire.Order_FIFO)
	free := true
	for _, l := range op.Locks {
		if known := d.locks[l.Name]; known != nil && (known.order != order || known.limit != l.Limit) {
			return says(wire.Status_MISMATCH)
		}
		if mine := d.mine(s.id, op.Owner, l.Name); mine != nil {
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
	c := d.claimFor(s, seq, op, order)
	if free {
		d.serve(c, false)
		return d.grantOf(c)
	}
	if !op.AllowDeadlock && d.closes(c) {
		d.drop(c)
		return says(wire.Status_DEADLOCK)
	}
	d.tellWait(c)
	d.want(c)
	return &wire.Result{Status: wire.Status_QUEUED, HoldId: c.id, Position: d.place(c), Holders: d.told(c.locks, d.taken)}
}

func plainAll(locks []*wire.LockRequest) []*wire.LockRequest {
	var all []*wire.LockRequest
	for _, l := range locks {
		all = append(all, plain(l))
	}
	return all
}

// mine is what an owner has to do with a lock already.
func (d *model) mine(session, owner uint64, name string) *modelClaim {
	for _, c := range d.of(session) {
		if c.owner == owner && c.part(name) != nil {
			return c
		}
	}
	return nil
}

func (d *model) second(c *modelClaim, l *wire.LockRequest, reentrant bool) *wire.Result {
	if c.token == 0 {
		return says(wire.Status_ALREADY_QUEUED)
	}
	if have := c.part(l.Name); !reentrant || have.Mode != wire.Mode_EXCLUSIVE && have.Mode != l.Mode {
		return says(wire.Status_ALREADY_HELD)
	}
	c.count++
	return d.grantOf(c)
}

// room says whether one more claim keeps within the limits.
func (d *model) room(s *modelSession, op *wire.Acquire, free bool) bool {
	holds, waits := d.load(s.id)
	locks := uint64(len(d.locks))
	for _, l := range op.Locks {
		if d.locks[l.Name] == nil {
			locks++
		}
		if !free && len(d.those(l.Name, waitsForIt)) >= int(d.limits.MaxWaitersPerLock) {
			return false
		}
	}
	return holds+waits < d.limits.MaxClaimsPerSession && (locks == uint64(len(d.locks)) || locks <= d.limits.MaxLocks)
}

// claimFor puts a new claim behind all others.
func (d *model) claimFor(s *modelSession, seq uint64, op *wire.Acquire, order wire.Order) *modelClaim {
	c := &modelClaim{
		id: d.revision, session: s.id, owner: op.Owner, seq: seq, locks: plainAll(op.Locks), value: op.Value,
		waitMs: op.WaitMs, forever: op.WaitForever, allow: op.AllowDeadlock, waits: 1,
		notify: op.Notify, maxHold: op.MaxHoldMs, delay: op.LockDelayMs,
	}
	d.claims = append(d.claims, c)
	for _, l := range c.locks {
		if d.locks[l.Name] == nil {
			d.locks[l.Name] = &modelLock{order, l.Limit}
		}
	}
	return c
}

// grantOf is the answer that a hold gives.
func (d *model) grantOf(c *modelClaim) *wire.Result {
	return &wire.Result{Status: wire.Status_GRANTED, Revision: c.granted, HoldId: c.id, Token: c.token, Count: c.count}
}

// ready says whether a claim's turn has come.
func (d *model) ready(c *modelClaim) bool {
	if c.over {
		return false
	}
	if c.upgrade != nil {
		return len(d.those(c.locks[0].Name, closesIt)) == 1
	}
	if c.token != 0 {
		return false
	}
	for _, l := range c.locks {
		first := d.those(l.Name, waitsForIt)[0] == c || d.locks[l.Name].order == wire.Order_UNFAIR
		if !first || !d.fits(l) || len(d.those(l.Name, upgradesIt)) > 0 {
			return false
		}
	}
	return true
}

// settle grants, one after the other, whatever may be granted, until nothing may.
func (d *model) settle() {
	for {
		var ready []*modelClaim
		for _, c := range d.claims {
			if d.ready(c) {
				ready = append(ready, c)
			}
		}
		if len(ready) == 0 {
			return
		}
		next := ready[0]
		for _, c := range ready {
			if len(d.hint) > 0 && c.id == d.hint[0] {
				next, d.hint = c, d.hint[1:]
				break
			}
		}
		if d.locks[next.locks[0].Name].order == wire.Order_UNFAIR && len(d.those(next.locks[0].Name, waitsForIt)) > 1 {
			d.draws++
		}
		d.serve(next, true)
	}
}

// serve gives a claim what it wants, under a new token.
func (d *model) serve(c *modelClaim, waited bool) {
	d.token++
	up := c.upgrade
	c.token, c.granted = d.token, d.revision
	if up != nil {
		c.locks[0].Mode, c.upgrade = wire.Mode_EXCLUSIVE, nil
	} else {
		c.count = 1
		if c.maxHold > 0 {
			c.holds = 1
		}
	}
	d.tellGrant(c, up, waited)
	if waited && up != nil {
		d.rewrite(c.session, up.seq, d.grantOf(c))
	} else if waited {
		d.rewrite(c.session, c.seq, d.grantOf(c))
	}
	for _, l := range c.locks {
		if c.notify && !c.wanted && len(d.those(l.Name, waitsForIt)) > 0 {
			c.wanted = true
			d.tellHold(wire.Event_WANTED, c)
		}
	}
	d.startLease(c, waited)
}

// want tells those who asked for it that somebody waits for what they hold.
func (d *model) want(who *modelClaim) {
	var told []*modelClaim
	for _, l := range who.locks {
		for _, c := range d.holders(l.Name) {
			if c != who && c.notify && !c.wanted {
				c.wanted = true
				told = append(told, c)
			}
		}
	}
	for _, c := range told {
		d.tellHold(wire.Event_WANTED, c)
	}
}

// rewrite ends a wait: its request has come to something else now.
func (d *model) rewrite(session, seq uint64, said *wire.Result) *wire.Result {
	said.Revision = d.revision
	for _, a := range d.answers {
		if a.session == session && a.seq == seq && a.said.Status == wire.Status_QUEUED {
			a.said = said
			return proto.CloneOf(said)
		}
	}
	panic(fmt.Sprintf("request %d of session %d began no wait", seq, session))
}

// drop takes a claim off the list. Whoever calls it settles.
func (d *model) drop(c *modelClaim) {
	d.claims = slices.DeleteFunc(slices.Clone(d.claims), func(o *modelClaim) bool { return o == c })
}

// clean forgets locks that nobody has to do with any more.
func (d *model) clean() {
	for name := range d.locks {
		if len(d.those(name, func(*modelClaim) bool { return true })) == 0 {
			delete(d.locks, name)
		}
	}
}

func (d *model) held(s *modelSession, hold, token uint64) *modelClaim {
	c := d.claim(hold)
	if c == nil || c.session != s.id || !holdsIt(c) || c.token != token {
		return nil
	}
	return c
}

func (d *model) release(s *modelSession, op *wire.Release) *wire.Result {
	done := &wire.Result{Status: wire.Status_OK, HoldId: op.HoldId, Token: op.Token}
	if c := d.held(s, op.HoldId, op.Token); c != nil {
		if c.count > 1 {
			c.count--
			done.Count = c.count
			return done
		}
		d.endUpgrade(c, wire.Status_CANCELLED)
		d.drop(c)
		d.tellHold(wire.Event_RELEASED, c)
		d.settle()
		return done
	}
	for _, a := range d.answers {
		if a.session == s.id && d.shown(a) && op.Token != 0 && a.said.Status == wire.Status_OK && a.said.Count == 0 && a.said.HoldId == op.HoldId && a.said.Token == op.Token {
			return done
		}
	}
	return says(wire.Status_NOT_HELD)
}

func (d *model) setValue(s *modelSession, op *wire.SetValue) *wire.Result {
	if len(op.Value) > int(d.limits.MaxValueBytes) {
		return says(wire.Status_RESOURCE_EXHAUSTED)
	}
	c := d.held(s, op.HoldId, op.Token)
	if c == nil {
		return says(wire.Status_NOT_HELD)
	}
	c.value = op.Value
	d.tellHold(wire.Event_VALUE_SET, c)
	return says(wire.Status_OK)
}

func (d *model) cancel(s *modelSession, op *wire.Cancel) *wire.Result {
	for _, c := range d.of(s.id) {
		if c.token == 0 && c.seq == op.AcquireSeq {
			return d.giveUp(c, wire.Status_CANCELLED)
		}
		if c.upgrade != nil && c.upgrade.seq == op.AcquireSeq {
			return d.giveUp(c, wire.Status_CANCELLED)
		}
	}
	if a := d.recall(s.id, op.AcquireSeq); a != nil {
		return d.repeat(a)
	}
	for _, c := range d.of(s.id) {
		if c.seq == op.AcquireSeq {
			return d.grantOf(c)
		}
	}
	return says(wire.Status_NOT_FOUND)
}

// giveUp ends a wait, of a claim or of an upgrade.
func (d *model) giveUp(c *modelClaim, why wire.Status_Code) *wire.Result {
	var said *wire.Result
	if c.upgrade != nil {
		said = d.endUpgrade(c, why)
	} else {
		d.drop(c)
		d.tellCancelled(c, why)
		said = d.rewrite(c.session, c.seq, &wire.Result{Status: why, HoldId: c.id})
		d.endLease(c)
	}
	d.settle()
	return said
}

func (d *model) timeout(op *wire.TimeoutWait) *wire.Result {
	c := d.claim(op.WaitId)
	if c == nil || c.over {
		return says(wire.Status_NOT_FOUND)
	}
	generation, forever := c.waits, c.forever
	if c.upgrade != nil {
		generation, forever = c.upgrade.generation, c.upgrade.forever
	}
	switch {
	case op.Term != d.term, op.Generation != generation:
		return says(wire.Status_FAILED_PRECONDITION)
	case c.token != 0 && c.upgrade == nil:
		return d.grantOf(c)
	case forever:
		return says(wire.Status_FAILED_PRECONDITION)
	}
	return d.giveUp(c, wire.Status_TIMEOUT)
}
