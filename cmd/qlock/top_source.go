package main

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/qlock/top"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// topPage is the size of the pages in which top reads the sessions.
const topPage = 1_000

// topSource is the cluster as qlock top sees it.
type topSource struct{ svc service }

// Status returns the state of the cluster.
func (s topSource) Status(ctx context.Context, stale bool) (*wire.StatusResponse, error) {
	return s.svc.Status(ctx, &wire.StatusRequest{Stale: stale})
}

// Samples returns how many locks were granted.
func (s topSource) Samples(ctx context.Context) (top.Samples, error) {
	answer, err := s.svc.ListSamples(ctx, &wire.ListSamplesRequest{})
	samples := top.Samples{Interval: time.Duration(answer.GetIntervalMs()) * time.Millisecond}
	for _, sample := range answer.GetSamples() {
		samples.Grants = append(samples.Grants, sample.GetGrants())
	}
	return samples, err
}

// Contended returns the locks that are waited for.
func (s topSource) Contended(ctx context.Context, q top.Query) (*wire.ListContendedResponse, error) {
	order := wire.ListContendedRequest_QUEUE_LENGTH
	if q.Order == top.ByOldest {
		order = wire.ListContendedRequest_OLDEST_WAIT
	}
	return s.svc.ListContended(ctx, &wire.ListContendedRequest{Prefix: q.Prefix, Order: order, Limit: uint32(q.Limit)})
}

// Lock returns one lock.
func (s topSource) Lock(ctx context.Context, name string) (*wire.GetLockResponse, error) {
	return s.svc.GetLock(ctx, &wire.GetLockRequest{Name: name})
}

// Sessions returns the first sessions.
func (s topSource) Sessions(ctx context.Context, limit int) (sessions []*wire.SessionInfo, more bool, err error) {
	req := &wire.ListSessionsRequest{PageSize: topPage}
	for {
		page, err := s.svc.ListSessions(ctx, req)
		if err != nil {
			return nil, false, err
		}
		sessions = append(sessions, page.GetSessions()...)
		req.PageToken = page.GetNextPageToken()
		if req.PageToken == "" || len(sessions) >= limit {
			return sessions, req.PageToken != "", nil
		}
	}
}

// Session returns one session with what it holds and waits for.
func (s topSource) Session(ctx context.Context, id uint64) (*wire.GetSessionResponse, error) {
	return s.svc.GetSession(ctx, &wire.GetSessionRequest{SessionId: id})
}

// Deadlocks returns the cycles of owners that wait for each other.
func (s topSource) Deadlocks(ctx context.Context) ([]*wire.Deadlock, error) {
	answer, err := s.svc.ListDeadlocks(ctx, &wire.ListDeadlocksRequest{})
	return answer.GetDeadlocks(), err
}

// Watch watches all events.
func (s topSource) Watch() top.Watch { return s.svc.Watch(client.WatchOptions{}) }
