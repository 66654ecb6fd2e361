package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// cachedLoad is load on one lock by sessions that cache it, and the state of the resource that it protects.
type cachedLoad struct {
	t  *testing.T
	mu sync.Mutex

	inside, grants, local int
	token, hold           uint64 // of the latest holder
}

// options returns options for one call: most are for a cached hold.
func (l *cachedLoad) options(r *rand.Rand) (opts []LockOption) {
	if r.IntN(15) > 0 {
		opts = append(opts, WithCached(time.Duration(1+r.IntN(2000))*time.Millisecond))
	}
	switch r.IntN(30) {
	case 0:
		opts = append(opts, WithTry())
	case 1:
		opts = append(opts, WithWait(time.Duration(1+r.IntN(2000))*time.Millisecond))
	case 2:
		opts = append(opts, WithLockDelay(time.Second))
	}
	return opts
}

// enter uses the resource, which nobody else may use and which accepts only rising tokens.
func (l *cachedLoad) enter(h *Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inside++; l.inside > 1 {
		l.t.Error("two holders at once")
	}
	if h.Token() <= l.token {
		l.t.Errorf("token %d after %d", h.Token(), l.token)
	}
	l.grants++
	if h.ID() == l.hold {
		l.local++
	}
	l.token, l.hold = h.Token(), h.ID()
}

func (l *cachedLoad) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside--
}

// run locks and unlocks with callers that give up at any time, some of them inside of the hold.
func (l *cachedLoad) run(s *Session, r *rand.Rand) {
	for range 60 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+r.IntN(3000))*time.Millisecond)
		hold, err := s.Lock(ctx, "hot", l.options(r)...)
		cancel()
		switch {
		case err == nil:
		case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrNotAcquired):
			l.t.Errorf("Lock: %v", err)
			continue
		default:
			continue
		}
		l.enter(hold)
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		ctx, cancel = context.WithTimeout(context.Background(), time.Duration(1+r.IntN(300))*time.Millisecond)
		if r.IntN(8) == 0 {
			inner, name := context.WithoutCancel(hold.Context()), fmt.Sprint("nested", r.IntN(2))
			go func() { // it may outlast the hold
				ctx, cancel := context.WithTimeout(inner, time.Second)
				defer cancel()
				if nested, err := s.Lock(ctx, name, WithCached(time.Second)); err == nil {
					_ = nested.Unlock(context.Background())
				}
			}()
		}
		l.leave()
		if err := hold.Unlock(ctx); err != nil && !errors.Is(err, ErrUncertain) {
			l.t.Errorf("Unlock: %v", err)
		}
		cancel()
		if r.IntN(12) == 0 {
			time.Sleep(time.Duration(r.IntN(15_000)) * time.Millisecond) // others have the lock for themselves
		}
	}
}

// TestCachedThroughEverything checks exclusion and rising tokens while sessions that cache a lock compete for it, and
// requests, answers, connections and leaders get lost. The clients' state is checked throughout.
func TestCachedThroughEverything(t *testing.T) {
	grants, local := 0, 0
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
				r := rand.New(rand.NewPCG(seed, 5))
				load := &cachedLoad{t: t}
				clients := []*Client{c, f.client()}
				var sessions []*Session
				for i := range 3 {
					sessions = append(sessions, f.session(clients[i%2]))
				}
				f.set(func() {
					f.intercept = mischief(f, r)
					if seed%2 == 1 {
						f.lag = func() time.Duration { return time.Duration(r.IntN(20)) * time.Millisecond }
					}
				})
				var wg sync.WaitGroup
				for i, s := range sessions {
					for j := range 1 + i {
						wg.Go(func() { load.run(s, rand.New(rand.NewPCG(seed, uint64(100+10*i+j)))) })
					}
				}
				stop, moved := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(moved)
					if seed%3 > 0 {
						moveLeader(f, stop, 3*time.Second)
					}
				}()
				wg.Wait()
				close(stop)
				<-moved
				f.set(func() { f.intercept, f.lag = nil, nil })
				time.Sleep(15 * time.Second)
				synctest.Wait()
				for _, c := range clients {
					checkQuiet(t, f, c)
				}
				grants, local = grants+load.grants, local+load.local
			})
		})
	}
	if grants < 800 || local < 60 {
		t.Errorf("%d grants, %d of them local: this proves little", grants, local)
	}
}
