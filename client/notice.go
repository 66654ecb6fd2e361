package client

import (
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Notice says that others want a hold. It tells all there is to know, so that only the
// latest matters.
type Notice struct {
	// Wanted: somebody waits for it. Told only with [WithRevocation].
	Wanted bool
	// Revoked: an operator asked for it, for Reason.
	Revoked bool
	Reason  string
	// Grace is how long after that the hold is forced away; 0 is never. What is left of it
	// is part of the hold's Remaining.
	Grace time.Duration
}

// Revoked carries the latest notice about the hold whenever there is news: whoever reads
// late misses those between. It is closed when the hold ends. There is one channel per
// hold.
func (h *Hold) Revoked() <-chan Notice {
	c := h.held.session.client
	c.mu.Lock()
	defer c.unlock()
	r := h.held.rarely()
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

// hush ends the notices of a hold that has ended, and its bound.
func (d *held) hush() {
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

// noticed books what a node said of a hold, and where a grace ends that begins with it.
// A push tells of a new revocation; an attach's answer repeats the last one, so that only
// another reason or grace there is new.
func (d *held) noticed(wanted bool, revocation *wire.Revocation, pushed bool, until func(grace uint32) time.Duration) {
	if !wanted && revocation == nil || d.gone != nil {
		return
	}
	r := d.rarely()
	n, anew := r.notice, false
	if revocation != nil {
		n.Revoked, n.Reason, n.Grace = true, revocation.GetReason(), graceOf(revocation)
		anew = pushed || n != r.notice
	}
	if wanted && !n.Wanted {
		n.Wanted = true
	} else if !anew {
		return
	}
	r.notice = n
	if anew {
		r.revocations++
		if n.Grace > 0 {
			d.grace(until(revocation.GetGraceMs()))
			d.askGrace()
		}
	}
	d.tell()
}

func graceOf(r *wire.Revocation) time.Duration {
	return time.Duration(r.GetGraceMs()) * time.Millisecond
}

// noticePushed bounds a grace that was pushed. Nobody says when it began: not before the
// last request that was answered earlier. If that would leave less than half of it, half
// of it is taken to be left, until the leader says how much there is: a push that takes
// that long is not expected on a connection that lives.
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

// askGrace asks the leader what is left of the hold, and counts that from the moment of
// asking. It is what is left of the grace unless the hold's bound passes before.
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

// tell hands the notice on: to the channel, and to the function in a goroutine that ends
// when there is no more to tell.
func (d *held) tell() {
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

// callNotice calls the function until it knows the latest.
func (c *Client) callNotice(r *rarity) {
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

// holdLost books that a hold ended while its session lives.
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
			s.early[lost.GetHoldId()] = err // its grant may still come
		}
		return
	}
	d.lose(err)
	if !d.releasing() {
		d.forget()
	}
}

// maxEarly bounds the holds that are known to be lost before they were known.
const maxEarly = 4096

// lostAlready says why a grant that arrives is not held any more, if so: the word of its
// end came first, or an attach has shown that it is gone. Nobody took it if its own bound
// may have passed by then.
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
