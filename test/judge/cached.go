package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// cacheUse is a cached hold, with what its session granted under it.
type cacheUse struct {
	grant *wire.Event
	// holds are those that applications saw, in the order of their tokens. local are those without the first token: the
	// session granted them itself.
	holds, local []*history.Hold
	// recalled is when the session's client learned that it must not grant the hold any more, released when it first
	// requested the release, or history.Never.
	recalled, released time.Duration
	// by is the message by which it learned that.
	by string
}

// cacheUses are all cached holds, in the order of their tokens.
type cacheUses []*cacheUse

// with returns the hold whose range has the token; nil if no cached one does.
func (all cacheUses) with(token uint64) *cacheUse {
	i, found := slices.BinarySearchFunc(all, token, func(u *cacheUse, token uint64) int { return cmp.Compare(u.grant.Token, token) })
	if !found {
		i--
	}
	if i < 0 || token-all[i].grant.Token >= uint64(all[i].grant.Tokens) {
		return nil
	}
	return all[i]
}

// caches returns the cached holds that the log granted.
func (r *replay) caches() cacheUses {
	if r.cached != nil {
		return r.cached
	}
	all, byID := cacheUses{}, map[uint64]*cacheUse{}
	for _, e := range r.grants() {
		if e.Tokens > 0 {
			u := &cacheUse{grant: e, recalled: history.Never, released: history.Never}
			all, byID[e.HoldId] = append(all, u), u
		}
	}
	slices.SortFunc(all, func(a, b *cacheUse) int { return cmp.Compare(a.grant.Token, b.grant.Token) })
	for _, h := range r.in.History.Holds() {
		if u := all.with(h.Token); u != nil {
			u.holds = append(u.holds, h)
		}
	}
	for _, u := range all {
		slices.SortStableFunc(u.holds, func(a, b *history.Hold) int { return cmp.Compare(a.Token, b.Token) })
		u.local = u.holds
		if len(u.local) > 0 && u.local[0].Token == u.grant.Token {
			u.local = u.local[1:]
		}
	}
	learn(r.in.History, byID)
	r.cached = all
	return all
}

// learn adds what clients learned about their cached holds, and when they requested their release.
func learn(h *history.History, byID map[uint64]*cacheUse) {
	recall := func(id uint64, at time.Duration, by any) {
		if u := byID[id]; u != nil && at < u.recalled {
			u.recalled, u.by = at, fmt.Sprint(by)
		}
	}
	for _, record := range h.Records {
		if p := record.Push; p != nil {
			recall(p.Push.GetHoldNotice().GetHoldId(), p.At, p.Push)
			recall(p.Push.GetHoldLost().GetHoldId(), p.At, p.Push)
		}
	}
	for _, op := range h.Ops() {
		if u := byID[op.Request.GetRelease().GetHoldId()]; u != nil {
			u.released = min(u.released, op.Call)
		}
		if op.Kind != "attach" || op.Outcome != history.OK {
			continue
		}
		stands := map[uint64]bool{}
		for _, held := range op.Result().GetSession().GetHolds() {
			if stands[held.HoldId] = true; held.Wanted || held.Revocation != nil {
				recall(held.HoldId, op.Return, held)
			}
		}
		for id, u := range byID {
			if u.grant.SessionId == op.Session && u.grant.Revision <= op.Result().GetRevision() && !stands[id] {
				recall(id, op.Return, op.Result())
			}
		}
	}
}

// cachedHolds checks what sessions granted locally. That each token is one that the log issued to that session for that
// lock, and that nobody else holds the lock meanwhile, is checked by holds.
func cachedHolds(r *replay) (faults []string) {
	sessions, heard := r.in.History.Sessions(), r.heard()
	for _, u := range r.caches() {
		faults = append(faults, r.inTurn(u)...)
		for i, h := range u.holds {
			if h.Ended-r.in.Bounds.Slack > u.released {
				faults = append(faults, fmt.Sprintf("%s counted on %s, and requested its release at %v", h.Client, show(h), u.released))
			}
			if h.Token == u.grant.Token {
				continue
			}
			from := h.Asked // the earliest time at which it may have been granted
			if i > 0 {
				from = max(from, u.holds[i-1].Ended)
			}
			faults = append(faults, r.allowed(u, h, from, heard[h.Session], sessions[h.Session].TTL)...)
		}
	}
	slices.Sort(faults)
	return faults
}

// inTurn checks that the holds were granted one after the other, and the local ones in the order in which their callers
// arrived.
func (r *replay) inTurn(u *cacheUse) (faults []string) {
	for i := 1; i < len(u.holds); i++ {
		a, b := u.holds[i-1], u.holds[i]
		switch {
		case a.Token == b.Token:
			faults = append(faults, fmt.Sprintf("token %d is that of %s %s and of %s %s", a.Token, a.Client, show(a), b.Client, show(b)))
		case b.Granted < a.Ended:
			faults = append(faults, fmt.Sprintf("%s has %s, which was granted before the end of %s", b.Client, show(b), show(a)))
		case a.Token != u.grant.Token && b.Asked+r.in.Bounds.Slack < a.Asked:
			faults = append(faults, fmt.Sprintf("%s arrived at %v for %s, before %v, and had to wait for %s", b.Client, b.Asked, show(b), a.Asked, show(a)))
		}
	}
	return faults
}

// allowed checks that the session could grant a local hold, which it did at from or later.
func (r *replay) allowed(u *cacheUse, h *history.Hold, from time.Duration, heard []proof, ttl time.Duration) (faults []string) {
	if from-r.in.Bounds.Slack > u.recalled {
		faults = append(faults, fmt.Sprintf("%s has %s, granted locally at %v or later, after the recall at %v by %s", h.Client, show(h), from, u.recalled, u.by))
	}
	last := time.Duration(0)
	if i, _ := slices.BinarySearchFunc(heard, h.Granted+1, func(p proof, at time.Duration) int { return cmp.Compare(p.heard, at) }); i > 0 {
		last = heard[i-1].sent
	}
	if from >= last+ttl/2+r.in.Bounds.Slack {
		faults = append(faults, fmt.Sprintf("%s has %s, granted locally at %v or later; the last request that was answered had been sent at %v, TTL %v", h.Client, show(h), from, last, ttl))
	}
	return faults
}

// proof is when a session's client heard that the session was alive at sent.
type proof struct{ sent, heard time.Duration }

// heard returns the proofs by session, in the order in which they were heard. Each has the latest sent so far.
func (r *replay) heard() map[uint64][]proof {
	all := map[uint64][]proof{}
	for _, op := range r.in.History.Ops() {
		if op.Outcome != history.OK || !history.Proves(op.Result().GetStatus()) {
			continue
		}
		id := op.Session
		if op.Kind == "open_session" {
			id = op.Result().GetSession().GetSessionId()
		}
		all[id] = append(all[id], proof{op.Call, op.Return})
	}
	for _, of := range all {
		slices.SortFunc(of, func(a, b proof) int { return cmp.Compare(a.heard, b.heard) })
		for i := 1; i < len(of); i++ {
			of[i].sent = max(of[i].sent, of[i-1].sent)
		}
	}
	return all
}

// acquireOf returns what a request or command of a session acquires; nil if nothing.
func acquireOf(m interface {
	GetAcquire() *wire.Acquire
	GetAcquireCached() *wire.AcquireCached
}) *wire.Acquire {
	if op := m.GetAcquireCached().GetAcquire(); op != nil {
		return op
	}
	return m.GetAcquire()
}
