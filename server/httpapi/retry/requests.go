package httpapi

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/httpapi/pending"
	"github.com/quorumlock/quorumlock/server/internal/lease"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Sequence numbers from cancelSeq on are reserved for the port. It cancels and releases what a caller
// abandoned with requests of the caller's session, whose numbers must not collide with the caller's own.
const (
	cancelSeq  = uint64(1) << 62
	releaseSeq = uint64(1) << 63
)

// checkSeq checks the sequence number, which makes a retry recognizable.
func checkSeq(seq, ackedBelow uint64) error {
	switch {
	case seq == 0:
		return apierror.New(wire.Status_INVALID_ARGUMENT, "seq is missing: number the session's requests from 1 on, and send a retry with the number it had")
	case seq >= cancelSeq, ackedBelow >= cancelSeq:
		return apierror.New(wire.Status_INVALID_ARGUMENT, "seq and ackedBelow must be below 2^62: number the session's requests from 1 on")
	}
	return nil
}

// latest returns the latest outcome under a visit's sequence number or secret, or nil if there is none. It
// may belong to another request.
func (s *Server) latest(key pending.Key) (res *wire.Result) {
	s.replica.View(func(m *fsm.Machine) {
		session, seq := key.Session, key.Seq
		if key.IsLease() {
			leased, _ := m.SessionBySecret(key.Lease[:])
			session, seq = leased.ID, lease.Seq
		}
		res, _ = m.Outcome(session, seq)
	})
	return res
}

// granted reports whether the request's latest outcome is a grant.
func (s *Server) granted(key pending.Key) bool {
	res := s.latest(key)
	return res.GetStatus() == wire.Status_GRANTED && res.GetDigest() == key.Digest
}

// held returns the hold as its session sees it, or nil if it has ended in the applied state.
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

// A session's window keeps the outcomes of requests that waited until each is acknowledged by number. An HTTP
// client acknowledges only "everything below this mark", so answered collects the numbers. It searches
// downwards from the mark until gapEnds consecutive numbers are unknown, from which it follows that earlier
// requests have acknowledged the rest. It returns at most maxAnswers numbers.
const (
	gapEnds    = 64
	maxAnswers = 1_024
)

func (s *Server) finalSeqs(session, below uint64) (acked []uint64) {
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

// cancelTimeout bounds the cancelling of an abandoned acquire.
const cancelTimeout = 5 * time.Second

// cancelAbandoned ends an acquire without remaining callers. No caller was told of its grant.
func (s *Server) cancelAbandoned(key pending.Key) {
	if res := s.latest(key); res != nil && res.GetDigest() != key.Digest {
		return // the number or the secret belongs to another request, so this one was refused
	}
	ctx, stop := context.WithTimeout(identity.NewContext(context.Background(), &wire.Caller{Identity: key.Identity}), cancelTimeout)
	defer stop()
	log := s.log.With("session", key.Session, "seq", key.Seq)
	var res *wire.Result
	if key.IsLease() {
		log = s.log.With("lease", true)
		res = s.propose(ctx, &wire.Command{Caller: &wire.Caller{Identity: key.Identity}, Op: &wire.Command_ReleaseLease{ReleaseLease: &wire.ReleaseLease{SecretHash: key.Lease[:]}}})
	} else {
		res = s.undo(ctx, key)
	}
	switch res.GetStatus() {
	case wire.Status_NOT_LEADER, wire.Status_UNAVAILABLE, wire.Status_UNCERTAIN, wire.Status_RESOURCE_EXHAUSTED, wire.Status_INTERNAL:
		log.Warn("cannot cancel an abandoned acquire: it ends by its timeout or with its session",
			"status", res.GetStatus().String(), "message", res.GetMessage())
	default:
		log.Info("ended an abandoned acquire", "outcome", res.GetStatus().String())
	}
}

// undo cancels an acquire or an upgrade. If it was already granted, undo releases the hold or
// downgrades it to shared. A hold has one token, whatever its number of locks.
func (s *Server) undo(ctx context.Context, key pending.Key) *wire.Result {
	res := s.propose(ctx, &wire.Command{
		SessionId: key.Session, Seq: cancelSeq | key.Seq,
		Op: &wire.Command_Cancel{Cancel: &wire.Cancel{AcquireSeq: key.Seq}},
	})
	if res.GetStatus() != wire.Status_GRANTED || res.GetToken() == key.From {
		return res // nothing was granted, or the hold was already exclusive
	}
	cmd := &wire.Command{SessionId: key.Session, Seq: releaseSeq | key.Seq}
	if key.From == 0 {
		cmd.Op = &wire.Command_Release{Release: &wire.Release{HoldId: res.GetHoldId(), Token: res.GetToken()}}
	} else {
		cmd.Op = &wire.Command_Downgrade{Downgrade: &wire.Downgrade{HoldId: res.GetHoldId(), Token: res.GetToken()}}
	}
	return s.propose(ctx, cmd)
}
