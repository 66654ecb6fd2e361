package watch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/eventlog"
	"github.com/quorumlock/quorumlock/server/internal/catchup"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// newWatcher returns a watcher of a node that has caught up, and the proofs that it asks for.
func newWatcher() (*Watcher, chan func(*wire.Result)) {
	proofs := make(chan func(*wire.Result), 2)
	w := &Watcher{
		EventLog: eventlog.New(), CatchUp: catchup.New(), Prove: func(done func(*wire.Result)) { proofs <- done }, Stops: make(chan struct{}),
		Ends: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ends"}, []string{"status"}),
	}
	w.CatchUp.End()
	return w, proofs
}

// startWatch starts a watch.
func startWatch(t *testing.T, l *eventlog.Log, req *wire.WatchRequest) *eventlog.Watch {
	t.Helper()
	w, final := l.Watch(req, nil)
	if w == nil {
		t.Fatalf("no watch: %v", final)
	}
	return w
}

// TestWatchesOfANodeAreBounded starts one watch too many.
func TestWatchesOfANodeAreBounded(t *testing.T) {
	w, _ := newWatcher()
	watch := func() error {
		ended, end := context.WithCancel(t.Context())
		defer end()
		return w.Watch(ended, &wire.WatchRequest{}, nil, func(*wire.WatchResponse) error { end(); return nil })
	}
	for range eventlog.MaxWatches - 1 {
		startWatch(t, w.EventLog, &wire.WatchRequest{})
	}
	if err := watch(); !errors.Is(err, context.Canceled) {
		t.Errorf("the last one ended with %v", err)
	}
	startWatch(t, w.EventLog, &wire.WatchRequest{}) // takes the last place
	if err := watch(); !errors.Is(err, status.ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
}

// TestRevisionsThatAreNotReached requests future revisions and answers the proof that they do not exist in
// each way.
func TestRevisionsThatAreNotReached(t *testing.T) {
	for name, c := range map[string]struct {
		answer wire.Status_Code
		moves  bool // the revision is reached meanwhile
		want   error
	}{
		"there is none":           {wire.Status_OK, false, status.ErrInvalid},
		"it has come":             {wire.Status_OK, true, nil},
		"the leadership was lost": {wire.Status_UNCERTAIN, false, status.ErrNotLeader},
		"the leader is busy":      {wire.Status_UNAVAILABLE, true, status.ErrUnavailable},
	} {
		bubble.Test(t, func(t *testing.T) {
			w, proofs := newWatcher()
			req := &wire.WatchRequest{AfterRevision: 8, Lineage: "l"}
			w.EventLog.Reset(7, "l")
			reached := make(chan error, 1)
			ask := func(ctx context.Context) {
				go func() { reached <- w.reached(ctx, req) }()
				synctest.Wait()
			}
			ask(t.Context())
			if c.moves {
				w.EventLog.Record(nil, 8, "l")
			}
			(<-proofs)(status.Result(c.answer, ""))
			if err := <-reached; !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			w.EventLog.Reset(7, "l")
			ctx, cancel := context.WithCancel(t.Context())
			ask(ctx)
			cancel()
			if err := <-reached; !errors.Is(err, context.Canceled) {
				t.Errorf("given up: %v", err)
			}
		})
	}
}

// TestReceiversThatFail verifies that a receiver gets the final answer once, whether it fails then or not.
func TestReceiversThatFail(t *testing.T) {
	gone := errors.New("gone")
	w, _ := newWatcher()
	w.EventLog.Close()
	for _, want := range []error{nil, gone} {
		said := 0
		err := w.Watch(t.Context(), &wire.WatchRequest{}, nil, func(resp *wire.WatchResponse) error {
			if said++; resp.Status != wire.Status_UNAVAILABLE {
				t.Errorf("said %v", resp)
			}
			return want
		})
		if err != want || said != 1 {
			t.Errorf("%v after %d answers, want %v", err, said, want)
		}
	}
}
