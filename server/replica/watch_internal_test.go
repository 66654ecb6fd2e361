package replica

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestBusyWatchesRest verifies that watches pause in proportion to their number and to the duration of their
// answer, within bounds.
func TestBusyWatchesRest(t *testing.T) {
	for _, test := range []struct {
		took time.Duration
		busy int64
		want time.Duration
	}{
		{time.Second, 1, 0},
		{10 * time.Microsecond, 10, 0},
		{leastRest/4 - 1, 2, 0},
		{leastRest / 4, 2, leastRest},
		{10 * time.Microsecond, 1_000, 20 * time.Millisecond},
		{time.Millisecond, 10_000, longestRest},
		{time.Hour, 10_000, longestRest},
	} {
		bubble.Test(t, func(t *testing.T) {
			begun := time.Now()
			restWatch(t.Context(), test.took, test.busy)
			if got := time.Since(begun); got != test.want {
				t.Errorf("%d watches that took %v rest %v, want %v", test.busy, test.took, got, test.want)
			}
			ended, end := context.WithCancel(t.Context())
			end()
			if restWatch(ended, time.Hour, 2); time.Since(begun) != test.want {
				t.Error("a watch that has ended rests")
			}
		})
	}
}

// TestWatchIsSilentWhileItSkips verifies that a watch that scans more events of others than one read does is
// silent until it has scanned them all.
func TestWatchIsSilentWhileItSkips(t *testing.T) {
	const others = 3 * scanAtOnce
	r := &Replica{history: newHistory()}
	r.history.record(nil, 1, "l")
	for revision := range uint64(others) {
		r.history.record([]*wire.Event{{Revision: revision + 2, Lock: "other"}}, revision+2, "l")
	}
	w, _ := r.history.watch(&wire.WatchRequest{Name: "mine", AfterRevision: 1, Lineage: "l"})
	var said []uint64
	for drained, rounds := false, 0; !drained; rounds++ {
		if rounds > others {
			t.Fatal("the watch does not come to the end")
		}
		_, drained, _ = r.answer(t.Context(), w, true, func(resp *wire.WatchResponse) error {
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
		r := governing(t)
		h := r.history
		h.record(nil, 1, "l")
		for range 3 * scanAtOnce {
			happen(h, lockEvent("other", 1))
		}
		w := begin(t, h, &wire.WatchRequest{Name: "mine", AfterRevision: 1, Lineage: "l"})
		begun := time.Now()
		var spoke []time.Duration
		var last *wire.WatchResponse
		ended := make(chan error, 1)
		go func() {
			ended <- r.follow(t.Context(), w, func(resp *wire.WatchResponse) error {
				spoke, last = append(spoke, time.Since(begun)), resp
				return nil
			})
		}()
		time.Sleep(time.Second)
		w.poke() // nothing has happened
		time.Sleep(2 * time.Second)
		happen(h, lockEvent("mine", 1))
		time.Sleep(2 * time.Second)
		w.poke()
		time.Sleep(9 * time.Second) // until 14 s
		h.close()
		if err := <-ended; err != nil || last.GetStatus() != wire.Status_UNAVAILABLE {
			t.Errorf("ended with %v, %v", last, err)
		}
		if want := []time.Duration{0, 3 * time.Second, 8 * time.Second, 13 * time.Second, 14 * time.Second}; !slices.Equal(spoke, want) {
			t.Errorf("spoke after %v, want %v", spoke, want)
		}
	})
}

// TestWatchesOfANodeAreBounded starts one watch too many.
func TestWatchesOfANodeAreBounded(t *testing.T) {
	r := governing(t)
	r.catchUp = newCatchUp()
	r.catchUp.end()
	watch := func() error {
		ended, end := context.WithCancel(t.Context())
		defer end()
		return r.Watch(ended, &wire.WatchRequest{}, func(*wire.WatchResponse) error { end(); return nil })
	}
	for range maxWatches - 1 {
		begin(t, r.history, &wire.WatchRequest{})
	}
	if err := watch(); !errors.Is(err, context.Canceled) {
		t.Errorf("the last one ended with %v", err)
	}
	begin(t, r.history, &wire.WatchRequest{}) // takes the last place
	if err := watch(); !errors.Is(err, ErrTooMany) {
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
		"there is none":           {wire.Status_OK, false, ErrInvalid},
		"it has come":             {wire.Status_OK, true, nil},
		"the leadership was lost": {wire.Status_UNCERTAIN, false, ErrNotLeader},
		"the leader is busy":      {wire.Status_UNAVAILABLE, true, ErrUnavailable},
	} {
		bubble.Test(t, func(t *testing.T) {
			r := governing(t)
			req := &wire.WatchRequest{AfterRevision: 8, Lineage: "l"}
			r.history.reset(7, "l")
			reached := make(chan error, 1)
			ask := func(ctx context.Context) {
				go func() { reached <- r.reached(ctx, req) }()
				synctest.Wait()
			}
			ask(t.Context())
			if c.moves {
				happen(r.history)
			}
			r.proposer.end(refused(c.answer, ""))
			if err := <-reached; !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			r.proposer.begin(2)
			r.proposer.serve(2, 1)
			r.history.reset(7, "l")
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
	r.states = &peerStates{begun: make(chan struct{}, 1)}
	awaited := true
	c := recorder{r.machine, r.history, r.hashes, newCatchUp(), r.states, func() bool { return awaited }}
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
	w := begin(t, r.history, &wire.WatchRequest{})
	if applied, ok := apply(&wire.Entry{Commands: []*wire.Command{opening("b")}, HashPoint: true}).(*fsm.Applied); !ok || len(applied.Results) != 1 {
		t.Errorf("applied: %v", applied)
	}
	if resp, _ := r.history.read(w); len(resp.Events) != 1 || resp.Revision != r.history.revision || len(r.states.begun) != 1 {
		t.Errorf("recorded %v", resp)
	}
	if next := r.hashes.next; next == nil || next.index != index || c.catchUp.applied.Load() != index {
		t.Errorf("hashed next: %v", next)
	}
	if response := c.Apply(&raft.Log{Index: index, Data: []byte("\xff")}); !errors.Is(response.(error), fsm.ErrMalformed) {
		t.Errorf("an entry that is none: %v", response)
	}
	awaited = false
	if response := apply(&wire.Entry{Commands: []*wire.Command{opening("c")}}); response != nil || r.hashes.next.index == index {
		t.Errorf("nobody waits for %v", response)
	}
	if response := c.Apply(&raft.Log{Index: index, Data: []byte("\xff")}); !errors.Is(response.(error), fsm.ErrMalformed) {
		t.Errorf("an entry that is none, and nobody waits: %v", response)
	}

	var state bytes.Buffer
	r.machine.View(func(m *fsm.Machine) {
		if err := m.Fork().WriteSnapshot(&state); err != nil {
			t.Error(err)
		}
	})
	if err := c.Restore(io.NopCloser(strings.NewReader("none"))); err == nil || w.cut {
		t.Errorf("a snapshot that is none: %v", err)
	}
	<-r.states.begun
	r.states.term.Store(0)
	if err := c.Restore(io.NopCloser(&state)); err != nil || !w.cut || len(r.states.begun) != 1 {
		t.Errorf("a snapshot: %v", err)
	}
}

// TestReceiversThatFail verifies that a receiver that fails gets nothing more, not even a last answer, which
// it gets once otherwise.
func TestReceiversThatFail(t *testing.T) {
	r, gone := governing(t), errors.New("gone")
	r.catchUp = newCatchUp()
	r.catchUp.end()
	said := 0
	fail := func(*wire.WatchResponse) error { said++; return gone }
	take := func(resp *wire.WatchResponse) error {
		if said++; resp.Status != wire.Status_UNAVAILABLE {
			t.Errorf("said %v", resp)
		}
		return nil
	}
	one, other := begin(t, r.history, &wire.WatchRequest{}), begin(t, r.history, &wire.WatchRequest{})
	r.history.close()
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"one that fails":          {r.follow(t.Context(), one, fail), gone},
		"one that does not":       {r.follow(t.Context(), other, take), nil},
		"a new one that fails":    {r.Watch(t.Context(), &wire.WatchRequest{}, fail), gone},
		"a new one that does not": {r.Watch(t.Context(), &wire.WatchRequest{}, take), nil},
	} {
		if c.err != c.want {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	if said != 4 {
		t.Errorf("said %d last words to four", said)
	}
}

// TestAnswersAreFollowedByARest verifies that a busy watch pauses after an answer, unless its receiver has
// failed.
func TestAnswersAreFollowedByARest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := &Replica{history: newHistory()}
		r.busyWatches.Store(9)
		for _, failure := range []error{nil, errDisk} {
			begun := time.Now()
			_, _, err := r.answer(t.Context(), begin(t, r.history, &wire.WatchRequest{}), true, func(*wire.WatchResponse) error {
				time.Sleep(time.Millisecond)
				return failure
			})
			want := time.Millisecond
			if failure == nil {
				want += 10 * restFactor * time.Millisecond
			}
			if took := time.Since(begun); took != want || err != failure || r.busyWatches.Load() != 9 {
				t.Errorf("answered after %v, want %v: %v", took, want, err)
			}
		}
	})
}
