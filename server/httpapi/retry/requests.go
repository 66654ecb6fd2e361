package retry

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/internal/pending"
	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Sequence numbers from cancelSeq on are reserved for the port. It cancels and releases what a caller
// abandoned with requests of the caller's session, whose numbers must not collide with the caller's own.
const (
	cancelSeq  = uint64(1) << 62
	releaseSeq = uint64(1) << 63
)

// Replica is the part of the node that is needed here.
type Replica interface {
	// View runs f on the applied state. f must be short and read-only.
	View(f func(*fsm.Machine))
}

// Requests are the numbered requests of sessions, as the applied state of the node knows them. It is safe for concurrent
// use.
type Requests struct {
	replica Replica
	propose func(context.Context, *wire.Command) *wire.Result
	log     hclog.Logger
}

// New returns the requests of a node. propose executes a command and returns its result.
func New(replica Replica, propose func(context.Context, *wire.Command) *wire.Result, log hclog.Logger) *Requests {
	return &Requests{replica: replica, propose: propose, log: log}
}

// CheckSeq checks the sequence number, which makes a retry recognizable.
func CheckSeq(seq, ackedBelow uint64) error {
	switch {
	case seq == 0:
		return apierror.New(wire.Status_INVALID_ARGUMENT, "seq is missing: number the session's requests from 1 on, and send a retry with the number it had")
	case seq >= cancelSeq, ackedBelow >= cancelSeq:
		return apierror.New(wire.Status_INVALID_ARGUMENT, "seq and ackedBelow must be below 2^62: number the session's requests from 1 on")
	}
	return nil
}

// latest returns the latest outcome under a request's sequence number, or nil if there is none. It may belong to
// another request.
func (r *Requests) latest(key pending.Key) (res *wire.Result) {
	r.replica.View(func(m *fsm.Machine) { res, _ = m.Outcome(key.Session, key.Seq) })
	return res
}

// Granted reports whether the request's latest outcome is a grant.
func (r *Requests) Granted(key pending.Key) bool {
	res := r.latest(key)
	return res.GetStatus() == wire.Status_GRANTED && res.GetDigest() == key.Digest
}

// Held returns the hold as its session sees it, or nil if it has ended in the applied state.
func (r *Requests) Held(session, hold uint64) (found *wire.HeldLock) {
	r.replica.View(func(m *fsm.Machine) {
		for _, h := range m.HoldsOf(session) {
			if h.GetHoldId() == hold {
				found = h
			}
		}
	})
	return found
}

// A session's window keeps the outcomes of requests that waited until each is acknowledged by number. An HTTP
// client acknowledges only "everything below this mark", so Final collects the numbers. It searches
// downwards from the mark until GapEnds consecutive numbers are unknown, from which it follows that earlier
// requests have acknowledged the rest. It returns at most maxAnswers numbers.
const (
	GapEnds    = 64
	maxAnswers = 1_024
)

// Final returns the numbers below a mark whose outcomes are final.
func (r *Requests) Final(session, below uint64) (acked []uint64) {
	if below <= 1 {
		return nil
	}
	r.replica.View(func(m *fsm.Machine) {
		for seq, gap := below-1, 0; seq > 0 && gap < GapEnds && len(acked) < maxAnswers; seq-- {
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

// CancelTimeout bounds the cancelling of an abandoned acquire.
const CancelTimeout = 5 * time.Second

// Cancel ends an acquire without remaining callers. No caller was told of its grant.
func (r *Requests) Cancel(key pending.Key) {
	if res := r.latest(key); res != nil && res.GetDigest() != key.Digest {
		return // the number belongs to another request, so this one was refused
	}
	ctx, stop := context.WithTimeout(identity.NewContext(context.Background(), &wire.Caller{Identity: key.Identity}), CancelTimeout)
	defer stop()
	log := r.log.With("session", key.Session, "seq", key.Seq)
	switch res := r.undo(ctx, key); res.GetStatus() {
	case wire.Status_NOT_LEADER, wire.Status_UNAVAILABLE, wire.Status_UNCERTAIN, wire.Status_RESOURCE_EXHAUSTED, wire.Status_INTERNAL:
		log.Warn("cannot cancel an abandoned acquire: it ends by its timeout or with its session",
			"status", res.GetStatus().String(), "message", res.GetMessage())
	default:
		log.Info("ended an abandoned acquire", "outcome", res.GetStatus().String())
	}
}

// undo cancels an acquire or an upgrade. If it was already granted, undo releases the hold or
// downgrades it to shared. A hold has one token, whatever its number of locks.
func (r *Requests) undo(ctx context.Context, key pending.Key) *wire.Result {
	res := r.propose(ctx, &wire.Command{
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
	return r.propose(ctx, cmd)
}
