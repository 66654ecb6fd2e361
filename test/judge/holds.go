package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// claimed is a hold as an application saw it, with what the log says about it.
type claimed struct {
	*history.Hold
	// forced is the revision at which an operator forced it away; 0 if none did.
	forced uint64
}

// holds checks what applications believed: every hold is in the log, none outlasts its expiry, and no two
// conflicting ones are held at the same time. The holder of a hold that was forced away is notified
// immediately, but possibly after the next hold is granted: in between, only tokens protect, as for a client
// that was stopped on purpose.
func holds(r *replay) (faults []string) {
	granted, ended, releases, caches := r.grants(), r.endings(), r.keyReleases(), r.caches()
	byLock := map[string][]claimed{}
	for _, h := range r.in.History.Holds() {
		h = r.identified(h, granted)
		e := granted[h.Token]
		if u := caches.with(h.Token); u != nil {
			e = u.grant
		}
		if e == nil && (r.in.Snapshot == nil || h.Revision >= r.first) {
			faults = append(faults, fmt.Sprintf("%s has %s, and the log has no such grant", h.Client, show(h)))
			continue
		}
		if e != nil {
			faults = append(faults, differs(h, e)...)
		}
		end := ended[cmp.Or(e.GetToken(), h.Token)]
		if sent, released := releases[revisionOf(end)]; h.Value != "" && released {
			if h.Ended = min(h.Ended, sent); h.Ended <= h.Granted {
				continue
			}
		}
		if h.Released && end == nil && e != nil && e.Tokens == 0 {
			faults = append(faults, fmt.Sprintf("%s: %s was released, and is held by the log", h.Client, show(h)))
		}
		faults = append(faults, r.outlasts(h, end)...)
		c := claimed{Hold: h}
		if end != nil && end.events[0].Type == wire.Event_FORCED {
			c.forced = end.revision
		}
		if !h.Unguarded {
			for _, l := range h.Locks {
				byLock[l.Lock] = append(byLock[l.Lock], c)
			}
		}
	}
	limits := r.limits()
	for name, all := range byLock {
		faults = append(faults, r.conflicts(name, all, limits[name])...)
	}
	slices.Sort(faults)
	return faults
}

// identified returns the hold of a key with what its client did not learn: an answered request for the key tells which
// grant it is. Other holds are returned as they are.
func (r *replay) identified(h *history.Hold, granted map[uint64]*wire.Event) *history.Hold {
	if h.Value == "" {
		return h
	}
	known := *h
	for _, p := range r.matchKeys().pairs {
		k := p.request
		if acquires(k) && k.Value == h.Value && k.Lock == h.Locks[0].Lock && h.Asked <= k.Call && k.Return <= h.Granted {
			if h.Token != 0 && h.Token != p.effect.token {
				continue
			}
			known.Token = p.effect.token
		}
	}
	if e := granted[known.Token]; e != nil && r.owners[e.SessionId].value == h.Value {
		known.Session, known.ID, known.Revision = e.SessionId, e.HoldId, e.Revision
	} else {
		known.Token = 0 // of somebody else
	}
	return &known
}

// keyReleases returns when the releases of keys were sent, by the revision at which they took effect. A client gives its
// hold up by sending one, even if it gets no reply: redsync releases after a try that failed, and tries again with the
// same value, so that the release may end the hold of the later try.
func (r *replay) keyReleases() map[uint64]time.Duration {
	all := map[uint64]time.Duration{}
	for _, p := range r.matchKeys().pairs {
		if p.request.Action == history.ReleaseKey && p.effect.done {
			all[p.effect.revision] = p.request.Call
		}
	}
	return all
}

// revisionOf returns the revision of a step; 0 for nil.
func revisionOf(s *step) uint64 {
	if s == nil {
		return 0
	}
	return s.revision
}

// acquires reports whether a request has acquired a key.
func acquires(k *history.KeyRequest) bool {
	return k.Done && (k.Action == history.AcquireKey || k.Action == history.AwaitKey)
}

func show(h *history.Hold) string {
	return fmt.Sprintf("%v under token %d from %v to %v", h.Locks, h.Token, h.Granted, h.Ended)
}

// grants returns all grants by their token.
func (r *replay) grants() map[uint64]*wire.Event {
	all := map[uint64]*wire.Event{}
	for _, s := range r.steps {
		for _, e := range s.events {
			if e.Type == wire.Event_GRANTED {
				all[e.Token] = e
			}
		}
	}
	return all
}

// endings returns the steps that ended holds, each with only that event, by token.
func (r *replay) endings() map[uint64]*step {
	all := map[uint64]*step{}
	for _, s := range r.steps {
		for _, e := range s.events {
			switch e.Type {
			case wire.Event_RELEASED, wire.Event_EXPIRED, wire.Event_FORCED:
				one := s
				one.events = []*wire.Event{e}
				all[e.Token] = &one
			}
		}
	}
	return all
}

// differs compares a hold with its grant. What the application could not know is 0.
func differs(h *history.Hold, e *wire.Event) []string {
	names := namesOf(e)
	other := h.ID != 0 && h.ID != e.HoldId || h.Session != 0 && h.Session != e.SessionId || len(names) != len(h.Locks)
	for _, l := range h.Locks {
		other = other || !slices.Contains(names, l.Lock)
	}
	if other {
		return []string{fmt.Sprintf("%s has %s as %d of session %d, by the log it is %v", h.Client, show(h), h.ID, h.Session, e)}
	}
	return nil
}

// outlasts checks a hold that expired against the leader's timestamp: a running client has given it up
// before.
func (r *replay) outlasts(h *history.Hold, end *step) []string {
	if end == nil || h.Unguarded || !r.in.Bounds.Stamps || end.events[0].Type != wire.Event_EXPIRED {
		return nil
	}
	if h.Ended > end.at+stampRound+r.in.Bounds.Slack {
		return []string{fmt.Sprintf("%s counted on %s; it expired at %v", h.Client, show(h), end.at)}
	}
	return nil
}

// conflicts finds incompatible holds of one lock that overlap.
func (r *replay) conflicts(name string, all []claimed, limit uint64) (faults []string) {
	slices.SortStableFunc(all, func(a, b claimed) int { return cmp.Compare(a.Granted, b.Granted) })
	var present []claimed
	for _, c := range all {
		present = slices.DeleteFunc(present, func(o claimed) bool { return o.Ended-r.slack(o) <= c.Granted })
		together := []claimed{c}
		for _, o := range present {
			if !excused(o, c) {
				together = append(together, o)
			}
		}
		if !fit(name, together, limit) {
			var texts []string
			for _, o := range together {
				texts = append(texts, o.Client+" "+show(o.Hold))
			}
			faults = append(faults, fmt.Sprintf("%s is held at %v by all of %q", name, c.Granted, texts))
		}
		if c.Ended > c.Granted {
			present = append(present, c)
		}
	}
	return faults
}

// slack returns by how much the end of a hold may have been recorded late. That of a key is not when its client noticed
// it, but the time that was promised.
func (r *replay) slack(c claimed) time.Duration {
	if c.Value != "" {
		return 0
	}
	return r.in.Bounds.Slack
}

// excused reports whether one of two holds was forced away before the other was granted, or both are the same
// hold under two tokens.
func excused(a, b claimed) bool {
	return a.forced != 0 && a.forced <= b.Revision || b.forced != 0 && b.forced <= a.Revision || a.ID != 0 && a.ID == b.ID
}

// limits returns the largest limit that each semaphore ever had. A resize leaves existing holds alone.
func (r *replay) limits() map[string]uint64 {
	all := map[string]uint64{}
	for _, s := range r.steps {
		if op := s.cmd.GetResize(); op != nil && s.said.Status == wire.Status_OK {
			all[op.Name] = max(all[op.Name], op.Limit)
		}
	}
	return all
}

// fit reports whether these holds of a lock may coexist.
func fit(name string, all []claimed, limit uint64) bool {
	sum := uint64(0)
	for _, c := range all {
		for _, l := range c.Locks {
			if l.Lock != name {
				continue
			}
			sum += l.Permits
			limit = max(limit, l.Limit)
			if l.Mode == wire.Mode_EXCLUSIVE && len(all) > 1 {
				return false
			}
		}
	}
	return limit == 0 || sum <= limit
}

// stampRound is the precision of timestamps, which are whole milliseconds.
const stampRound = time.Millisecond
