package replica

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/server/catchup"
	"github.com/quorumlock/quorumlock/server/eventlog"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// startWatch starts a watch.
func startWatch(t *testing.T, l *eventlog.Log, req *wire.WatchRequest) *eventlog.Watch {
	t.Helper()
	w, final := l.Watch(req)
	if w == nil {
		t.Fatalf("no watch: %v", final)
	}
	return w
}

// TestWatchesOfANodeAreBounded starts one watch too many.
func TestWatchesOfANodeAreBounded(t *testing.T) {
	r := governing(t)
	r.catchUp = catchup.New()
	r.catchUp.End()
	watch := func() error {
		ended, end := context.WithCancel(t.Context())
		defer end()
		return r.Watch(ended, &wire.WatchRequest{}, func(*wire.WatchResponse) error { end(); return nil })
	}
	for range eventlog.MaxWatches - 1 {
		startWatch(t, r.eventLog, &wire.WatchRequest{})
	}
	if err := watch(); !errors.Is(err, context.Canceled) {
		t.Errorf("the last one ended with %v", err)
	}
	startWatch(t, r.eventLog, &wire.WatchRequest{}) // takes the last place
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
			r := governing(t)
			req := &wire.WatchRequest{AfterRevision: 8, Lineage: "l"}
			r.eventLog.Reset(7, "l")
			reached := make(chan error, 1)
			ask := func(ctx context.Context) {
				go func() { reached <- r.reached(ctx, req) }()
				synctest.Wait()
			}
			ask(t.Context())
			if c.moves {
				r.eventLog.Record(nil, 8, "l")
			}
			r.Proposer.End(status.Result(c.answer, ""))
			if err := <-reached; !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			r.Proposer.Begin(2)
			r.Proposer.Serve(2, 1)
			r.eventLog.Reset(7, "l")
			ctx, cancel := context.WithCancel(t.Context())
			ask(ctx)
			cancel()
			if err := <-reached; !errors.Is(err, context.Canceled) {
				t.Errorf("given up: %v", err)
			}
		})
	}
}

// TestWhatIsRecorded applies entries and restores snapshots, valid ones and others.
func TestWhatIsRecorded(t *testing.T) {
	r := governing(t)
	terms := 0
	applied := func(uint64) { terms++ }
	awaited := true
	marked := uint64(0)
	mark := func(index uint64, _ *fsm.Machine) { marked = index }
	c := recorder{r.machine, r.eventLog, mark, catchup.New(), applied, func() bool { return awaited }}
	index := r.machine.AppliedIndex()
	apply := func(e *wire.Entry) any {
		index++
		data, err := proto.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return c.Apply(&raft.Log{Index: index, Data: data})
	}
	apply(&wire.Entry{Commands: []*wire.Command{opening("a")}}) // the event log starts here
	w := startWatch(t, r.eventLog, &wire.WatchRequest{})
	if applied, ok := apply(&wire.Entry{Commands: []*wire.Command{opening("b")}, HashPoint: true}).(*fsm.Applied); !ok || len(applied.Results) != 1 {
		t.Errorf("applied: %v", applied)
	}
	if resp, _ := r.eventLog.Read(w); len(resp.Events) != 1 || resp.Events[0].SessionId == 0 || terms != 2 {
		t.Errorf("recorded %v", resp)
	}
	if marked != index {
		t.Errorf("marked: %d", marked)
	}
	if response := c.Apply(&raft.Log{Index: index, Data: []byte("\xff")}); !errors.Is(response.(error), fsm.ErrMalformed) {
		t.Errorf("an entry that is none: %v", response)
	}
	awaited = false
	if response := apply(&wire.Entry{Commands: []*wire.Command{opening("c")}}); response != nil || marked == index {
		t.Errorf("nobody waits for %v", response)
	}
	if response := c.Apply(&raft.Log{Index: index, Data: []byte("\xff")}); !errors.Is(response.(error), fsm.ErrMalformed) {
		t.Errorf("an entry that is none, and nobody waits: %v", response)
	}

	cut := func() bool {
		resp, _ := r.eventLog.Read(w)
		return resp.Status == wire.Status_COMPACTED
	}
	var state bytes.Buffer
	r.machine.View(func(m *fsm.Machine) {
		if err := m.Fork().WriteSnapshot(&state); err != nil {
			t.Error(err)
		}
	})
	if err := c.Restore(io.NopCloser(strings.NewReader("none"))); err == nil || cut() {
		t.Errorf("a snapshot that is none: %v", err)
	}
	terms = 0
	if err := c.Restore(io.NopCloser(&state)); err != nil || !cut() || terms != 1 {
		t.Errorf("a snapshot: %v", err)
	}
}

// TestReceiversThatFail verifies that a receiver gets the final answer once, whether it fails then or not.
func TestReceiversThatFail(t *testing.T) {
	r, gone := governing(t), errors.New("gone")
	r.catchUp = catchup.New()
	r.catchUp.End()
	r.eventLog.Close()
	for _, want := range []error{nil, gone} {
		said := 0
		err := r.Watch(t.Context(), &wire.WatchRequest{}, func(resp *wire.WatchResponse) error {
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
