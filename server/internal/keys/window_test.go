package keys

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/quorumlock/quorumlock/test/bubble"
)

func (w *window) must(t *testing.T) uint64 {
	t.Helper()
	seq, err := w.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// TestLowestInFlight verifies that no request in flight counts as acknowledged, in whatever order they end.
func TestLowestInFlight(t *testing.T) {
	w := newWindow(1)
	first, second, third := w.must(t), w.must(t), w.must(t)
	for _, step := range []struct{ ends, lowest uint64 }{{second, first}, {first, third}, {third, third + 1}} {
		w.end(step.ends)
		if got := w.lowest(); got != step.lowest {
			t.Errorf("after %d has ended, the lowest is %d, want %d", step.ends, got, step.lowest)
		}
	}
	if next := w.must(t); next != third+1 || w.lowest() != next {
		t.Errorf("the next is %d, the lowest %d", next, w.lowest())
	}
}

// TestWindowIsBounded verifies that a request waits while the oldest one in flight is too old.
func TestWindowIsBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWindow(1)
		oldest := w.must(t)
		for range maxWindow - 1 {
			w.end(w.must(t))
		}
		ctx, stop := context.WithCancel(t.Context())
		begun := make(chan error, 2)
		for _, ctx := range []context.Context{ctx, t.Context()} {
			go func() {
				_, err := w.begin(ctx)
				begun <- err
			}()
		}
		synctest.Wait()
		if len(begun) != 0 {
			t.Error("a request did not wait")
		}
		stop()
		if err := <-begun; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		w.end(oldest)
		if err := <-begun; err != nil {
			t.Error(err)
		}
	})
}
