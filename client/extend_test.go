package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestExtendThatWasNeverSentBoundsNothing checks that an Extend whose caller gave up before it was sent
// does not bound the hold.
func TestExtendThatWasNeverSentBoundsNothing(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		hold := mustBound(t, f.session(c), "x", 8*time.Second)
		f.set(func() { f.node("n1").down = true })
		f.cut("n1")
		synctest.Wait()
		for _, d := range []time.Duration{0, time.Second} {
			err := hold.Extend(withTimeout(t, 100*time.Millisecond), d)
			wantErr(t, err, context.DeadlineExceeded, ErrUnavailable)
			if maybe(err) {
				t.Errorf("it was never sent, and the error is %v", err)
			}
		}
		f.set(func() { f.node("n1").down = false })
		for range 5 {
			time.Sleep(4 * time.Second)
			ok(t, hold.Extend(ctx, 0))
			ok(t, hold.Context().Err())
		}
		ok(t, hold.Unlock(ctx))
	})
}
