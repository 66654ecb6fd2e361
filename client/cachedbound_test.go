package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const bound = 10 * time.Second

// TestMaxHoldOfLocalHolds checks that each local hold has its own max_hold in full: uncontended, when it is recalled
// late, and when it was granted after a wait. The cluster never ends it earlier than the client.
func TestMaxHoldOfLocalHolds(t *testing.T) {
	for name, test := range map[string]struct {
		before time.Duration // from the session's last proof to the grant
		recall time.Duration // from the grant to a foreign claim; 0 for none
		local  bool          // it is granted after a local wait
	}{
		"alone":                      {before: time.Second},
		"alone, after a while":       {before: 2 * time.Second},
		"recalled at once":           {before: 2 * time.Second, recall: time.Millisecond},
		"recalled late":              {before: time.Second, recall: 8 * time.Second},
		"after a local wait":         {before: 2 * time.Second, local: true},
		"after a wait, and recalled": {before: 2 * time.Second, local: true, recall: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
				s, other := f.session(c), f.session(c)
				early := false
				hold := mustCached(t, s, "x", WithMaxHold(bound))
				if test.local {
					waits := cachedSoon(context.Background(), s, "x", WithMaxHold(bound))
					time.Sleep(test.before)
					unlocked(t, hold)
					hold = (<-waits).hold
				} else {
					unlocked(t, hold)
					time.Sleep(test.before)
					hold = mustCached(t, s, "x", WithMaxHold(bound))
				}
				if f.count(cachedAcquires) != 1 {
					t.Fatal("not granted locally")
				}
				f.set(func() {
					f.onLost = func(k *claim, reason wire.HoldLost_Reason) {
						early = early || plain(hold).Err() == nil || reason != wire.HoldLost_EXPIRED
					}
				})
				began := time.Now()
				if test.recall > 0 {
					time.Sleep(test.recall)
					lockSoon(context.Background(), other, "x")
				}
				select {
				case <-hold.Context().Done():
				case <-time.After(2 * bound):
				}
				took := time.Since(began)
				wantErr(t, context.Cause(hold.Context()), ErrHoldExpired)
				if took > bound || took < bound-2*margin(bound) {
					t.Errorf("it lasted %v", took)
				}
				time.Sleep(bound + time.Second)
				synctest.Wait()
				if early || f.held("x") == s.ID() || f.count(releases) != 0 {
					t.Errorf("ended early on the cluster: %v, still held: %v", early, f.held("x") == s.ID())
				}
				ok(t, other.Close(context.Background()))
			})
		})
	}
}

// TestMaxHoldWithALateRecall checks that a local hold ends before the cluster's max_hold passes, even if the recall that
// started it does not arrive.
func TestMaxHoldWithALateRecall(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s, other := f.session(c), f.session(c)
		unlocked(t, mustCached(t, s, "x", WithMaxHold(4*time.Second)))
		time.Sleep(500 * time.Millisecond)
		var hold *Hold
		late := true
		f.set(func() {
			f.service.sessions[s.ID()].conn = nil // pushes do not arrive
			f.intercept = func(cn *fakeConn, req *wire.Request) bool { return req.GetSessionId() == s.ID() }
			f.onLost = func(*claim, wire.HoldLost_Reason) { late = plain(hold).Err() == nil }
		})
		got := lockSoon(context.Background(), other, "x")
		time.Sleep(time.Second)
		granted := mustCached(t, s, "x", WithMaxHold(4*time.Second))
		f.set(func() { hold = granted })
		ok(t, (<-got).err)
		wantErr(t, context.Cause(hold.Context()), ErrHoldExpired)
		if late {
			t.Fatal("used after the cluster's end")
		}
		f.set(func() { f.intercept = nil })
	})
}

// TestMaxHoldOfARevokedHold checks that a hold that is revoked without a grace, and exceeds its max_hold, does not stay
// held on the cluster.
func TestMaxHoldOfARevokedHold(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		s := f.session(c)
		unlocked(t, mustCached(t, s, "x", WithMaxHold(time.Second)))
		hold := mustCached(t, s, "x", WithMaxHold(time.Second))
		f.revoke(hold, "deploy", 0)
		<-hold.Context().Done()
		wantErr(t, context.Cause(hold.Context()), ErrHoldExpired)
		time.Sleep(time.Second)
		if f.held("x") != 0 || f.count(releases) != 0 {
			t.Fatal("it did not expire on the cluster")
		}
	})
}

// TestExtendOfACachedHold checks that a local hold can be extended, and is released at its unlock then, because its
// time runs on the cluster. Extending an earlier local hold changes nothing.
func TestExtendOfACachedHold(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		earlier := mustCached(t, s, "x", WithMaxHold(bound))
		unlocked(t, earlier)
		hold := mustCached(t, s, "x", WithMaxHold(bound))
		wantErr(t, earlier.Extend(ctx, time.Minute), ErrNotHeld)
		unlocked(t, hold)
		if !s.idle("x") {
			t.Fatal("released for the sake of an earlier hold")
		}
		hold = mustCached(t, s, "x", WithMaxHold(bound))
		time.Sleep(8 * time.Second)
		ok(t, hold.Extend(ctx, 0))
		time.Sleep(8 * time.Second)
		ok(t, hold.Context().Err())
		unlocked(t, hold)
		if s.idle("x") || f.held("x") != 0 {
			t.Fatal("kept while its time runs on the cluster")
		}
	})
}

// TestCachedInOtherCalls checks that the calls that lock by themselves accept WithCached.
func TestCachedInOtherCalls(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := c.Supervise(SupervisedOptions{SessionOptions: SessionOptions{TTL: ttl}})
		defer func() { ok(t, s.Close(ctx)) }()
		locker := s.Locker(ctx, "x", nil, WithCached(kept))
		token := uint64(0)
		for range 10 {
			locker.Lock()
			if locker.Token() <= token || locker.Err() != nil {
				t.Error(locker.Token(), locker.Err())
			}
			token = locker.Token()
			locker.Unlock()
			ok(t, s.Do(ctx, "x", func(ctx context.Context, next uint64) error {
				if next != token+1 {
					t.Errorf("token %d after %d", next, token)
				}
				token = next
				return ctx.Err()
			}, WithCached(kept)))
		}
		if f.count(cachedAcquires) != 1 {
			t.Errorf("%d acquires", f.count(cachedAcquires))
		}
	})
}
