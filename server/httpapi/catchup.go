package httpapi

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/eventlog"
	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/internal/access"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// watchOnce makes the replica answer a watch. A follower that has not yet applied the revision that the
// caller has seen elsewhere catches up first. Only the leader knows whether that revision exists.
func (s *Server) watchOnce(ctx context.Context, req *wire.WatchRequest, w *watch) error {
	for {
		err := s.replica.Watch(ctx, req, access.Of(ctx).Event, w.deliver)
		behind := errors.Is(err, status.ErrNotLeader) || errors.Is(err, status.ErrUnavailable)
		if w.last != nil || !behind {
			return err
		}
		if err := s.catchUp(ctx, req.GetAfterRevision()); err != nil {
			return err
		}
	}
}

// catchUp returns once this node has applied the revision. It returns an error if the revision is in the
// future.
func (s *Server) catchUp(ctx context.Context, revision uint64) error {
	present, err := s.clusterRevision(ctx)
	if err != nil {
		return err
	}
	if revision > present {
		return s.refusalOf(eventlog.FutureRevision(revision, present))
	}
	if !s.poll(ctx, func() bool { return s.revision() >= revision }) {
		return apierror.New(wire.Status_UNAVAILABLE, "this node lags behind the cluster: watch again, or on another node")
	}
	return nil
}

func (s *Server) revision() (revision uint64) {
	s.replica.View(func(m *fsm.Machine) { revision = m.Revision() })
	return revision
}

// clusterRevision returns the cluster's current revision. It is at least the latest one that any client was
// told of before the call.
func (s *Server) clusterRevision(ctx context.Context) (uint64, error) {
	deadline := time.Now().Add(s.cfg.Limits.LeaderWait)
	for {
		leader, here := s.forwarder.Await(ctx, deadline)
		switch {
		case here:
			if s.reader.Prove(ctx) == nil {
				return s.revision(), nil
			}
		case leader == "":
			return 0, apierror.New(wire.Status_UNAVAILABLE, "no leader is known, and this node has not applied that revision: watch again")
		default:
			if revision, err := s.forwarder.Revision(ctx, leader); err == nil {
				return revision, nil
			}
		}
		s.forwarder.Pause(ctx)
	}
}
