package model

import (
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// waitTTL is the TTL in milliseconds of a lease that waits, and of its grant until that is confirmed.
const waitTTL = 5_000

// openLease opens a session together with its only acquire.
func (d *Model) openLease(op *wire.OpenLease, digest uint64) *wire.Result {
	old := d.byHash(op.GetSecretHash())
	if old != nil && old.Identity == d.who() && old.Leased && old.recall(1).Digest == digest {
		return d.repeatLease(old)
	}
	for _, l := range op.Acquire.Locks {
		if !d.May(d.who(), wire.Verb_LOCK, l.Name) {
			return says(wire.Status_PERMISSION_DENIED)
		}
	}
	switch {
	case old != nil && old.Identity != d.who():
		return says(wire.Status_PERMISSION_DENIED)
	case old != nil:
		return says(wire.Status_INVALID_ARGUMENT)
	case d.Suspended != 0:
		return says(wire.Status_UNAVAILABLE)
	}
	if len(d.Live) >= int(d.Limits.MaxSessions) || !d.roomForSession(d.who()) {
		return says(wire.Status_RESOURCE_EXHAUSTED)
	}
	s := d.begin(op.SecretHash, op.TtlMs, op.Client)
	s.Leased = true
	if len(op.OwnerValue) > 0 {
		s.ByValue, s.Value = true, string(op.OwnerValue)
	}
	if !d.affords(s, 0, roomToShrink) {
		d.leave(s)
		d.Opened--
		return says(wire.Status_RESOURCE_EXHAUSTED)
	}
	before := d.News
	d.tellOpened(s)
	opened := d.News[len(d.News)-1]
	asked := proto.CloneOf(op.Acquire)
	asked.Owner = 0
	answer := d.acquire(s, 1, asked)
	if answer.Status != wire.Status_GRANTED && answer.Status != wire.Status_QUEUED {
		d.leave(s)
		d.News = before
		d.Opened--
		return answer
	}
	d.note(s, 1, digest, answer)
	if answer.Status == wire.Status_QUEUED {
		s.Later, s.TTL = s.TTL, waitTTL
		opened.TtlMs = waitTTL
	}
	answer.SessionId = s.ID
	return answer
}

func (d *Model) repeatLease(s *Session) *wire.Result {
	a := s.recall(1)
	if a.Said.Status == wire.Status_QUEUED {
		d.prolong(s)
	}
	answer := d.repeat(a)
	answer.SessionId = s.ID
	return answer
}

func (d *Model) prolong(s *Session) {
	s.Generation++
	s.Remaining = 0
	d.tell(&wire.Event{
		Type: wire.Event_SESSION_EXTENDED, SessionId: s.ID, Identity: s.Identity, Generation: s.Generation, TtlMs: s.TTL,
		Leased: true, ByValue: s.ByValue,
	})
}

// tellOpened emits the event that a lease's session has been opened.
func (d *Model) tellOpened(s *Session) {
	d.tell(&wire.Event{
		Type: wire.Event_SESSION_OPENED, SessionId: s.ID, Identity: s.Identity, Generation: 1, TtlMs: s.TTL,
		Leased: true, ByValue: s.ByValue,
	})
}

// confirmLease starts the time of a lease that had to wait, once.
func (d *Model) confirmLease(op *wire.ConfirmLease) *wire.Result {
	s := d.byHash(op.SecretHash)
	if s == nil || !s.Leased {
		return says(wire.Status_NOT_HELD)
	}
	c := d.Of(s.ID)[0]
	if c.Token == 0 || c.ID != op.HoldId {
		return says(wire.Status_NOT_HELD)
	}
	if s.Identity != d.who() || s.Later != 0 && !d.mayOn(s.Identity, wire.Verb_LOCK, c) {
		return says(wire.Status_PERMISSION_DENIED)
	}
	if s.Later != 0 {
		d.startTTL(s, s.Later)
	}
	a := s.recall(1)
	answer := d.repeat(a)
	answer.SessionId, answer.Digest, answer.Name = s.ID, a.Digest, c.Locks[0].Name
	return answer
}

// startTTL gives a hold its own time, which is not that of a wait.
func (d *Model) startTTL(s *Session, ttl uint32) {
	s.TTL, s.Later = ttl, 0
	d.prolong(s)
}

// endLease ends the session of a lease whose claim has ended.
func (d *Model) endLease(c *Claim) {
	s := d.Session(c.Session)
	if s == nil || !s.Leased {
		return
	}
	d.leave(s)
	d.tell(&wire.Event{Type: wire.Event_SESSION_CLOSED, SessionId: s.ID, Identity: s.Identity, Generation: s.Generation, Leased: true})
}

func (d *Model) extendLease(op *wire.ExtendLease) *wire.Result {
	s := d.byHash(op.SecretHash)
	if s == nil || !s.Leased {
		return says(wire.Status_NOT_HELD)
	}
	c := d.Of(s.ID)[0]
	if c.Token == 0 || c.ID != op.HoldId {
		return says(wire.Status_NOT_HELD)
	}
	if s.Identity != d.who() || !d.mayOn(s.Identity, wire.Verb_LOCK, c) {
		return says(wire.Status_PERMISSION_DENIED)
	}
	if s.ByValue && op.TtlMs != 0 && !d.validKeyTTL(op.TtlMs) {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	ttl := s.TTL
	if s.Later != 0 {
		ttl = s.Later
	}
	if op.TtlMs != 0 {
		ttl = op.TtlMs
	}
	d.startTTL(s, ttl)
	return &wire.Result{Status: wire.Status_OK, SessionId: s.ID}
}

func (d *Model) releaseLease(op *wire.ReleaseLease) *wire.Result {
	s := d.byHash(op.SecretHash)
	if s == nil || !s.Leased {
		return says(wire.Status_NOT_HELD)
	}
	c := d.Of(s.ID)[0]
	if op.HoldId != 0 && op.HoldId != c.ID {
		return says(wire.Status_NOT_HELD)
	}
	if s.Identity != d.who() {
		return says(wire.Status_PERMISSION_DENIED)
	}
	d.drop(c)
	if c.Token != 0 {
		d.tellHold(wire.Event_RELEASED, c)
	} else {
		d.tellCancelled(c, wire.Status_CANCELLED)
		d.tellDigest(s.recall(1))
	}
	d.endLease(c)
	d.grantReady()
	return &wire.Result{Status: wire.Status_OK, SessionId: s.ID}
}
