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

	"github.com/quorumlock/quorumlock/test/bubble"
)

// TestCallsUsedAgain checks that calls can reuse memory: each caller gets its own hold and waits for its
// own release, and so does every other goroutine that unlocks it.
func TestCallsUsedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		s := f.session(f.client())
		f.set(func() { f.lag = func() time.Duration { return time.Duration(rand.IntN(1000)) * time.Microsecond } })
		var working sync.WaitGroup
		for i := range 20 {
			random := rand.New(rand.NewPCG(7, uint64(i)))
			working.Go(func() {
				for n := range 50 {
					usedAgain(t, s, fmt.Sprint(i, "/", n), random)
				}
			})
		}
		working.Wait()
		time.Sleep(time.Second) // for requests that were abandoned
		synctest.Wait()
		s.client.mu.Lock()
		defer s.client.mu.Unlock()
		if left := s.holds.count() + s.client.byID.n + len(s.waits) + s.unanswered.n; left != 0 {
			t.Errorf("%d left in the books", left)
		}
	})
}

// usedAgain locks and unlocks, with a caller and with other goroutines that do not always wait.
func usedAgain(t *testing.T, s *Session, name string, random *rand.Rand) {
	brief := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), time.Duration(random.IntN(4000))*time.Microsecond)
	}
	ctx, cancel := brief()
	defer cancel()
	hold, err := s.Lock(ctx, name)
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		return
	}
	if hold.Name() != name {
		t.Errorf("%s is the hold of %s", hold.Name(), name)
	}
	var unlocking sync.WaitGroup
	for range random.IntN(3) {
		ctx, cancel := brief()
		unlocking.Go(func() {
			defer cancel()
			if err := hold.Unlock(ctx); err != nil && !errors.Is(err, ErrUncertain) {
				t.Error(err)
			}
		})
	}
	first := hold.Unlock(t.Context())
	unlocking.Wait()
	if err := errors.Join(first, hold.Unlock(t.Context())); err != nil {
		t.Error(err)
	}
}
