package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestHooks checks what the hooks are told about a hold that is released, one that is lost, and an acquire that
// fails.
func TestHooks(t *testing.T) {
	type spanKey struct{}
	virtual(t, 1, func(t *testing.T, f *fake, _ *Client) {
		ctx := context.Background()
		var waits []time.Duration
		var outcomes []error
		var ends []HoldEnd
		cfg := f.config()
		cfg.Hooks = Hooks{
			Acquire: func(ctx context.Context, locks []string) (context.Context, func(*Hold, error)) {
				began := time.Now()
				return context.WithValue(ctx, spanKey{}, locks[0]), func(hold *Hold, err error) {
					if (hold == nil) == (err == nil) {
						t.Error(hold, err)
					}
					waits, outcomes = append(waits, time.Since(began)), append(outcomes, err)
				}
			},
			HoldEnded: func(e HoldEnd) { ends = append(ends, e) },
		}
		c, err := New(cfg)
		ok(t, err)
		defer c.Close()
		s := f.session(c)
		first := must(s.LockAll(ctx, Names("a", "b")))
		if first.Context().Value(spanKey{}) != "a" {
			t.Error("the hold's context has not the values of the hook's")
		}
		waiting := soon(func(ctx context.Context) (*Hold, error) { return s.Lock(ctx, "a") }, ctx)
		_, err = s.Lock(ctx, "b", WithTry())
		wantErr(t, err, ErrNotAcquired)
		time.Sleep(3 * time.Second)
		ok(t, first.Unlock(ctx))
		second := <-waiting
		ok(t, second.err)
		time.Sleep(2 * time.Second)
		f.force(second.hold, "stuck")
		synctest.Wait()

		if want := []time.Duration{0, 0, 3 * time.Second}; !slices.Equal(waits, want) || outcomes[0] != nil || !errors.Is(outcomes[1], ErrNotAcquired) || outcomes[2] != nil {
			t.Errorf("waits %v, outcomes %v", waits, outcomes)
		}
		if len(ends) != 2 {
			t.Fatalf("%+v", ends)
		}
		for i, want := range []HoldEnd{{Locks: []string{"a", "b"}, Token: first.Token(), Held: 3 * time.Second, Reason: ErrReleased},
			{Locks: []string{"a"}, Token: second.hold.Token(), Held: 2 * time.Second, Reason: ErrForced}} {
			got := ends[i]
			if !slices.Equal(got.Locks, want.Locks) || got.Token != want.Token || got.Held != want.Held || !errors.Is(got.Reason, want.Reason) || got.Context.Value(spanKey{}) != "a" {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
	})
}
