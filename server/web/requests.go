package web

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/lease"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Sequence numbers from here on belong to the port: cancelling and releasing what a
// caller abandoned are requests of its session too, and must not meet its own numbers.
const (
	cancelSeq  = uint64(1) << 62
	releaseSeq = uint64(1) << 63
)

// checkSeq asks for what makes a retry recognisable.
func checkSeq(seq, ackedBelow uint64) error {
	switch {
	case seq == 0:
		return failure(wire.Status_INVALID_ARGUMENT, "seq is missing: number the session's requests from 1 on, and send a retry with the number it had")
	case seq >= cancelSeq, ackedBelow >= cancelSeq:
		return failure(wire.Status_INVALID_ARGUMENT, "seq and ackedBelow must be below 2^62: number the session's requests from 1 on")
	}
	return nil
}

// latest is the latest outcome under a visit's number or secret, nil if there is none. It
// may be another request's.
func (s *Server) latest(key visitKey) (res *wire.Result) {
	s.replica.View(func(m *fsm.Machine) {
		session, seq := key.session, key.seq
		if key.isLease() {
			leased, _ := m.SessionBySecret(key.lease[:])
			session, seq = leased.ID, lease.Seq
		}
		res, _ = m.Outcome(session, seq)
	})
	return res
}

// granted tells whether the request's latest outcome is a grant.
func (s *Server) granted(key visitKey) bool {
	res := s.latest(key)
	return res.GetStatus() == wire.Status_GRANTED && res.GetDigest() == key.digest
}

// held is the hold as its session sees it, nil if it has ended in what is applied here.
func (s *Server) held(session, hold uint64) (found *wire.HeldLock) {
	s.replica.View(func(m *fsm.Machine) {
		for _, h := range m.HoldsOf(session) {
			if h.GetHoldId() == hold {
				found = h
			}
		}
	})
	return found
}

// The window of a session keeps outcomes of requests that waited until each is
// acknowledged by name. An HTTP caller says only "everything below this mark", so the
// names are found here: downwards from the mark, until so many numbers in a row are
// forgotten that earlier requests must have acknowledged the rest.
const (
	gapEnds    = 64
	maxAnswers = 1_024
)

func (s *Server) answered(session, below uint64) (acked []uint64) {
	if below <= 1 {
		return nil
	}
	s.replica.View(func(m *fsm.Machine) {
		for seq, gap := below-1, 0; seq > 0 && gap < gapEnds && len(acked) < maxAnswers; seq-- {
			res, known := m.Outcome(session, seq)
			if !known {
				gap++
				continue
			}
			gap = 0
			if res.GetStatus() != wire.Status_QUEUED {
				acked = append(acked, seq)
			}
		}
	})
	return acked
}

// cancelTimeout bounds the cancelling of what was abandoned.
const cancelTimeout = 5 * time.Second

// cancelAbandoned ends what nobody waits for. Nobody was told of it.
func (s *Server) cancelAbandoned(key visitKey) {
	if res := s.latest(key); res != nil && res.GetDigest() != key.digest {
		return // the number or the secret is another request's: this one was refused
	}
	ctx, stop := context.WithTimeout(context.Background(), cancelTimeout)
	defer stop()
	log := s.log.With("session", key.session, "seq", key.seq)
	var res *wire.Result
	if key.isLease() {
		log = s.log.With("lease", true)
		res = s.propose(ctx, &wire.Command{Op: &wire.Command_ReleaseLease{ReleaseLease: &wire.ReleaseLease{SecretHash: key.lease[:]}}})
	} else {
		res = s.giveBack(ctx, key)
	}
	switch res.GetStatus() {
	case wire.Status_NOT_LEADER, wire.Status_UNAVAILABLE, wire.Status_UNCERTAIN, wire.Status_RESOURCE_EXHAUSTED, wire.Status_INTERNAL:
		log.Warn("an acquire whose caller went away could not be cancelled: it ends with its own time or its session",
			"status", res.GetStatus().String(), "message", res.GetMessage())
	default:
		log.Info("ended an acquire whose caller went away", "outcome", res.GetStatus().String())
	}
}

// giveBack cancels an acquire or an upgrade. If the grant came first, the hold is released
// or is made shared again: one hold of any number of locks, with one token.
func (s *Server) giveBack(ctx context.Context, key visitKey) *wire.Result {
	res := s.propose(ctx, &wire.Command{
		SessionId: key.session, Seq: cancelSeq | key.seq,
		Op: &wire.Command_Cancel{Cancel: &wire.Cancel{AcquireSeq: key.seq}},
	})
	if res.GetStatus() != wire.Status_GRANTED || res.GetToken() == key.from {
		return res // nothing was granted, or the hold was exclusive before
	}
	cmd := &wire.Command{SessionId: key.session, Seq: releaseSeq | key.seq}
	if key.from == 0 {
		cmd.Op = &wire.Command_Release{Release: &wire.Release{HoldId: res.GetHoldId(), Token: res.GetToken()}}
	} else {
		cmd.Op = &wire.Command_Downgrade{Downgrade: &wire.Downgrade{HoldId: res.GetHoldId(), Token: res.GetToken()}}
	}
	return s.propose(ctx, cmd)
}
