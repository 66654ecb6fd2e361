package client

import (
	"bytes"
	"crypto/sha256"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// fakeLease belongs to an implicit session: its time, and the requests waiting for its outcome.
type fakeLease struct {
	waiting    []func(*wire.Result)
	endsAt     time.Duration // since the start; 0 while it waits
	generation int
}

func (v *service) leaseOf(secret []byte) *fakeSession {
	hash := sha256.Sum256(secret)
	for _, s := range v.sessions {
		if s.lease != nil && bytes.Equal(s.hash, hash[:]) {
			return s
		}
	}
	return nil
}

func (v *service) acquireLease(cn *fakeConn, req *wire.Request) *wire.Response {
	r := req.GetAcquireLease()
	s := v.leaseOf(r.GetSecret())
	if s == nil {
		hash := sha256.Sum256(r.GetSecret())
		v.lastID++
		s = &fakeSession{
			id: v.lastID, hash: hash[:], ttl: r.GetTtlMs(), lease: &fakeLease{},
			outcomes: make(map[uint64]*wire.Result), waited: make(map[uint64]bool), executed: make(map[uint64]int),
		}
		v.sessions[s.id] = s
		s.ask(1, req.Digest(), v.firstName(req))
		result := v.acquire(s, 1, r.GetAcquire(), 0)
		result.Seq, result.Revision = 1, v.revision
		s.echo(result)
		s.outcomes[1] = result
		if result.GetStatus() != wire.Status_QUEUED {
			v.answerLease(s, result)
		}
	}
	outcome := proto.CloneOf(s.outcomes[1])
	outcome.SessionId = s.id
	if outcome.GetStatus() != wire.Status_QUEUED {
		return respond(outcome)
	}
	s.lease.waiting = append(s.lease.waiting, func(result *wire.Result) { cn.answer(req, respond(result)) })
	return nil
}

// answerLease answers all requests that wait for a lease.
func (v *service) answerLease(s *fakeSession, result *wire.Result) {
	if result.GetStatus() == wire.Status_GRANTED {
		v.leaseBegins(s, s.ttl)
	} else {
		delete(v.sessions, s.id)
	}
	for _, deliver := range s.lease.waiting {
		outcome := proto.CloneOf(result)
		outcome.SessionId = s.id
		deliver(outcome)
	}
	s.lease.waiting = nil
}

// leaseBegins restarts a lease's time.
func (v *service) leaseBegins(s *fakeSession, ms uint32) {
	s.ttl = ms
	s.lease.generation++
	generation := s.lease.generation
	s.lease.endsAt = time.Since(v.f.start) + time.Duration(ms)*time.Millisecond
	v.later(ms, func() {
		if v.sessions[s.id] == s && s.lease.generation == generation {
			v.end(s)
		}
	})
}

func (v *service) extendLease(r *wire.ExtendLeaseRequest) *wire.Result {
	s := v.leaseOf(r.GetSecret())
	if s == nil || s.outcomes[1].GetStatus() != wire.Status_GRANTED || s.outcomes[1].GetHoldId() != r.GetHoldId() {
		return status(wire.Status_NOT_HELD)
	}
	ms := r.GetTtlMs()
	if ms == 0 {
		ms = s.ttl
	}
	v.leaseBegins(s, ms)
	return &wire.Result{Status: wire.Status_OK, SessionId: s.id, Revision: v.revision}
}

func (v *service) releaseLease(r *wire.ReleaseLeaseRequest) *wire.Result {
	s := v.leaseOf(r.GetSecret())
	if s == nil || r.GetHoldId() != 0 && s.outcomes[1].GetHoldId() != r.GetHoldId() {
		return status(wire.Status_NOT_HELD)
	}
	waiting := s.lease.waiting
	s.lease.waiting = nil
	v.end(s)
	for _, deliver := range waiting {
		deliver(&wire.Result{Status: wire.Status_CANCELLED, SessionId: s.id})
	}
	return &wire.Result{Status: wire.Status_OK, SessionId: s.id, Revision: v.revision}
}
