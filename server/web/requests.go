package web

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
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

// granted tells whether the request's latest outcome is a grant.
func (s *Server) granted(key visitKey) (granted bool) {
	s.replica.View(func(m *fsm.Machine) {
		res, known := m.Outcome(key.session, key.seq)
		granted = known && res.GetStatus() == wire.Status_GRANTED
	})
	return granted
}

// holds tells whether the hold lives in what is applied here.
func (s *Server) holds(name string, hold uint64) (lives bool) {
	s.replica.View(func(m *fsm.Machine) {
		lock, _ := m.GetLock(&wire.GetLockRequest{Name: name, QueueLimit: 1})
		for _, h := range lock.GetHolders() {
			lives = lives || h.GetHoldId() == hold
		}
	})
	return lives
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

// cancelAbandoned ends an acquire that nobody waits for; if its grant came first, the
// hold is released. Nobody was told of it.
func (s *Server) cancelAbandoned(key visitKey) {
	ctx, stop := context.WithTimeout(context.Background(), cancelTimeout)
	defer stop()
	log := s.log.With("session", key.session, "seq", key.seq)
	res := s.propose(ctx, &wire.Command{
		SessionId: key.session, Seq: cancelSeq | key.seq,
		Op: &wire.Command_Cancel{Cancel: &wire.Cancel{AcquireSeq: key.seq}},
	})
	if res.GetStatus() == wire.Status_GRANTED {
		res = s.propose(ctx, &wire.Command{
			SessionId: key.session, Seq: releaseSeq | key.seq,
			Op: &wire.Command_Release{Release: &wire.Release{HoldId: res.GetHoldId(), Token: res.GetToken()}},
		})
	}
	switch res.GetStatus() {
	case wire.Status_NOT_LEADER, wire.Status_UNAVAILABLE, wire.Status_UNCERTAIN, wire.Status_RESOURCE_EXHAUSTED, wire.Status_INTERNAL:
		log.Warn("an acquire whose caller went away could not be cancelled: it ends with its own time or its session",
			"status", res.GetStatus().String(), "message", res.GetMessage())
	default:
		log.Info("ended an acquire whose caller went away", "outcome", res.GetStatus().String())
	}
}
