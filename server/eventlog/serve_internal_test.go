package eventlog

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestBusyWatchesAreThrottled verifies that watches pause in proportion to their number and to the duration of their
// answer, within bounds.
func TestBusyWatchesAreThrottled(t *testing.T) {
	for _, test := range []struct {
		took time.Duration
		busy int64
		want time.Duration
	}{
		{time.Second, 1, 0},
		{10 * time.Microsecond, 10, 0},
		{minRest/4 - 1, 2, 0},
		{minRest / 4, 2, minRest},
		{10 * time.Microsecond, 1_000, 20 * time.Millisecond},
		{time.Millisecond, 10_000, maxRest},
		{time.Hour, 10_000, maxRest},
	} {
		bubble.Test(t, func(t *testing.T) {
			started := time.Now()
			rest(t.Context(), test.took, test.busy)
			if got := time.Since(started); got != test.want {
				t.Errorf("%d watches that took %v rest %v, want %v", test.busy, test.took, got, test.want)
			}
			ended, end := context.WithCancel(t.Context())
			end()
			if rest(ended, time.Hour, 2); time.Since(started) != test.want {
				t.Error("a watch that has ended rests")
			}
		})
	}
}

// TestWatchIsSilentWhileItSkips verifies that a watch that scans more events of others than one read does is
// silent until it has scanned them all.
func TestWatchIsSilentWhileItSkips(t *testing.T) {
	const others = 3 * scanAtOnce
	l := New()
	l.Record(nil, 1, "l")
	for revision := range uint64(others) {
		l.Record([]*wire.Event{{Revision: revision + 2, Lock: "other"}}, revision+2, "l")
	}
	w, _ := l.Watch(&wire.WatchRequest{Name: "mine", AfterRevision: 1, Lineage: "l"}, nil)
	var said []uint64
	for drained, rounds := false, 0; !drained; rounds++ {
		if rounds > others {
			t.Fatal("the watch does not come to the end")
		}
		_, drained, _ = l.respond(t.Context(), w, true, func(resp *wire.WatchResponse) error {
			said = append(said, resp.Revision)
			return nil
		})
	}
	if !slices.Equal(said, []uint64{others + 1}) {
		t.Errorf("said that nothing happened up to %v", said)
	}
}

// TestWhenAWatchSpeaks verifies when a watch sends an answer: immediately, with each event, after a while
// without events, and at its end. It first has to scan many events of others.
func TestWhenAWatchSpeaks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		h := New()
		h.Record(nil, 1, "l")
		for range 3 * scanAtOnce {
			happen(h, lockEvent("other", 1))
		}
		w := begin(t, h, &wire.WatchRequest{Name: "mine", AfterRevision: 1, Lineage: "l"})
		started := time.Now()
		var spoke []time.Duration
		var last *wire.WatchResponse
		ended := make(chan error, 1)
		go func() {
			var err error
			last, err = h.Serve(t.Context(), w, func(*wire.WatchResponse) error {
				spoke = append(spoke, time.Since(started))
				return nil
			})
			spoke = append(spoke, time.Since(started))
			ended <- err
		}()
		time.Sleep(time.Second)
		w.trigger() // nothing has happened
		time.Sleep(2 * time.Second)
		happen(h, lockEvent("mine", 1))
		time.Sleep(2 * time.Second)
		w.trigger()
		time.Sleep(9 * time.Second) // until 14 s
		h.Close()
		if err := <-ended; err != nil || last.GetStatus() != wire.Status_UNAVAILABLE {
			t.Errorf("ended with %v, %v", last, err)
		}
		if want := []time.Duration{0, 3 * time.Second, 8 * time.Second, 13 * time.Second, 14 * time.Second}; !slices.Equal(spoke, want) {
			t.Errorf("spoke after %v, want %v", spoke, want)
		}
	})
}

// TestWorkersPauseAfterAnswers verifies that a busy watch pauses after an answer, unless its receiver has
// failed.
func TestWorkersPauseAfterAnswers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := New()
		l.busy.Store(9)
		for _, failure := range []error{nil, errors.New("gone")} {
			started := time.Now()
			_, _, err := l.respond(t.Context(), begin(t, l, &wire.WatchRequest{}), true, func(*wire.WatchResponse) error {
				time.Sleep(time.Millisecond)
				return failure
			})
			want := time.Millisecond
			if failure == nil {
				want += 10 * restFactor * time.Millisecond
			}
			if took := time.Since(started); took != want || err != failure || l.busy.Load() != 9 {
				t.Errorf("answered after %v, want %v: %v", took, want, err)
			}
		}
	})
}

// TestReceiverThatFails verifies that a receiver that fails gets nothing more, and one that does not gets no
// final response from Serve.
func TestReceiverThatFails(t *testing.T) {
	l, gone := New(), errors.New("gone")
	said := 0
	fail := func(*wire.WatchResponse) error { said++; return gone }
	if final, err := l.Serve(t.Context(), begin(t, l, &wire.WatchRequest{}), fail); final != nil || err != gone || said != 1 {
		t.Errorf("%v, %v after %d responses", final, err, said)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if final, err := l.Serve(ended, begin(t, l, &wire.WatchRequest{}), fail); final != nil || err != context.Canceled || said != 1 {
		t.Errorf("after its end: %v, %v after %d responses", final, err, said)
	}
	w := begin(t, l, &wire.WatchRequest{})
	l.Close()
	if final, err := l.Serve(t.Context(), w, fail); final.GetStatus() != wire.Status_UNAVAILABLE || err != nil || said != 1 {
		t.Errorf("%v, %v after %d responses", final, err, said)
	}
}

// TestWatchesReadInTurn verifies that a watch waits for its turn without the lock, which the state machine needs, and
// not longer than its context lasts, and that a watch that sends keeps nobody from reading.
func TestWatchesReadInTurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := New()
		var said atomic.Int64
		room := make(chan struct{})
		serve := func(ctx context.Context) error {
			_, err := l.Serve(ctx, begin(t, l, &wire.WatchRequest{}), func(*wire.WatchResponse) error {
				said.Add(1)
				<-room
				return nil
			})
			return err
		}
		waiting := func(what string, want int64) {
			t.Helper()
			synctest.Wait()
			if !l.mu.TryLock() {
				t.Fatal(what + ": the log is locked")
			}
			l.mu.Unlock()
			if got := said.Load(); got != want {
				t.Errorf("%s: %d watches have sent, want %d", what, got, want)
			}
		}
		ended, end := context.WithCancel(t.Context())
		others, endOthers := context.WithCancel(t.Context())
		l.turn <- struct{}{}
		first := make(chan error, 1)
		go func() { first <- serve(ended) }()
		go func() { _ = serve(others) }()
		go func() { _ = serve(others) }()
		waiting("before their turn", 0)
		end()
		if err := <-first; err != context.Canceled {
			t.Error(err)
		}
		<-l.turn
		waiting("after the turn", 2)
		endOthers()
		close(room)
	})
}
