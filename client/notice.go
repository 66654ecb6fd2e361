package client

import (
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Notice reports that others want a hold. Each notice carries the complete state, so only the latest
// matters.
type Notice struct {
	// Wanted means that another owner waits for the lock. It is set only with [WithRevocation].
	Wanted bool
	// Revoked means that an operator asked for the hold, for the given Reason.
	Revoked bool
	Reason  string
	// Grace is the time from the revocation until the hold is forced away; 0 means never. The hold's
	// Remaining takes the rest of the grace into account.
	Grace time.Duration
}

// Revoked returns a channel that carries the latest notice about the hold after each change; a slow reader
// misses those in between. It is closed when the hold ends. There is one channel per hold.
func (h *Hold) Revoked() <-chan Notice {
	c := h.held.session.client
	c.mu.Lock()
	defer c.unlock()
	r := h.held.extra()
	if r.latest == nil {
		r.latest = make(chan Notice, 1)
		if r.notice != (Notice{}) {
			r.latest <- r.notice
		}
		if r.hushed || h.ended != nil {
			r.hushed = true
			close(r.latest)
		}
	}
	return r.latest
}

// stopNotices stops the notices of a hold that has ended and no longer watches its bound.
func (d *held) stopNotices() {
	if s := d.session; s.bounded != nil {
		if delete(s.bounded, d); len(s.bounded) == 0 {
			s.boundAt = never
		}
	}
	if r := d.rare; r != nil && !r.hushed {
		r.hushed = true
		if r.latest != nil {
			close(r.latest)
		}
	}
}

// noticed records a report from a node about a hold. until returns when a grace that starts with it ends. A
// push reports a new revocation. The answer to an attach repeats the last one, so there a revocation is new
// only if its reason or grace differs.
func (d *held) noticed(wanted bool, revocation *wire.Revocation, pushed bool, until func(grace uint32) time.Duration) {
	if !wanted && revocation == nil || d.gone != nil {
		return
	}
	r := d.extra()
	n, again := r.notice, false
	if revocation != nil {
		n.Revoked, n.Reason, n.Grace = true, revocation.GetReason(), graceOf(revocation)
		again = pushed || n != r.notice
	}
	if wanted && !n.Wanted {
		n.Wanted = true
	} else if !again {
		return
	}
	r.notice = n
	if again {
		r.revocations++
		if n.Grace > 0 {
			d.grace(until(revocation.GetGraceMs()))
			d.askGrace()
		}
	}
	d.deliver()
}

func graceOf(r *wire.Revocation) time.Duration {
	return time.Duration(r.GetGraceMs()) * time.Millisecond
}

// noticePushed handles a pushed notice and bounds its grace. The push does not say when the grace began; it
// was not before the last answered request was sent. If counting from there leaves less than half of the
// grace, half is assumed until the leader reports the rest, because on a live connection a push is not
// expected to take that long.
func (s *Session) noticePushed(n *wire.HoldNotice) {
	d := s.holds.find(n.GetHoldId())
	if d == nil {
		return
	}
	d.noticed(n.GetWanted(), n.GetRevocation(), true, func(grace uint32) time.Duration {
		half := time.Duration(grace) * time.Millisecond / 2
		return max(untilOf(s.proofAt, grace), s.client.clock.Now()+half)
	})
}

// askGrace asks the leader how much time the hold has left and counts that from the time the request was
// sent. It is the rest of the grace, unless the hold's bound ends earlier.
func (d *held) askGrace() {
	s, r := d.session, d.rare
	nth, grace := r.revocations, r.notice.Grace
	k := &call{kind: kindRead}
	k.request.Body = &wire.Request_VerifyToken{VerifyToken: &wire.VerifyTokenRequest{Name: d.name, Token: d.token.Load()}}
	k.after = func() {
		holder := k.response.GetVerifyToken().GetHolder()
		if k.err != nil || d.gone != nil || holder.GetHoldId() != d.id || holder.RemainingHoldMs == nil {
			return
		}
		if r.revocations == nth {
			left := time.Duration(holder.GetRemainingHoldMs()) * time.Millisecond
			d.grace(k.sentAt + left - margin(grace))
			r.expires = r.bounded && k.sentAt+left >= r.until
		}
	}
	s.client.submit(k)
}

// deliver delivers the notice to the channel, and to the function in a goroutine that exits when it has
// delivered the latest.
func (d *held) deliver() {
	r := d.rare
	if r.hushed {
		return
	}
	if r.latest != nil {
		select {
		case <-r.latest:
		default:
		}
		r.latest <- r.notice
	}
	r.news = r.call != nil
	if r.news && !r.calling {
		r.calling = true
		go d.session.client.callNotice(r)
	}
}

// callNotice calls the function until it has received the latest notice.
func (c *Client) callNotice(r *extras) {
	for {
		c.mu.Lock()
		if !r.news || r.hushed {
			r.calling = false
			c.unlock()
			return
		}
		r.news = false
		n := r.notice
		c.unlock()
		r.call(n)
	}
}

// holdLost handles a report that a hold ended while its session is alive.
func (s *Session) holdLost(lost *wire.HoldLost) {
	err := ErrHoldExpired
	if lost.GetReason() != wire.HoldLost_EXPIRED {
		err = forced(lost.GetMessage())
	}
	d := s.holds.find(lost.GetHoldId())
	if d == nil {
		if s.unanswered.n+len(s.waits) > 0 && len(s.early) < maxEarly {
			if s.early == nil {
				s.early = make(map[uint64]error)
			}
			s.early[lost.GetHoldId()] = err // its grant may still arrive
		}
		return
	}
	d.lose(err)
	if !d.releasing() {
		d.forget()
	}
}

// maxEarly bounds the holds whose loss was reported before their grant arrived.
const maxEarly = 4096

// lostAlready returns an error if an arriving grant is no longer held: because its loss was reported first,
// or because an attach showed that the hold is gone. The error is ErrHoldExpired if the hold's own bound
// may have passed by now.
func (s *Session) lostAlready(k *call, result *wire.Result) error {
	id := result.GetHoldId()
	if err := s.early[id]; err != nil {
		delete(s.early, id)
		return err
	}
	if s.resumed.holds != nil && result.GetRevision() <= s.resumed.revision && !s.resumed.holds[id] {
		if ms := k.acquired.acquire.MaxHoldMs; ms != 0 && s.client.clock.Now() >= untilOf(k.firstAt, ms) {
			return ErrHoldExpired
		}
		return errMissing
	}
	return nil
}
