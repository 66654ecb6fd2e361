package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// keyID identifies requests that do the same: a Redis client gives each lock that it acquires a value of its own.
type keyID struct {
	action      history.KeyAction
	lock, value string
}

// nodeRequest identifies a change of keys with all its retries: those of a node's Redis port. A node that was removed
// and added again, with an empty disk, counts its starts from 1 again.
type nodeRequest struct {
	node      string
	removals  int
	boot, seq uint64
}

// nodeRequestOf returns the request of a change of keys; 0 for other commands.
func (r *replay) nodeRequestOf(cmd *wire.Command, said *wire.Result) nodeRequest {
	switch op := cmd.Op.(type) {
	case *wire.Command_DropMember:
		if said.Status == wire.Status_OK {
			r.removals[op.DropMember.Id]++
		}
	case *wire.Command_ChangeKeys:
		change := op.ChangeKeys
		return nodeRequest{change.NodeId, r.removals[change.NodeId], change.Boot, change.Seq}
	}
	return nodeRequest{}
}

// keyEffect is an outcome of a request for a key in the log: its only effect, or a refusal.
type keyEffect struct {
	keyID
	done     bool
	revision uint64
	// token is that of the key, as far as the outcome has one.
	token uint64
	// from and to bound the time of the outcome.
	from, to time.Duration
}

// keyActions are the actions of the requests that clients of this package make.
var keyActions = map[wire.ChangeKeys_Action]history.KeyAction{
	wire.ChangeKeys_ACQUIRE: history.AcquireKey,
	wire.ChangeKeys_EXTEND:  history.ExtendKey,
	wire.ChangeKeys_RELEASE: history.ReleaseKey,
}

// keyEffects returns the outcomes of all requests for keys in the order of the log, and faults where a request that was
// repeated took effect again. A repeated request may be refused although it took effect, if its key has ended since: a
// client must not take that for held.
func (r *replay) keyEffects() (all []keyEffect, faults []string) {
	w, endings, done := r.bounds(), r.endings(), map[nodeRequest]uint64{}
	add := func(s step, id keyID, took bool, token uint64) {
		from, to := r.during(s, w)
		all = append(all, keyEffect{id, took, s.revision, token, from, to})
	}
	for _, s := range r.steps {
		if op := s.cmd.GetChangeKeys(); op != nil {
			token, repeated := done[s.request]
			if repeated && len(s.events) > 0 {
				faults = append(faults, fmt.Sprintf("request %v of a Redis port took effect at revision %d again: %v",
					s.request, s.revision, s.events))
			}
			took, refused := s.said.Status == wire.Status_GRANTED || s.said.Status == wire.Status_OK, refusedKey[s.said.Status]
			if end := endings[token]; repeated && refused && (end == nil || end.revision > s.revision) {
				faults = append(faults, fmt.Sprintf("request %v of a Redis port took effect, and its repetition at revision %d was refused while the key was held",
					s.request, s.revision))
			}
			if took && !repeated || refused {
				for _, name := range op.Names {
					add(s, keyID{keyActions[op.Action], name, string(op.Value)}, took, s.said.Token)
				}
			}
			if took && !repeated {
				done[s.request] = s.said.Token
			}
		}
		for _, e := range s.events {
			by := r.owners[e.SessionId]
			if by.action == history.AwaitKey && (e.Type == wire.Event_GRANTED || e.Type == wire.Event_CANCELLED) {
				add(s, by, e.Type == wire.Event_GRANTED, e.Token)
			}
		}
		if op := s.cmd.GetOpenLease(); len(op.GetOwnerValue()) > 0 && s.said.Status == wire.Status_NOT_ACQUIRED {
			add(s, keyID{history.AwaitKey, op.Acquire.Locks[0].Name, string(op.OwnerValue)}, false, 0)
		}
	}
	return all, faults
}

// refusedKey are the outcomes of requests for keys that are not as a request presumes.
var refusedKey = map[wire.Status_Code]bool{
	wire.Status_NOT_ACQUIRED: true, wire.Status_NOT_HELD: true, wire.Status_NOT_FOUND: true,
}

// during bounds the time at which a step was requested and answered.
func (r *replay) during(s step, w bounds) (from, to time.Duration) {
	from, to = w.around(s.revision)
	if r.in.Bounds.Stamps {
		tolerance := stampRound + r.in.Bounds.Slack
		from, to = max(from, s.at-tolerance), min(to, s.at+tolerance)
	}
	return from, to
}

// own remembers which request opened a key's session.
func (r *replay) own(s step) {
	for _, e := range s.events {
		if e.Type != wire.Event_SESSION_OPENED {
			continue
		}
		switch op := s.cmd.Op.(type) {
		case *wire.Command_ChangeKeys:
			// A session's number does not tell its key, but the grant that follows it does.
			r.owners[e.SessionId] = keyID{history.AcquireKey, grantOf(s, e.SessionId), string(op.ChangeKeys.Value)}
		case *wire.Command_OpenLease:
			if value := op.OpenLease.OwnerValue; len(value) > 0 {
				r.owners[e.SessionId] = keyID{history.AwaitKey, op.OpenLease.Acquire.Locks[0].Name, string(value)}
			}
		}
	}
}

// grantOf returns the lock that a step granted to a session.
func grantOf(s step, session uint64) string {
	for _, e := range s.events {
		if e.Type == wire.Event_GRANTED && e.SessionId == session {
			return e.Lock
		}
	}
	return ""
}

// keyPair is a request of a client with its outcome in the log.
type keyPair struct {
	request *history.KeyRequest
	effect  keyEffect
}

// keyMatch relates what Redis clients asked for to the log.
type keyMatch struct {
	pairs []keyPair
	// unasked are effects that no client asked for at that time, missing are answers without an outcome in the log.
	unasked []keyEffect
	missing []*history.KeyRequest
	faults  []string
}

// matchKeys assigns an outcome in the log to each request. Requests that do the same are told apart by their times:
// each outcome belongs to that request in flight which was answered first. This finds an assignment if there is one.
func (r *replay) matchKeys() *keyMatch {
	if r.keys != nil {
		return r.keys
	}
	effects, faults := r.keyEffects()
	m := &keyMatch{faults: faults}
	r.keys = m
	asked := map[keyID][]*history.KeyRequest{}
	for _, k := range r.in.History.KeyRequests() {
		id := keyID{k.Action, k.Lock, k.Value}
		if k.Action != history.ReadToken && k.Outcome != history.Fail && !r.beforeLog(k) {
			asked[id] = append(asked[id], k)
		}
	}
	for _, all := range asked {
		slices.SortStableFunc(all, func(a, b *history.KeyRequest) int { return cmp.Compare(a.Return, b.Return) })
	}
	for _, e := range effects {
		all := asked[e.keyID]
		i := slices.IndexFunc(all, func(k *history.KeyRequest) bool { return e.answers(k) })
		switch {
		case i >= 0:
			m.pairs = append(m.pairs, keyPair{all[i], e})
			asked[e.keyID] = slices.Delete(all, i, i+1)
		case e.done && !r.lapsed(e, all):
			m.unasked = append(m.unasked, e)
		}
	}
	for _, all := range asked {
		for _, k := range all {
			if k.Outcome == history.OK {
				m.missing = append(m.missing, k)
			}
		}
	}
	return m
}

// lapsed reports whether a key expired while one of the requests that may have acquired it was in flight. Its node has
// not learned of the grant in time and has repeated the request, and the reply is that of the repetition.
func (r *replay) lapsed(e keyEffect, asked []*history.KeyRequest) bool {
	end := r.endings()[e.token]
	if end == nil || end.events[0].Type != wire.Event_EXPIRED {
		return false
	}
	ended, _ := r.bounds().around(end.revision)
	return slices.ContainsFunc(asked, func(k *history.KeyRequest) bool { return k.Call <= e.to && ended <= k.Return })
}

// answers reports whether an outcome can be that of a request. One of unknown outcome counts only as having taken
// effect: whether it was refused does not matter.
func (e keyEffect) answers(k *history.KeyRequest) bool {
	if k.Outcome == history.OK && k.Done != e.done || k.Outcome == history.Unknown && !e.done {
		return false
	}
	return k.Call <= e.to && e.from <= k.Return && (k.Token == 0 || k.Token == e.token)
}

// beforeLog reports whether a request may precede the first entry of a log that begins with a snapshot.
func (r *replay) beforeLog(k *history.KeyRequest) bool {
	return r.in.Snapshot != nil && (len(r.steps) == 0 || k.Call <= r.steps[0].at+r.in.Bounds.Slack)
}

// certain returns the pairs of requests that are the only ones of their kind, and so are matched whatever their time.
func (m *keyMatch) certain(all []*history.KeyRequest) []keyPair {
	requests := map[keyID]int{}
	for _, k := range all {
		requests[keyID{k.Action, k.Lock, k.Value}]++
	}
	return slices.DeleteFunc(slices.Clone(m.pairs), func(p keyPair) bool { return requests[p.effect.keyID] > 1 })
}
