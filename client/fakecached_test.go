package client

import (
	"slices"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Cached holds of the fake, and the invariants of those of a client.

func cachedAcquires(s seen) bool { return s.req.GetAcquireCached() != nil }

// acquireOf returns the acquire in a request, or nil.
func acquireOf(req *wire.Request) *wire.Acquire {
	if op := req.GetAcquireCached(); op != nil {
		return op.GetAcquire()
	}
	return req.GetAcquire()
}

func (v *service) acquireCached(s *fakeSession, seq uint64, op *wire.AcquireCached) *wire.Result {
	if v.refuses != nil {
		return v.refuses
	}
	if op.GetTokens() == 0 || op.GetTokens() > mostTokens || op.GetIdleMs() == 0 || len(op.GetAcquire().GetLocks()) != 1 {
		return status(wire.Status_INVALID_ARGUMENT)
	}
	return v.acquire(s, seq, op.GetAcquire(), op.GetTokens())
}

// has reports whether a token is one of the hold's.
func (k *claim) has(token uint64) bool {
	return token >= k.token && token-k.token < uint64(max(1, k.tokens))
}

func (l *fakeLock) holderInfos() (holders []*wire.HolderInfo) {
	for _, k := range l.holders {
		holders = append(holders, &wire.HolderInfo{SessionId: k.session.id, HoldId: k.id})
	}
	return holders
}

// notice notifies a holder of the first waiter. The max_hold of a cached hold starts with that.
func (v *service) notice(k *claim) {
	if k.tokens > 0 && k.bound.endsAt == 0 {
		v.bound(k, k.maxHold)
	}
	k.push(&wire.Push{Body: &wire.Push_HoldNotice{HoldNotice: k.recall()}})
}

func (k *claim) recall() *wire.HoldNotice {
	return &wire.HoldNotice{HoldId: k.id, Token: k.token, Wanted: true}
}

// repeatRecalls repeats the notices of the session's cached holds for which others wait.
func (v *service) repeatRecalls(s *fakeSession) {
	var recalled []*claim
	for _, k := range v.holds {
		if k.session == s && k.held && k.tokens > 0 && k.wanted {
			recalled = append(recalled, k)
		}
	}
	slices.SortFunc(recalled, func(a, b *claim) int { return int(a.id) - int(b.id) })
	for _, k := range recalled {
		k.push(&wire.Push{Body: &wire.Push_HoldNotice{HoldNotice: k.recall()}})
	}
}

// cached checks the session's cached holds, and the calls that wait for them.
func (b *listCheck) cached(s *Session) {
	for name, l := range s.cached {
		b.that(l.name == name && l.session == s, "lock %s is kept as %s", l.name, name)
		for _, k := range b.list("waiting", &l.waiting) {
			b.that(!k.finished && k.sends == 0 && k.acquired.of == l, "a call waits locally for %s that does not", name)
		}
		b.that(l.hold != nil || l.asking != nil || l.waiting.n == 0, "%d calls wait for %s, and nothing happens", l.waiting.n, name)
		b.that(l.asking == nil || !l.asking.finished, "a call that is over decides about %s", name)
		calls, claims := s.callsFor(l)
		b.that(l.calls == calls && l.claims >= claims && l.claims <= calls, "%s counts %d calls and %d claims: there are %d and %d", name, l.calls, l.claims, calls, claims)
		if l.hold != nil {
			b.cachedHold(l, l.hold)
		}
	}
}

func (b *listCheck) cachedHold(l *cachedLock, r *cachedHold) {
	s := l.session
	b.that(r.lock == l && !r.over && !r.recalled && r.held.gone == nil, "the hold of %s is over", l.name)
	b.that(s.holds.find(r.held.id) == r.held, "the session does not know hold %d", r.held.id)
	used := r.held.token.Load() + 1
	b.that(r.next == used && used <= r.last+1, "%s: token %d follows %d, the last is %d", l.name, r.next, used-1, r.last)
	if r.idle() {
		b.that(l.waiting.n == 0 && r.next <= r.last, "%s is idle: %d calls wait, token %d of %d is next", l.name, l.waiting.n, r.next, r.last)
		b.that(s.idleAt <= r.usedAt+r.keepFor, "%s is idle until %v: the next look is at %v", l.name, r.usedAt+r.keepFor, s.idleAt)
	}
}

// callsFor counts the unfinished calls to the cluster for a lock, and those of them that wait there.
func (s *cachedLocks) callsFor(l *cachedLock) (calls, claims int) {
	for _, list := range []*callList{&s.session.unsent, &s.session.unanswered} {
		for _, k := range list.all() {
			if a := k.acquired; a != nil && a.of == l && &a.call == k {
				calls++
			}
		}
	}
	for _, k := range s.session.waits {
		if a := k.acquired; a != nil && a.of == l && &a.call == k {
			calls++
			claims++
		}
	}
	return calls, claims
}
