package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// mischief loses, delays and cuts off requests, driven by a seeded generator.
func mischief(f *fake, r *rand.Rand) func(*fakeConn, *wire.Request) bool {
	return func(cn *fakeConn, req *wire.Request) bool {
		switch r.IntN(24) {
		case 0: // never executed, no answer
			_ = cn.nc.Close()
		case 1: // executed, and the answer is lost
			f.service.serve(cn, req)
			_ = cn.nc.Close()
		case 2:
			cn.answer(req, respond(status(wire.Status_UNAVAILABLE)))
		case 3: // executed, and answered UNCERTAIN
			f.service.serve(cn, req)
			cn.answer(req, respond(status(wire.Status_UNCERTAIN)))
		case 4, 5, 6:
			delay := time.Duration(r.IntN(400)) * time.Millisecond
			time.AfterFunc(delay, func() { f.set(func() { cn.serveRequest(req) }) })
		case 7: // executed long after the connection ended, perhaps after its repetition
			_ = cn.nc.Close()
			delay := time.Duration(r.IntN(2000)) * time.Millisecond
			time.AfterFunc(delay, func() { f.set(func() { f.service.straggler(req) }) })
		default:
			return false
		}
		return true
	}
}

// straggler executes a command that was in flight when its connection ended.
func (v *service) straggler(req *wire.Request) {
	if s := v.sessions[req.GetSessionId()]; s != nil && req.GetSeq() != 0 {
		v.revision++
		v.command(s, req)
	}
}

// workLoad locks and unlocks with callers that give up at any time, and checks that no two hold the lock at
// the same time.
func workLoad(t *testing.T, s *Session, inside *atomic.Int32, r *rand.Rand, grants *atomic.Int64) {
	for range 40 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+r.IntN(3000))*time.Millisecond)
		hold, err := s.Lock(ctx, "hot")
		cancel()
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Lock: %v", err)
			}
			continue
		}
		grants.Add(1)
		if inside.Add(1) != 1 {
			t.Error("two holders at once")
		}
		time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
		inside.Add(-1)
		ctx, cancel = context.WithTimeout(context.Background(), time.Duration(1+r.IntN(300))*time.Millisecond)
		if err := hold.Unlock(ctx); err != nil && !errors.Is(err, ErrUncertain) {
			t.Errorf("Unlock: %v", err)
		}
		cancel()
	}
}

func TestExactlyOnceThroughEverything(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
				r := rand.New(rand.NewPCG(seed, 1))
				f.set(func() { f.intercept = mischief(f, r) })
				var inside atomic.Int32
				var grants atomic.Int64
				var wg sync.WaitGroup
				for i := range uint64(2) {
					s := f.session(c)
					for j := range uint64(3) {
						wg.Go(func() { workLoad(t, s, &inside, rand.New(rand.NewPCG(seed, 2+10*i+j)), &grants) })
					}
				}
				stop := make(chan struct{})
				moved := make(chan struct{})
				go func() {
					defer close(moved)
					moveLeader(f, stop, 700*time.Millisecond)
				}()
				wg.Wait()
				close(stop)
				<-moved
				f.set(func() { f.intercept = nil })
				time.Sleep(10 * time.Second)
				synctest.Wait()
				checkQuiet(t, f, c)
				if grants.Load() < 20 {
					t.Errorf("only %d grants: this proves little", grants.Load())
				}
			})
		})
	}
}

// moveLeader changes the leader, with and without notifying clients.
func moveLeader(f *fake, stop <-chan struct{}, every time.Duration) {
	for term := uint64(2); ; term++ {
		select {
		case <-stop:
			return
		case <-time.After(every):
		}
		f.lead(fmt.Sprintf("n%d", term%3+1), term)
		if term%2 == 0 {
			f.cut(fmt.Sprintf("n%d", (term-1)%3+1))
		}
	}
}

// checkQuiet checks that the load leaves no state behind, on the client or on the cluster.
func checkQuiet(t *testing.T, f *fake, c *Client) {
	t.Helper()
	if twice := f.twice(); len(twice) > 0 {
		t.Errorf("executed twice: %v", twice)
	}
	f.set(func() {
		for name, l := range f.service.locks {
			t.Errorf("%s: %d hold, %d wait", name, len(l.holders), len(l.queue))
		}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sessions {
		if s.state == Lost || s.holds.count()+len(s.waits)+s.unanswered.n+s.parked.n != 0 {
			t.Errorf("session %d: %v, %d holds, %d waits, %d unanswered", s.id, s.state, s.holds.count(), len(s.waits), s.unanswered.n)
		}
	}
}
