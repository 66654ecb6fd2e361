package model

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Session returns the open session with that ID; nil if there is none.
func (d *Model) Session(id uint64) *Session { return d.byID[id] }

func (d *Model) byHash(hash []byte) *Session {
	for _, s := range d.Live {
		if s.Hash == string(hash) {
			return s
		}
	}
	return nil
}

func (d *Model) open(op *wire.OpenSession) *wire.Result {
	old := d.byHash(op.SecretHash)
	if old != nil && old.Identity == d.who() && !old.Leased {
		return d.attach(old, op.Client.GetAddress())
	}
	if !d.mayAny(d.who(), wire.Verb_LOCK) || old != nil && old.Identity != d.who() {
		return says(wire.Status_PERMISSION_DENIED)
	}
	if old != nil {
		return says(wire.Status_INVALID_ARGUMENT)
	}
	if len(d.Live) >= int(d.Limits.MaxSessions) || !d.roomForSession(d.who()) {
		return says(wire.Status_RESOURCE_EXHAUSTED)
	}
	s := d.begin(op.SecretHash, op.TtlMs, op.Client)
	if !d.affords(s, 0, roomToShrink) {
		d.leave(s)
		d.Opened--
		return says(wire.Status_RESOURCE_EXHAUSTED)
	}
	d.tell(&wire.Event{Type: wire.Event_SESSION_OPENED, SessionId: s.ID, Identity: s.Identity, Generation: 1, TtlMs: s.TTL})
	return &wire.Result{Status: wire.Status_OK, Session: d.resume(s)}
}

func (d *Model) begin(hash []byte, ttl uint32, client *wire.ClientInfo) *Session {
	if ttl == 0 {
		ttl = d.Limits.DefaultTtlMs
	}
	d.Opened++
	s := &Session{ID: d.Opened, Generation: 1, Hash: string(hash), TTL: ttl, Client: client, Opened: d.wall, Identity: d.who()}
	d.Live = append(d.Live, s)
	d.byID[s.ID] = s
	return s
}

// leave removes a session from the list.
func (d *Model) leave(s *Session) {
	d.Live = slices.DeleteFunc(d.Live, func(o *Session) bool { return o == s })
	delete(d.byID, s.ID)
}

func (d *Model) attach(s *Session, address string) *wire.Result {
	s.Generation++
	if address != "" {
		client := &wire.ClientInfo{}
		if s.Client != nil {
			client = proto.CloneOf(s.Client)
		}
		client.Address, s.Client = address, client
	}
	d.tell(&wire.Event{Type: wire.Event_SESSION_ATTACHED, SessionId: s.ID, Identity: s.Identity, Generation: s.Generation, TtlMs: s.TTL})
	return &wire.Result{Status: wire.Status_OK, Session: d.resume(s)}
}

// resume returns all that a client needs to continue a session.
func (d *Model) resume(s *Session) *wire.SessionState {
	state := &wire.SessionState{SessionId: s.ID, TtlMs: s.TTL, Holds: d.HoldsOf(s.ID)}
	for _, a := range s.shown {
		if a.Waited && !a.acked {
			r := d.repeat(a)
			r.Seq, r.Holders = a.Seq, nil
			r.Digest, r.Name = a.Digest, d.nameOf(s.ID, r.HoldId)
			state.Outcomes = append(state.Outcomes, r)
		}
	}
	slices.SortFunc(state.Outcomes, func(a, b *wire.Result) int { return cmp.Compare(a.Seq, b.Seq) })
	return state
}

// HoldsOf returns a session's holds, as its client sees them.
func (d *Model) HoldsOf(session uint64) []*wire.HeldLock {
	var held []*wire.HeldLock
	for _, c := range d.Of(session) {
		if c.Token != 0 {
			held = append(held, &wire.HeldLock{
				Name: c.Locks[0].Name, HoldId: c.ID, Token: c.Token, Seq: c.Seq, Revision: c.Granted,
				Locks: d.liveRequests(c), Count: c.Count, MaxHoldMs: c.MaxHold, Generation: c.HoldGeneration,
				Revocation: c.Revoked, Wanted: c.wanted, Tokens: c.Tokens,
			})
		}
	}
	return held
}

// liveRequests returns the lock requests of a claim with the current limits of the locks.
func (d *Model) liveRequests(c *Claim) []*wire.LockRequest {
	var locks []*wire.LockRequest
	for _, l := range c.Locks {
		l = proto.CloneOf(l)
		l.Limit = d.Locks[l.Name].Limit
		locks = append(locks, l)
	}
	return locks
}

func (d *Model) expire(op *wire.ExpireSession) *wire.Result {
	s := d.Session(op.GetSessionId())
	if s == nil {
		return d.lost(op.GetSessionId())
	}
	if op.Term != d.Term || op.Generation != s.Generation {
		return says(wire.Status_FAILED_PRECONDITION)
	}
	d.end(s, wire.Event_SESSION_EXPIRED, "")
	return says(wire.Status_OK)
}

// end ends all claims of a session, in the order of their requests, and only then grants others. The reason is
// that of an operator who closes it.
func (d *Model) end(s *Session, what wire.Event_Type, reason string) {
	d.finish(s, what, reason)
	d.grantReady()
}

func (d *Model) finish(s *Session, what wire.Event_Type, reason string) {
	for _, c := range d.Of(s.ID) {
		switch {
		case c.Token == 0:
			d.drop(c)
			d.tellCancelled(c, wire.Status_SESSION_LOST)
		case what == wire.Event_SESSION_EXPIRED:
			d.endUpgrade(c, wire.Status_SESSION_LOST)
			d.tellHold(wire.Event_EXPIRED, c).Status = wire.Status_SESSION_LOST
			d.bury(c)
		case reason != "":
			d.endUpgrade(c, wire.Status_SESSION_LOST)
			d.tellHold(wire.Event_FORCED, c).Reason = reason
			d.bury(c)
		default:
			d.endUpgrade(c, wire.Status_SESSION_LOST)
			d.drop(c)
			d.tellHold(wire.Event_RELEASED, c)
		}
	}
	d.leave(s)
	d.tell(&wire.Event{Type: what, SessionId: s.ID, Identity: s.Identity, Generation: s.Generation, Leased: s.Leased, Reason: reason})
}
