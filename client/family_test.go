package client

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// The locks of the fake: all modes, semaphores, several locks at once, upgrades and bounds. It does not
// implement deadlocks, orders or limits.

type fakeLock struct {
	holders, queue []*claim
	upgrader       *claim
	limit          uint64
}

// claim is a wait and, after its grant, a hold.
type claim struct {
	session    *fakeSession
	seq, id    uint64
	token      uint64
	owner      uint64
	locks      []*wire.LockRequest
	held       bool
	count      uint32
	value      []byte
	upgradeSeq uint64 // set while it waits to become exclusive
	maxHold    uint32
	bound      timer // of its max_hold
	grace      timer // of its revocation
	notify     bool
	wanted     bool
	revocation *wire.Revocation
	revision   uint64
	tokens     uint32 // of a cached hold
}

func (v *service) claims() []*claim {
	seen := make(map[*claim]bool)
	for _, l := range v.locks {
		for _, k := range slices.Concat(l.holders, l.queue) {
			seen[k] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b *claim) int { return int(a.id) - int(b.id) })
}

// claimOf returns the session's hold with that id and token, or nil.
func (v *service) claimOf(s *fakeSession, id, token uint64) *claim {
	if k := v.holds[id]; k != nil && k.has(token) && (s == nil || k.session == s) {
		return k
	}
	return nil
}

func (k *claim) heldLock() *wire.HeldLock {
	return &wire.HeldLock{
		Name: k.locks[0].GetName(), HoldId: k.id, Token: k.token, Seq: k.seq, Revision: k.revision, Locks: cloned(k.locks),
		Count: k.count, MaxHoldMs: k.maxHold, Revocation: k.told(), Wanted: k.wanted, Tokens: k.tokens,
	}
}

// cloned returns copies for an answer, which is written later.
func cloned(locks []*wire.LockRequest) (copies []*wire.LockRequest) {
	for _, r := range locks {
		copies = append(copies, proto.CloneOf(r))
	}
	return copies
}

// told returns the revocation as an attach reports it, with a clock that differs from that of the push.
func (k *claim) told() *wire.Revocation {
	if k.revocation == nil {
		return nil
	}
	r := proto.CloneOf(k.revocation)
	r.RevokedUnixMs -= 5
	return r
}

// exclusive reports whether the claim holds or requests the lock exclusively.
func (k *claim) exclusive() bool { return k.locks[0].GetMode() == wire.Mode_EXCLUSIVE }

// fits reports whether a claim is compatible with all holders of a lock.
func (l *fakeLock) fits(k *claim, r *wire.LockRequest) bool {
	used := max(r.GetPermits(), 1)
	for _, h := range l.holders {
		for _, held := range h.locks {
			if held.GetName() != r.GetName() {
				continue
			}
			if l.limit == 0 && (held.GetMode() != wire.Mode_SHARED || r.GetMode() != wire.Mode_SHARED) {
				return false
			}
			used += max(held.GetPermits(), 1)
		}
	}
	return l.upgrader == nil && (l.limit == 0 || used <= l.limit)
}

func (v *service) lockOf(r *wire.LockRequest) *fakeLock {
	l := v.locks[r.GetName()]
	if l == nil {
		l = &fakeLock{limit: r.GetLimit()}
		v.locks[r.GetName()] = l
	}
	return l
}

// plant makes a claim hold its locks unconditionally.
func (v *service) plant(k *claim) {
	k.held, k.count = true, 1
	v.holds[k.id] = k
	for _, r := range k.locks {
		l := v.lockOf(r)
		l.holders = append(l.holders, k)
	}
}

func (v *service) acquire(s *fakeSession, seq uint64, a *wire.Acquire, tokens uint32) *wire.Result {
	k := &claim{
		session: s, seq: seq, id: v.revision, owner: a.GetOwner(), maxHold: a.GetMaxHoldMs(),
		notify: a.GetNotify(), value: a.GetValue(), tokens: tokens,
	}
	for _, r := range a.GetLocks() {
		if r.GetName() == "" {
			return &wire.Result{Status: wire.Status_INVALID_ARGUMENT, Message: "the name is empty"}
		}
		k.locks = append(k.locks, proto.CloneOf(r))
	}
	if refusal := v.owned(k, a.GetReentrant()); refusal != nil {
		return refusal
	}
	if v.free(k, true) {
		return v.grant(k)
	}
	if a.GetWaitMs() == 0 && !a.GetWaitForever() {
		return status(wire.Status_NOT_ACQUIRED)
	}
	for _, r := range k.locks {
		l := v.lockOf(r)
		l.queue = append(l.queue, k)
		v.want(l)
	}
	s.waited[seq] = true
	v.emit(wire.Event_QUEUED, k)
	if !a.GetWaitForever() {
		v.later(a.GetWaitMs(), func() { v.endWait(k, wire.Status_TIMEOUT) })
	}
	return &wire.Result{Status: wire.Status_QUEUED, HoldId: k.id, Position: uint64(len(v.lockOf(k.locks[0]).queue)), Holders: v.lockOf(k.locks[0]).holderInfos()}
}

// owned answers an acquire of a lock that its owner already holds or waits for.
func (v *service) owned(k *claim, reentrant bool) *wire.Result {
	for _, r := range k.locks {
		l := v.locks[r.GetName()]
		if l == nil {
			continue
		}
		if l.limit != r.GetLimit() {
			return status(wire.Status_MISMATCH)
		}
		for _, h := range l.holders {
			if h.session != k.session || h.owner != k.owner {
				continue
			}
			if reentrant && (h.exclusive() || h.locks[0].GetMode() == r.GetMode()) {
				h.count++
				return &wire.Result{Status: wire.Status_GRANTED, HoldId: h.id, Token: h.token, Count: h.count}
			}
			return status(wire.Status_ALREADY_HELD)
		}
	}
	return nil
}

// free reports whether a claim can be granted. A newcomer does not overtake anyone, and a waiter must be
// first in every queue.
func (v *service) free(k *claim, newcomer bool) bool {
	for _, r := range k.locks {
		l := v.locks[r.GetName()]
		if l == nil {
			continue
		}
		if newcomer && len(l.queue) > 0 || !newcomer && l.queue[0] != k || !l.fits(k, r) {
			return false
		}
	}
	return true
}

func (v *service) grant(k *claim) *wire.Result {
	k.token, k.revision = v.token+1, v.revision
	v.token += uint64(max(1, k.tokens))
	v.plant(k)
	if k.tokens == 0 {
		v.bound(k, k.maxHold)
	}
	v.emit(wire.Event_GRANTED, k)
	return &wire.Result{Status: wire.Status_GRANTED, HoldId: k.id, Token: k.token, Seq: k.seq, Revision: v.revision, Count: 1}
}

// later runs a step of the leader after a delay.
func (v *service) later(ms uint32, step func()) {
	time.AfterFunc(time.Duration(ms)*time.Millisecond, func() {
		v.f.set(func() { v.revision++; step() })
	})
}

// bound restarts a hold's own time.
func (v *service) bound(k *claim, ms uint32) {
	v.restart(&k.bound, k, ms, wire.HoldLost_EXPIRED)
}

// grace starts the grace of a revocation.
func (v *service) grace(k *claim) {
	v.restart(&k.grace, k, k.revocation.GetGraceMs(), wire.HoldLost_FORCED)
}

// timer is one of a hold's own deadlines.
type timer struct {
	started int
	endsAt  time.Duration // 0 if there is none
}

func (v *service) restart(t *timer, k *claim, ms uint32, reason wire.HoldLost_Reason) {
	t.started++
	t.endsAt = 0
	if ms == 0 {
		return
	}
	t.endsAt = time.Since(v.f.start) + time.Duration(ms)*time.Millisecond
	started := t.started
	v.later(ms, func() {
		if k.held && t.started == started {
			v.endHold(k, reason, k.revocation.GetReason())
		}
	})
}

// left returns the time until the earlier of a hold's own deadlines.
func (v *service) left(k *claim) (ms uint64, bounded bool) {
	end := k.bound.endsAt
	if g := k.grace.endsAt; g != 0 && (end == 0 || g < end) {
		end = g
	}
	return uint64((end - time.Since(v.f.start)) / time.Millisecond), end != 0
}

// restartBounds restarts all bounds, as a new leader does.
func (v *service) restartBounds() {
	for _, k := range v.claims() {
		if k.held {
			if k.tokens == 0 || k.bound.endsAt != 0 {
				v.bound(k, k.maxHold)
			}
			v.grace(k)
		}
	}
}

// endHold ends a hold by time or force.
func (v *service) endHold(k *claim, reason wire.HoldLost_Reason, message string) {
	if v.f.onLost != nil {
		v.f.onLost(k, reason)
	}
	if reason == wire.HoldLost_FORCED {
		v.emit(wire.Event_FORCED, k)
	} else {
		v.emit(wire.Event_EXPIRED, k)
	}
	v.remove(k)
	k.push(&wire.Push{Body: &wire.Push_HoldLost{HoldLost: &wire.HoldLost{
		HoldId: k.id, Token: k.token, Reason: reason, Message: message,
	}}})
	v.grantAll()
}

func (k *claim) push(p *wire.Push) {
	if p.SessionId = k.session.id; k.session.conn != nil {
		k.session.conn.push(p)
	}
}

// remove removes a claim from its locks and ends its upgrade.
func (v *service) remove(k *claim) {
	v.endUpgrade(k, wire.Status_NOT_HELD)
	k.held = false
	delete(v.holds, k.id)
	k.bound.started++
	k.grace.started++
	is := func(other *claim) bool { return other == k }
	for _, r := range k.locks {
		if l := v.locks[r.GetName()]; l != nil {
			l.holders = slices.DeleteFunc(l.holders, is)
			l.queue = slices.DeleteFunc(l.queue, is)
			v.changed = append(v.changed, r.GetName())
		}
	}
}

// grantAll grants to the waiters that are now first, for all changed locks.
func (v *service) grantAll() {
	for len(v.changed) > 0 {
		name := v.changed[0]
		v.changed = v.changed[1:]
		if l := v.locks[name]; l != nil && v.grantLock(name, l) {
			v.changed = append(v.changed, name)
		}
	}
	v.changed = nil
}

func (v *service) grantLock(name string, l *fakeLock) bool {
	if u := l.upgrader; u != nil {
		if len(l.holders) > 1 {
			return false
		}
		l.upgrader = nil
		seq := u.upgradeSeq
		u.upgradeSeq = 0
		v.complete(u.session, seq, v.promote(u))
		return true
	}
	if len(l.holders)+len(l.queue) == 0 {
		delete(v.locks, name)
		return false
	}
	if len(l.queue) == 0 || !v.free(l.queue[0], false) {
		return false
	}
	k := l.queue[0]
	v.remove(k)
	v.complete(k.session, k.seq, v.grant(k))
	for _, r := range k.locks {
		if next := v.locks[r.GetName()]; len(next.queue) > 0 {
			v.want(next)
		}
	}
	return true
}

// complete delivers its outcome to a waiting request.
func (v *service) complete(s *fakeSession, seq uint64, result *wire.Result) {
	result.Seq, result.Revision = seq, v.revision
	s.outcomes[seq] = s.echo(result)
	if s.lease != nil {
		v.answerLease(s, result)
	}
	if s.conn != nil {
		s.conn.push(&wire.Push{SessionId: s.id, Body: &wire.Push_Outcome{Outcome: proto.CloneOf(result)}})
	}
}

// want notifies the holders of a lock that it has a waiter.
func (v *service) want(l *fakeLock) {
	for _, k := range l.holders {
		if (k.notify || k.tokens > 0) && !k.wanted {
			k.wanted = true
			v.notice(k)
		}
	}
}

func (v *service) release(s *fakeSession, r *wire.Release) *wire.Result {
	k := v.claimOf(s, r.GetHoldId(), r.GetToken())
	switch {
	case k == nil:
		return status(wire.Status_NOT_HELD)
	case k.count > 1:
		k.count--
		return &wire.Result{Status: wire.Status_OK, Count: k.count}
	}
	v.emit(wire.Event_RELEASED, k)
	v.remove(k)
	v.grantAll()
	return status(wire.Status_OK)
}

// drop frees a lock without notifying its holder.
func (v *service) drop(name string) {
	v.remove(v.locks[name].holders[0])
	v.grantAll()
}

func (v *service) promote(k *claim) *wire.Result {
	v.token++
	k.token, k.locks[0].Mode = v.token, wire.Mode_EXCLUSIVE
	return &wire.Result{Status: wire.Status_GRANTED, HoldId: k.id, Token: k.token, Count: k.count}
}

func (v *service) upgrade(s *fakeSession, seq uint64, u *wire.Upgrade) *wire.Result {
	k := v.claimOf(s, u.GetHoldId(), u.GetToken())
	switch {
	case k == nil:
		return status(wire.Status_NOT_HELD)
	case len(k.locks) > 1 || k.locks[0].GetLimit() > 0:
		return status(wire.Status_INVALID_ARGUMENT)
	case k.exclusive():
		return &wire.Result{Status: wire.Status_GRANTED, HoldId: k.id, Token: k.token, Count: k.count}
	case k.upgradeSeq != 0:
		return status(wire.Status_ALREADY_QUEUED)
	}
	l := v.lockOf(k.locks[0])
	switch {
	case l.upgrader != nil:
		return status(wire.Status_UPGRADE_CONFLICT)
	case len(l.holders) == 1:
		return v.promote(k)
	case u.GetWaitMs() == 0 && !u.GetWaitForever():
		return status(wire.Status_NOT_ACQUIRED)
	}
	l.upgrader, k.upgradeSeq = k, seq
	s.waited[seq] = true
	v.want(l)
	if !u.GetWaitForever() {
		v.later(u.GetWaitMs(), func() {
			if k.upgradeSeq == seq {
				v.endUpgrade(k, wire.Status_TIMEOUT)
				v.grantAll()
			}
		})
	}
	return &wire.Result{Status: wire.Status_QUEUED, HoldId: k.id, Position: 1}
}

// endUpgrade ends an upgrade's wait without a grant, if there is one.
func (v *service) endUpgrade(k *claim, code wire.Status_Code) {
	if k.upgradeSeq == 0 {
		return
	}
	seq := k.upgradeSeq
	k.upgradeSeq = 0
	v.lockOf(k.locks[0]).upgrader = nil
	v.changed = append(v.changed, k.locks[0].GetName())
	v.complete(k.session, seq, status(code))
}

// endWait ends a wait without a grant, if it still waits.
func (v *service) endWait(k *claim, code wire.Status_Code) {
	if l := v.locks[k.locks[0].GetName()]; l != nil && slices.Contains(l.queue, k) {
		v.emit(wire.Event_CANCELLED, k)
		v.remove(k)
		v.complete(k.session, k.seq, status(code))
		v.grantAll()
	}
}

func (v *service) downgrade(s *fakeSession, d *wire.Downgrade) *wire.Result {
	k := v.claimOf(s, d.GetHoldId(), d.GetToken())
	if k == nil {
		return status(wire.Status_NOT_HELD)
	}
	k.locks[0].Mode = wire.Mode_SHARED
	v.changed = append(v.changed, k.locks[0].GetName())
	v.grantAll()
	return status(wire.Status_OK)
}

func (v *service) extend(s *fakeSession, e *wire.Extend) *wire.Result {
	k := v.claimOf(s, e.GetHoldId(), e.GetToken())
	ms := e.GetMaxHoldMs()
	switch {
	case k == nil:
		return status(wire.Status_NOT_HELD)
	case k.revocation.GetGraceMs() > 0, ms == 0 && k.maxHold == 0:
		return status(wire.Status_FAILED_PRECONDITION)
	case ms == 0:
		ms = k.maxHold
	}
	k.maxHold = ms
	v.bound(k, ms)
	return status(wire.Status_OK)
}

func (v *service) cancel(s *fakeSession, seq uint64) *wire.Result {
	for _, k := range v.claims() {
		switch {
		case k.session != s:
		case k.held && k.upgradeSeq == seq:
			v.endUpgrade(k, wire.Status_CANCELLED)
			v.grantAll()
			return status(wire.Status_CANCELLED)
		case !k.held && k.seq == seq:
			v.endWait(k, wire.Status_CANCELLED)
			return status(wire.Status_CANCELLED)
		}
	}
	if known := s.outcomes[seq]; known != nil {
		return proto.CloneOf(known)
	}
	return status(wire.Status_NOT_FOUND)
}
