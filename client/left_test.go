package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestGrantThatComesWithTheEndOfTheContextIsKept checks that a caller gets its grant, and keeps it, if the
// grant and the end of its ctx arrive at the same time.
func TestGrantThatComesWithTheEndOfTheContextIsKept(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		ctx, cancel := context.WithCancel(context.Background())
		k := newAcquire(ctx, c).one("x")
		c.mu.Lock()
		s.addCall(&k.call)
		c.submit(&k.call)
		c.unlock()
		synctest.Wait() // it is granted, and its caller has not noticed yet
		cancel()
		hold, err := c.stopWaiting(ctx, &k.call)
		ok(t, err)
		synctest.Wait()
		if f.held("x") != s.ID() || f.count(releases)+f.count(cancels) != 0 || hold.ended != nil {
			t.Fatalf("held by %d after %d releases and %d cancels", f.held("x"), f.count(releases), f.count(cancels))
		}
		ok(t, hold.Unlock(context.Background()))
	})
}

// leftUpgrade makes the caller of an upgrade leave before the answer arrives.
func leftUpgrade(t *testing.T, f *fake, hold *Hold) {
	t.Helper()
	var late func()
	f.set(func() {
		f.intercept = func(cn *fakeConn, req *wire.Request) bool {
			if req.GetUpgrade() == nil {
				return false
			}
			f.intercept = nil
			resp := f.service.serve(cn, req)
			late = func() { cn.answer(req, resp) }
			return true
		}
	})
	err := hold.Upgrade(withTimeout(t, time.Second))
	wantErr(t, err, context.DeadlineExceeded, ErrUncertain)
	f.set(func() { late() })
	synctest.Wait()
}

// TestAbandonedUpgradeIsCancelled checks that an upgrade whose caller left is undone if it changed
// the hold, and only then: a hold that was exclusive before remains so.
func TestAbandonedUpgradeIsCancelled(t *testing.T) {
	for name, want := range map[string]Mode{"of a shared hold": Shared, "of an exclusive hold": Exclusive} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				s := f.session(c)
				hold := mustShare(t, s, "x")
				if want == Exclusive {
					ok(t, hold.Upgrade(context.Background()))
				}
				leftUpgrade(t, f, hold)
				_, err := f.session(c).Lock(context.Background(), "x", WithTry(), WithShared())
				if shared := err == nil; hold.Mode() != want || shared != (want == Shared) {
					t.Errorf("the hold is %v here, and shared there: %v", hold.Mode(), shared)
				}
				if !errors.Is(err, ErrNotAcquired) && err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestModeOfTheLatestRevisionCounts checks that the mode of the latest revision counts, since answers to
// later commands can arrive first.
func TestModeOfTheLatestRevisionCounts(t *testing.T) {
	d := &held{}
	for _, step := range []struct {
		mode     Mode
		revision uint64
		want     Mode
	}{{Shared, 5, Shared}, {Exclusive, 9, Exclusive}, {Shared, 7, Exclusive}, {Shared, 11, Shared}} {
		if d.change(step.mode, step.revision); d.mode != step.want {
			t.Errorf("%v at revision %d: the hold is %v, want %v", step.mode, step.revision, d.mode, step.want)
		}
	}
}
