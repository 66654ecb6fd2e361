package attacker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// sessionTTLMs is short, so that an attacker's sessions end soon after the attack.
	sessionTTLMs = 5_000
	// heartbeatInterval is how often each session sends a heartbeat.
	heartbeatInterval = time.Second
	// window is the maximum number of requests in flight per connection.
	window = 64
	// manyNames is the maximum number of names in one acquire.
	manyNames = 64
	// claimsPerSession is the number of claims that one session requests before the next is opened,
	// sessionsPerConn the number of sessions that one connection opens.
	claimsPerSession, sessionsPerConn = 1_000, 60
)

// sessions are the sessions of one connection, kept open by heartbeats until ctx ends.
type sessions struct {
	f   *rpcConn
	ids []uint64
	due time.Time
}

// withSession calls use with a session on a new connection, and closes the connection afterwards.
func (a *attack) withSession(ctx context.Context, use func(s *sessions, id uint64) error) error {
	f, err := a.caller(ctx, window)
	if err != nil {
		return err
	}
	defer f.close()
	s := &sessions{f: f}
	id, err := s.open()
	if err != nil {
		return err
	}
	return use(s, id)
}

// open opens another session.
func (s *sessions) open() (uint64, error) {
	id, err := s.f.session()
	if err == nil {
		s.ids = append(s.ids, id)
	}
	return id, err
}

// heartbeats returns the heartbeats that are due. They are answered like all other requests.
func (s *sessions) heartbeats() [][]byte {
	now := time.Now()
	if now.Before(s.due) {
		return nil
	}
	s.due = now.Add(heartbeatInterval)
	var all [][]byte
	for _, id := range s.ids {
		all = append(all, s.f.frame(&wire.Request{SessionId: id, Body: &wire.Request_Heartbeat{Heartbeat: &wire.Heartbeat{}}}))
	}
	return all
}

// mixed returns a source for stream that inserts heartbeats between what next returns.
func (s *sessions) mixed(next func() []byte) func() []byte {
	var queue [][]byte
	return func() []byte {
		if len(queue) == 0 {
			queue = s.heartbeats()
		}
		if len(queue) > 0 {
			first := queue[0]
			queue = queue[1:]
			return first
		}
		return next()
	}
}

// longName pads a name, so that it takes memory.
func longName(format string, args ...any) string {
	name := fmt.Sprintf(format, args...)
	return name + strings.Repeat("x", max(0, 100-len(name)))
}

// names fills the state: every connection continuously requests 64 names in one acquire, and waits forever.
// One half of them wait for the same 64 names, the others for one of those and 63 new names each time.
func (a *attack) names(ctx context.Context) error {
	return a.withSession(ctx, func(own *sessions, id uint64) error {
		resp, err := own.f.call(acquire(id, 1, 0, false, contended()...))
		if err != nil || resp.GetResult().GetStatus() != wire.Status_GRANTED {
			return fmt.Errorf("the names to wait for: %v, %w", resp, err)
		}
		a.ready.Store(true)
		var all sync.WaitGroup
		all.Go(func() {
			idle := own.mixed(func() []byte {
				rest(ctx, heartbeatInterval/4)
				return own.f.frame(&wire.Request{SessionId: id, Body: &wire.Request_Heartbeat{Heartbeat: &wire.Heartbeat{}}})
			})
			if err := own.f.stream(ctx, idle); err != nil {
				a.failed(err)
			}
		})
		a.each(ctx, a.plan.Connections, a.waitForNames)
		all.Wait()
		return nil
	})
}

func contended() []*wire.LockRequest {
	var locks []*wire.LockRequest
	for i := range manyNames {
		locks = append(locks, &wire.LockRequest{Name: longName("attack/names/%d/", i)})
	}
	return locks
}

func acquire(session, seq, owner uint64, wait bool, locks ...*wire.LockRequest) *wire.Request {
	return &wire.Request{SessionId: session, Seq: seq, Body: &wire.Request_Acquire{Acquire: &wire.Acquire{
		Locks: locks, Owner: owner, WaitForever: wait,
	}}}
}

// acknowledged returns the acknowledgement mark for a request: with a full window, all requests below it are
// answered.
func acknowledged(seq uint64) uint64 {
	if seq <= window {
		return 0
	}
	return seq - window
}

// waitForNames is the life of one connection: it fills one session after the other with waits.
func (a *attack) waitForNames(ctx context.Context, i int) error {
	f, err := a.caller(ctx, window)
	if err != nil {
		return err
	}
	defer f.close()
	s := &sessions{f: f}
	shared := contended()
	var refused atomic.Int64 // consecutive ones
	f.seen = func(resp *wire.Response) {
		switch resp.GetResult().GetStatus() {
		case wire.Status_QUEUED:
			refused.Store(0)
		case wire.Status_RESOURCE_EXHAUSTED:
			refused.Add(1)
		}
	}
	for ctx.Err() == nil {
		if len(s.ids) < sessionsPerConn {
			if _, err := s.open(); err != nil && len(s.ids) == 0 {
				return err
			}
		}
		id, seq := s.ids[len(s.ids)-1], uint64(0)
		refused.Store(0)
		err := f.stream(ctx, s.mixed(func() []byte {
			if seq++; seq > claimsPerSession || refused.Load() > window && len(s.ids) < sessionsPerConn {
				return nil
			}
			locks := shared
			if i%2 == 1 {
				locks = append([]*wire.LockRequest{shared[int(seq)%manyNames]}, fresh(id, seq)...)
			}
			return f.frame(acquire(id, seq, seq, true, locks...))
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

// fresh returns names that have not been used before.
func fresh(session, seq uint64) []*wire.LockRequest {
	var locks []*wire.LockRequest
	for i := range manyNames - 1 {
		locks = append(locks, &wire.LockRequest{Name: longName("attack/fresh/%d/%d/%d/", session, seq, i)})
	}
	return locks
}

// deadlockSearch makes the deadlock detection at every enqueue search far. A long chain of owners waits for a
// lock held by one owner, and this owner repeatedly acquires and cancels a lock at the head of another long
// chain.
func (a *attack) deadlockSearch(ctx context.Context) error {
	return a.withSession(ctx, func(s *sessions, id uint64) error {
		if _, err := s.f.call(acquire(id, 1, 1, false, &wire.LockRequest{Name: link("behind", 0)})); err != nil {
			return err
		}
		// Each owner holds one lock and waits for that of the previous one. The second chain is built in the
		// opposite direction, from its end, so that no owner waits for the newest one while the chains grow.
		n := a.plan.Size
		behind := func(k int) (holds, awaits string) { return link("behind", k+1), link("behind", k) }
		before := func(k int) (holds, awaits string) { return link("before", n-1-k), link("before", n-k) }
		if err := errors.Join(a.chain(ctx, s, n, behind), a.chain(ctx, s, n, before)); err != nil {
			return err
		}
		a.ready.Store(true)
		seq, asked := uint64(0), false
		return s.f.stream(ctx, s.mixed(func() []byte {
			if asked = !asked; asked {
				seq += 2
				req := acquire(id, seq, 1, true, &wire.LockRequest{Name: link("before", 0)})
				req.AckedBelow, req.Acked = seq, []uint64{seq - 2}
				return s.f.frame(req)
			}
			return s.f.frame(&wire.Request{SessionId: id, Seq: seq + 1, Body: &wire.Request_Cancel{Cancel: &wire.Cancel{AcquireSeq: seq}}})
		}))
	})
}

func link(chain string, k int) string { return fmt.Sprintf("attack/%s/%d", chain, k) }

// ownersPerSession leaves room for two claims each.
const ownersPerSession = claimsPerSession / 2

// chain creates n owners that hold one lock each and wait for another.
func (a *attack) chain(ctx context.Context, s *sessions, n int, of func(k int) (holds, awaits string)) error {
	for k := 0; k < n && ctx.Err() == nil; {
		id, err := s.open()
		if err != nil {
			return err
		}
		end, seq := min(k+ownersPerSession, n), uint64(0)
		err = s.f.stream(ctx, s.mixed(func() []byte {
			if k == end {
				return nil
			}
			seq++
			holds, awaits := of(k)
			if seq%2 == 1 {
				return s.f.frame(acquire(id, seq, uint64(k+1), false, &wire.LockRequest{Name: holds}))
			}
			k++
			return s.f.frame(acquire(id, seq, uint64(k), true, &wire.LockRequest{Name: awaits}))
		}))
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}
