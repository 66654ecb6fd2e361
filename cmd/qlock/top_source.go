package main

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/cmd/qlock/top"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// topPage is the size of the pages that top reads, and topLocks the number of locks that it looks at.
	topPage  = 1_000
	topLocks = 50_000
	// grantInterval and grantIntervals are the length and the number of the intervals in which grants are counted.
	grantInterval  = 5 * time.Second
	grantIntervals = 120
)

// topSource is the cluster as qlock top sees it.
type topSource struct {
	svc    service
	grants *grantCounter
}

func newTopSource(svc service) topSource {
	return topSource{svc, &grantCounter{began: time.Now()}}
}

// Status returns the state of the cluster.
func (s topSource) Status(ctx context.Context, stale bool) (*wire.StatusResponse, error) {
	return s.svc.Status(ctx, &wire.StatusRequest{Stale: stale})
}

// Lock returns one lock.
func (s topSource) Lock(ctx context.Context, name string) (*wire.GetLockResponse, error) {
	return s.svc.GetLock(ctx, &wire.GetLockRequest{Name: name})
}

// locks reads the locks of a prefix up to the limit.
func (s topSource) locks(ctx context.Context, prefix string) ([]*wire.LockInfo, error) {
	var all []*wire.LockInfo
	req := &wire.ListLocksRequest{Prefix: prefix, PageSize: topPage}
	for {
		page, err := s.svc.ListLocks(ctx, req)
		if err != nil {
			return nil, err
		}
		all = append(all, page.GetLocks()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" || len(all) >= topLocks {
			return all, nil
		}
	}
}

// Contended returns the locks that are waited for.
func (s topSource) Contended(ctx context.Context, q top.Query) (top.Contended, error) {
	locks, err := s.locks(ctx, q.Prefix)
	if err != nil {
		return top.Contended{}, err
	}
	var answer top.Contended
	for _, l := range locks {
		if l.GetQueueLength() == 0 {
			continue
		}
		c := top.ContendedLock{Name: l.GetName(), QueueLength: l.GetQueueLength(), HolderCount: max(l.GetHolderCount(), uint64(len(l.GetHolders())))}
		if len(l.GetHolders()) > 0 {
			c.Holder = l.GetHolders()[0]
		}
		if len(l.GetQueue()) > 0 {
			c.Oldest = slices.MaxFunc(l.GetQueue(), func(a, b *wire.WaiterInfo) int { return cmp.Compare(a.GetWaitingMs(), b.GetWaitingMs()) })
		}
		answer.Locks = append(answer.Locks, c)
	}
	slices.SortStableFunc(answer.Locks, func(a, b top.ContendedLock) int {
		if q.Order == top.ByOldest {
			return cmp.Compare(b.Oldest.GetWaitingMs(), a.Oldest.GetWaitingMs())
		}
		return cmp.Compare(b.QueueLength, a.QueueLength)
	})
	answer.Total = uint64(len(answer.Locks))
	answer.Locks = answer.Locks[:min(q.Limit, len(answer.Locks))]
	return answer, nil
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
func (s topSource) Session(ctx context.Context, id uint64) (top.Session, error) {
	sessions, err := allSessions(ctx, s.svc)
	if err != nil {
		return top.Session{}, err
	}
	at := slices.IndexFunc(sessions, func(info *wire.SessionInfo) bool { return info.GetSessionId() == id })
	if at < 0 {
		return top.Session{}, client.ErrNotFound
	}
	answer := top.Session{Info: sessions[at]}
	locks, err := s.locks(ctx, "")
	for _, l := range locks {
		for _, h := range l.GetHolders() {
			if h.GetSessionId() == id && first(l.GetName(), h.GetLocks()) {
				answer.Holds = append(answer.Holds, top.SessionHold{HolderInfo: h, Name: l.GetName()})
			}
		}
		for _, q := range l.GetQueue() {
			if q.GetSessionId() == id && first(l.GetName(), q.GetLocks()) {
				answer.Waits = append(answer.Waits, top.SessionWait{WaiterInfo: q, Name: l.GetName()})
			}
		}
	}
	return answer, err
}

// first reports whether a lock is the first or the only one of a hold.
func first(name string, all []string) bool { return len(all) == 0 || all[0] == name }

// Samples returns how many grants have been watched.
func (s topSource) Samples(context.Context) (top.Samples, error) {
	return top.Samples{Interval: grantInterval, Grants: s.grants.counts(time.Now())}, nil
}

// Watch watches all events and counts the grants among them.
func (s topSource) Watch() top.Watch {
	return countingWatch{s.svc.Watch(client.WatchOptions{}), s.grants}
}

type countingWatch struct {
	watcher
	grants *grantCounter
}

// Next waits for events.
func (w countingWatch) Next(ctx context.Context) (wirecall.Batch, error) {
	b, err := w.watcher.Next(ctx)
	now := time.Now()
	for _, e := range b.Events {
		if e.GetType() == wire.Event_GRANTED {
			w.grants.add(now)
		}
	}
	return b, err
}

// grantCounter counts grants in intervals.
type grantCounter struct {
	began time.Time

	mu     sync.Mutex
	grants []uint64 // by interval since began, the last one is not over
	before int      // intervals that are no longer in grants
}

// advance adds the intervals up to now. The mutex is held.
func (g *grantCounter) advance(now time.Time) {
	for g.before+len(g.grants) <= int(now.Sub(g.began)/grantInterval) {
		g.grants = append(g.grants, 0)
		if len(g.grants) > grantIntervals+1 {
			g.grants, g.before = g.grants[1:], g.before+1
		}
	}
}

func (g *grantCounter) add(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advance(now)
	g.grants[len(g.grants)-1]++
}

// counts returns the numbers of the intervals that are over.
func (g *grantCounter) counts(now time.Time) []uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advance(now)
	return slices.Clone(g.grants[:len(g.grants)-1])
}
