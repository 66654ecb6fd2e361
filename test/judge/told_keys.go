package judge

import (
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock/test/history"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// toldKeys checks what Redis clients were told: every reply is in the log, at a time between the request and the reply,
// and no request took effect more than once.
func toldKeys(r *replay) (faults []string) {
	m := r.matchKeys()
	faults = append(faults, m.faults...)
	for _, k := range m.missing {
		faults = append(faults, fmt.Sprintf("%s: %s, and the log has no such outcome", k.Client, showKey(k)))
	}
	for _, e := range m.unasked {
		if asked := r.requestsWith(e.value); len(asked) > 0 {
			faults = append(faults, fmt.Sprintf("revision %d: %s of %q took effect between %v and %v, and no client asked for it then: %q",
				e.revision, e.action, e.lock, e.from, e.to, asked))
		}
	}
	w, granted, ended := r.bounds(), r.grants(), r.endings()
	for _, k := range r.in.History.KeyRequests() {
		if k.Action == history.ReadToken && k.Done {
			faults = append(faults, r.toldToken(k, granted[k.Token], ended[k.Token], w)...)
		}
	}
	return faults
}

// requestsWith describes the requests of clients with a value. There are none if it is that of a program that the
// history does not know.
func (r *replay) requestsWith(value string) (all []string) {
	for _, k := range r.in.History.KeyRequests() {
		if k.Value == value {
			all = append(all, showKey(k))
		}
	}
	return all
}

func showKey(k *history.KeyRequest) string {
	return fmt.Sprintf("%s of %q with the value %q from %v to %v was answered %q",
		k.Action, k.Lock, k.Value, k.Call, k.Return, k.Reply)
}

// toldToken checks a token that a client read: the key had it at some time between the request and the reply.
func (r *replay) toldToken(k *history.KeyRequest, granted *wire.Event, end *step, w bounds) []string {
	if granted == nil || granted.Lock != k.Lock || r.owners[granted.SessionId].value != k.Value {
		if r.beforeLog(k) {
			return nil
		}
		return []string{fmt.Sprintf("%s: %s, by the log that is the token of %v", k.Client, showKey(k), granted)}
	}
	if from, _ := w.around(granted.Revision); from > k.Return {
		return []string{fmt.Sprintf("%s: %s, before its grant at revision %d", k.Client, showKey(k), granted.Revision)}
	}
	if end != nil {
		if _, to := w.around(end.revision); to < k.Call {
			return []string{fmt.Sprintf("%s: %s, after its end at revision %d", k.Client, showKey(k), end.revision)}
		}
	}
	return nil
}

// keyExpiries checks that no key expired before the TTL since its last acknowledged grant or extension was requested.
// Whether keys expire in time follows from the leaders' timestamps, as for other leases.
func keyExpiries(r *replay) (faults []string) {
	promised := map[uint64]keyPair{}
	until := func(p keyPair) time.Duration { return p.request.Call + p.request.TTL - drift(p.request.TTL) }
	for _, p := range r.matchKeys().pairs {
		if p.request.Outcome != history.OK || !p.request.Done || p.request.TTL == 0 {
			continue
		}
		if last, known := promised[p.effect.token]; !known || until(p) > until(last) {
			promised[p.effect.token] = p
		}
	}
	w := r.bounds()
	for token, end := range r.endings() {
		p, known := promised[token]
		if !known || end.events[0].Type != wire.Event_EXPIRED {
			continue
		}
		_, to := w.around(end.revision)
		if r.in.Bounds.Stamps {
			to = min(to, end.at+stampRound)
		}
		if to < until(p) {
			faults = append(faults, fmt.Sprintf("%s: the key expired by %v (revision %d), and %s with the TTL %v",
				p.request.Client, to, end.revision, showKey(p.request), p.request.TTL))
		}
	}
	return faults
}

// drift bounds by how much the clocks of client and leader may differ within a TTL.
func drift(ttl time.Duration) time.Duration { return max(ttl/100, 20*time.Millisecond) }
