package keys

import (
	"context"
	"errors"
	"hash/maphash"
	"time"

	"github.com/quorumlock/quorumlock/transport/identity"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// do executes a request for the caller of ctx. If there is no leader, or the one that was asked no longer leads, it tries
// again, for Config.Wait in all, without the time that leaders had the request.
func (s *Service) do(ctx context.Context, from identity.Sender, req *wire.KeyRequest) (*wire.KeyResponse, error) {
	req.Caller = identity.FromContext(ctx)
	deadline := time.Now().Add(s.cfg.Wait)
	unknown := false
	for {
		route, err := s.router.await(ctx, deadline)
		if err != nil {
			if unknown && errors.Is(err, ErrNoLeader) {
				err = ErrUnknown
			}
			return nil, err
		}
		began := time.Now()
		resp, err := s.attempt(ctx, route, from, req)
		deadline = deadline.Add(time.Since(began)) // there was a leader
		if err != nil {
			return nil, err
		}
		switch code := resp.GetResult().GetStatus(); {
		case code == wire.Status_NOT_LEADER, code == wire.Status_UNCERTAIN:
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			s.router.failed(route)
			unknown = unknown || code == wire.Status_UNCERTAIN
		case unknown && refusedUnseen(code):
			if err := s.pause(ctx); err != nil {
				return nil, err
			}
		default:
			return resp, nil
		}
	}
}

// refusedUnseen reports whether the leader may refuse a request with that status before it looks for the remembered
// result. Such a refusal says nothing about an earlier attempt.
func refusedUnseen(code wire.Status_Code) bool {
	return code == wire.Status_UNAVAILABLE || code == wire.Status_RESOURCE_EXHAUSTED
}

func (s *Service) pause(ctx context.Context) error {
	timer := time.NewTimer(retryInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.life.Done():
		return ErrUnknown
	}
}

// attempt executes a request where the route leads. NOT_LEADER means that it was not executed, UNCERTAIN that this is
// unknown; in both cases it has to be repeated.
func (s *Service) attempt(ctx context.Context, route *route, from identity.Sender, req *wire.KeyRequest) (*wire.KeyResponse, error) {
	if route.link != nil {
		resp, err := route.link.call(ctx, connectionOf(from), req)
		s.metrics.count(resp, err)
		return resp, err
	}
	if change := req.GetChange(); change != nil {
		return s.changeHere(ctx, route, from, req.GetCaller(), change)
	}
	here, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(route.ctx, stop)()
	return s.executor.begin(here, from, req)(), nil
}

func (s *Service) changeHere(ctx context.Context, route *route, from identity.Sender, caller *wire.Caller, op *wire.ChangeKeys) (*wire.KeyResponse, error) {
	answered := make(chan *wire.KeyResponse, 1)
	s.executor.change(from, caller, op, func(resp *wire.KeyResponse) { answered <- resp })
	select {
	case resp := <-answered:
		return resp, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-route.ctx.Done():
		return uncertain("this node no longer leads"), nil
	}
}

func uncertain(message string) *wire.KeyResponse {
	return &wire.KeyResponse{Result: refusal(wire.Status_UNCERTAIN, message)}
}

var connectionSeed = maphash.MakeSeed()

// connectionOf returns a number for the connection of a sender. Two connections with the same number only share their
// turns.
func connectionOf(from identity.Sender) uint64 {
	return maphash.Comparable(connectionSeed, from.Connection)
}
