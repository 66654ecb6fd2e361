package keys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Change executes a change of keys exactly once. It fills in node_id, boot, seq and acked_below, and the label of the
// client. The caller is that of ctx. It returns ErrNoLeader, ErrUnknown, or the error of ctx; after an error of ctx, the
// change may have been executed. op must not be changed afterwards.
func (s *Service) Change(ctx context.Context, from identity.Sender, op *wire.ChangeKeys) (*wire.Result, error) {
	leave, refused := enter(&s.requests, s.cfg.MaxInFlight, "requests")
	if refused != nil {
		return refused, nil
	}
	defer leave()
	seq, err := s.window.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer s.window.end(seq)
	op.NodeId, op.Boot, op.Seq, op.AckedBelow = s.cfg.NodeID, s.window.boot, seq, s.window.lowest()
	if op.Client != nil {
		op.Client = labelled(op.Client, s.cfg.NodeID)
	}
	resp, err := s.do(ctx, from, &wire.KeyRequest{Body: &wire.KeyRequest_Change{Change: op}})
	return resp.GetResult(), err
}

// maxAddAttempts bounds how often AddTTL starts again because somebody else has extended the key.
const maxAddAttempts = 16

// AddTTL extends the only key of op by ttl_ms: that is added to what remains of the key's TTL. Results and errors are
// those of Change with EXTEND, and of Read.
func (s *Service) AddTTL(ctx context.Context, from identity.Sender, op *wire.ChangeKeys) (*wire.Result, error) {
	known, err := s.readOne(ctx, op)
	for attempt := 1; err == nil; attempt++ {
		res, err := s.Change(ctx, from, &wire.ChangeKeys{
			Action: wire.ChangeKeys_EXTEND, Names: op.GetNames(), Value: op.GetValue(), CompareBytes: op.GetCompareBytes(),
			TtlMs:   sumMs(known.GetRemainingMs(), op.GetTtlMs()),
			Version: versionOf(known),
		})
		if err != nil || res.GetStatus() != wire.Status_NOT_HELD {
			return res, err
		}
		now, err := s.readOne(ctx, op)
		if err != nil {
			return nil, err
		}
		if !now.GetOwn() || proto.Equal(versionOf(now), versionOf(known)) {
			return res, nil // it was not refused because of the version
		}
		if attempt == maxAddAttempts {
			return refusal(wire.Status_UNAVAILABLE, "nothing was done: the TTL is being extended by others all the time; try again"), nil
		}
		known = now
	}
	return nil, err
}

func (s *Service) readOne(ctx context.Context, op *wire.ChangeKeys) (*wire.KeyState, error) {
	keys, err := s.Read(ctx, op.GetNames()...)
	if err != nil {
		return nil, err
	}
	return keys[0], nil
}

func versionOf(k *wire.KeyState) *wire.KeyVersion {
	return &wire.KeyVersion{HoldId: k.GetHoldId(), Generation: k.GetGeneration()}
}

// sumMs adds durations in milliseconds. A sum that does not fit becomes the largest value, which is refused.
func sumMs(a, b uint32) uint32 { return uint32(min(uint64(a)+uint64(b), math.MaxUint32)) }

// Read returns the states of keys in the order of their names. It is linearizable. The states are shared and must not be
// changed. It returns ErrNoLeader, a *RefusedError, or the error of ctx.
func (s *Service) Read(ctx context.Context, names ...string) ([]*wire.KeyState, error) {
	resp, err := s.ask(ctx, &wire.KeyRequest{Body: &wire.KeyRequest_Read{Read: &wire.ReadKeys{Names: names}}})
	if err == nil && len(resp.GetKeys()) != len(names) {
		err = &RefusedError{refusal(wire.Status_INTERNAL, fmt.Sprintf("the leader has sent %d keys instead of %d", len(resp.GetKeys()), len(names)))}
	}
	return resp.GetKeys(), err
}

// Voters returns the number of other voters in contact with the leader. Errors are those of Read.
func (s *Service) Voters(ctx context.Context) (int, error) {
	resp, err := s.ask(ctx, &wire.KeyRequest{Body: &wire.KeyRequest_Voters{Voters: true}})
	return int(resp.GetVoters()), err
}

// ask executes a request that changes nothing.
func (s *Service) ask(ctx context.Context, req *wire.KeyRequest) (*wire.KeyResponse, error) {
	leave, refused := enter(&s.requests, s.cfg.MaxInFlight, "requests")
	if refused != nil {
		return nil, &RefusedError{refused}
	}
	defer leave()
	resp, err := s.do(ctx, identity.Sender{Identity: identity.FromContext(ctx).GetIdentity()}, req)
	switch {
	case errors.Is(err, ErrUnknown):
		return nil, ErrNoLeader
	case err == nil && resp.GetResult() != nil:
		return nil, &RefusedError{resp.GetResult()}
	}
	return resp, err
}

// Lock acquires locks and waits for them as op says. The caller is that of ctx. If ctx ends first, the wait ends, and
// what was acquired nevertheless is released. Errors are those of Change. open must not be changed afterwards.
func (s *Service) Lock(ctx context.Context, from identity.Sender, open *wire.OpenLease) (*wire.Result, error) {
	leave, refused := enter(&s.waits, s.cfg.MaxInFlight/2, "acquires")
	if refused != nil {
		return refused, nil
	}
	defer leave()
	if open.Client != nil {
		open.Client = labelled(open.Client, s.cfg.NodeID)
	}
	resp, err := s.do(ctx, from, &wire.KeyRequest{Body: &wire.KeyRequest_Lock{Lock: open}})
	gone := ctx.Err()
	if gone == nil && !errors.Is(err, ErrUnknown) {
		return resp.GetResult(), err
	}
	s.abandon(identity.FromContext(ctx), from, open)
	return nil, cmp.Or(gone, err)
}

// abandon releases in the background what an acquire whose caller has gone may have left behind.
func (s *Service) abandon(caller *wire.Caller, from identity.Sender, open *wire.OpenLease) {
	release := &wire.KeyRequest{Body: &wire.KeyRequest_Release{Release: &wire.ReleaseLease{SecretHash: open.GetSecretHash()}}}
	s.spawn(&s.releases, func() {
		ctx, stop := context.WithTimeout(identity.NewContext(s.life, caller), 2*s.cfg.Wait)
		defer stop()
		if _, err := s.do(ctx, from, release); err != nil {
			s.cfg.Logger.Warn("an acquire whose client has gone may hold its locks until its TTL ends", "error", err)
		}
	})
}
