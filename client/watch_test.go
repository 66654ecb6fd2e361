package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

func watchRequests(s seen) bool { return s.req.GetWatch() != nil }
func endWatches(s seen) bool    { return s.req.GetEndRequest() != nil }

// story returns the events of a lock, as "GRANTED x 3" for lock and hold.
func story(events []Event) (lines []string) {
	for _, e := range events {
		lines = append(lines, fmt.Sprintf("%v %s %d", e.Type, e.Lock, e.Token))
	}
	return lines
}

// nextEvents skips progress marks.
func nextEvents(t testing.TB, w *Watcher) Batch {
	t.Helper()
	for {
		batch, err := w.Next(withTimeout(t, time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if len(batch.Events) > 0 {
			return batch
		}
	}
}

func TestWatch(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		w := c.Watch(ctx, WatchOptions{Name: "x"})
		defer w.Close()
		mark, err := w.Next(ctx)
		ok(t, err)
		if len(mark.Events) != 0 || mark.Position.Revision == 0 || mark.Position.Lineage == "" {
			t.Fatalf("no mark, but %v", mark)
		}
		hold := mustLock(t, s, "x")
		mustLock(t, s, "y")
		if got := story(nextEvents(t, w).Events); !slices.Equal(got, []string{"GRANTED x 1"}) {
			t.Fatal(got)
		}
		waiting := lockSoon(ctx, s, "x")
		ok(t, hold.Unlock(ctx))
		ok(t, (<-waiting).err)
		synctest.Wait()
		got := story(nextEvents(t, w).Events)
		batch := nextEvents(t, w)
		if got = append(got, story(batch.Events)...); !slices.Equal(got, []string{"QUEUED x 0", "RELEASED x 1", "GRANTED x 3"}) {
			t.Fatal(got)
		}
		// Another watcher, from that position and from the start.
		again := c.Watch(ctx, WatchOptions{Prefix: "x", After: mark.Position})
		for n := 0; n < 4; {
			n += len(nextEvents(t, again).Events)
		}
		again.Close()
		_, err = again.Next(ctx)
		wantErr(t, err, ErrClosed)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = w.Next(short)
		wantErr(t, err, context.DeadlineExceeded)
		synctest.Wait()
		if len(f.service.history.watches) != 1 {
			t.Fatal("a watch that was closed goes on")
		}
	})
}

func TestWatchEndsWithAStatus(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		own, cancel := context.WithCancel(ctx)
		w := c.Watch(own, WatchOptions{})
		_, err := w.Next(ctx)
		ok(t, err)
		cancel()
		for err == nil { // earlier marks are still returned
			_, err = w.Next(ctx)
		}
		wantErr(t, err, context.Canceled)
		w = c.Watch(own, WatchOptions{})
		_, err = w.Next(ctx)
		wantErr(t, err, context.Canceled)

		_, err = c.Watch(ctx, WatchOptions{After: Position{"other", 3}}).Next(ctx)
		wantErr(t, err, ErrCompacted)
		f.set(func() { f.service.history.oldest = 900 })
		_, err = c.Watch(ctx, WatchOptions{After: Position{"first", 3}}).Next(ctx)
		var compacted *CompactedError
		if !errors.As(err, &compacted) || compacted.Oldest != 900 || compacted.Lineage != "first" {
			t.Fatal(err)
		}

		f.set(func() {
			f.service.history.oldest = 0
			f.intercept = func(cn *fakeConn, req *wire.Request) bool {
				cn.answer(req, respond(status(wire.Status_INVALID_ARGUMENT)))
				return true
			}
		})
		_, err = c.Watch(ctx, WatchOptions{Name: "a", Prefix: "b"}).Next(ctx)
		wantErr(t, err, ErrInvalidArgument)
		f.set(func() { f.intercept = nil })

		for _, last := range []wire.Status_Code{wire.Status_COMPACTED, wire.Status_INTERNAL} {
			w = c.Watch(ctx, WatchOptions{})
			_, err = w.Next(ctx)
			ok(t, err)
			f.set(func() {
				watch := f.service.history.watches[len(f.service.history.watches)-1]
				watch.push(&wire.WatchResponse{Status: last, Oldest: 7, Lineage: "first"})
			})
			_, err = w.Next(ctx)
			wantErr(t, err, sentinel(Status(last)))
			_, err = w.Next(ctx)
			wantErr(t, err, sentinel(Status(last)))
		}

		w = c.Watch(ctx, WatchOptions{})
		ok(t, c.Close())
		for err = nil; err == nil; {
			_, err = w.Next(ctx)
		}
		wantErr(t, err, ErrClientClosed)
		_, err = c.Watch(ctx, WatchOptions{}).Next(ctx)
		wantErr(t, err, ErrClientClosed)
	})
}

// TestWatchOfANewHistory checks that a new lineage is not mistaken for a continuation of the old one.
func TestWatchOfANewHistory(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		w := c.Watch(context.Background(), WatchOptions{})
		_, err := w.Next(context.Background())
		ok(t, err)
		f.set(func() {
			f.service.history.lineage = "second"
			for _, watch := range f.service.history.watches {
				f.service.deliver(watch, true)
			}
		})
		_, err = w.Next(context.Background())
		wantErr(t, err, ErrCompacted)
	})
}

// TestWatchFollowsTheLeader checks that watches ended by a leader that steps down continue with the next
// one.
func TestWatchFollowsTheLeader(t *testing.T) {
	virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		w := c.Watch(ctx, WatchOptions{})
		_, err := w.Next(ctx)
		ok(t, err)
		f.lead("n2", 2)
		f.set(func() {
			old := f.service.history.watches[0]
			f.service.endWatch(old.cn, old.id)
			old.push(&wire.WatchResponse{Status: wire.Status_UNAVAILABLE, Message: "not the leader any more"})
		})
		mustLock(t, s, "x")
		if got := story(nextEvents(t, w).Events); !slices.Equal(got, []string{"GRANTED x 1"}) {
			t.Fatal(got)
		}
		if f.count(watchRequests, at("n2")) != 1 {
			t.Fatal("not with the leader")
		}
	})
}

// TestWatchOfASilentNode checks that a watch on its own detects a node that is gone.
func TestWatchOfASilentNode(t *testing.T) {
	virtual(t, 2, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		w := c.Watch(ctx, WatchOptions{})
		_, err := w.Next(ctx)
		ok(t, err)
		time.Sleep(time.Hour)
		if n := f.node("n1").dials; n != 1 {
			t.Fatalf("%d connections for a watch of what does not happen", n)
		}
		f.set(func() {
			f.intercept = func(cn *fakeConn, _ *wire.Request) bool { return cn.node.id == "n1" }
			f.node("n1").hung = true
		})
		f.lead("n2", 2)
		began := time.Now()
		for f.count(watchRequests, at("n2")) == 0 {
			time.Sleep(time.Second)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Fatalf("took %v", took)
		}
	})
}

// TestWatchKeepsItsConnection checks that the client also shows that it is alive to a node that sends
// events.
func TestWatchKeepsItsConnection(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		w := c.Watch(context.Background(), WatchOptions{})
		for range 120 {
			_, err := w.Next(context.Background())
			ok(t, err)
			time.Sleep(5 * time.Second)
			f.set(func() { f.service.deliver(f.service.history.watches[0], true) })
		}
		all := f.all()
		for i := range all[1:] {
			if gap := all[i+1].at - all[i].at; gap > 90*time.Second {
				t.Fatalf("silent for %v", gap)
			}
		}
		if n := len(all); n < 9 || n > 13 {
			t.Fatalf("%d requests in 10 minutes", n)
		}
	})
}

// TestSlowReaderOfAWatch checks that a slow reader pauses the watch instead of filling memory.
func TestSlowReaderOfAWatch(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		s := f.session(c)
		w := c.Watch(ctx, WatchOptions{})
		_, err := w.Next(ctx)
		ok(t, err)
		const times = 3 * watchAhead / 2
		for range times {
			ok(t, mustLock(t, s, "x").Unlock(ctx))
		}
		synctest.Wait()
		if most := watchAhead + watchAhead/4; w.events > most || f.count(endWatches) == 0 { // plus one batch
			t.Fatalf("%d events in memory", w.events)
		}
		for token := uint64(1); token <= times; {
			for _, e := range nextEvents(t, w).Events {
				if e.Token != token {
					t.Fatalf("token %d, want %d", e.Token, token)
				}
				if e.Type == Released {
					token++
				}
			}
		}
		if n := f.count(watchRequests); n < 2 || n > 4 {
			t.Fatalf("begun %d times", n)
		}
		w.Close()
	})
}

// TestWatchThatIsCutWithinARevision splits a response within a revision, just before a break: no event is
// repeated, and no part of the revision is returned alone.
func TestWatchThatIsCutWithinARevision(t *testing.T) {
	virtual(t, 1, func(t *testing.T, f *fake, c *Client) {
		ctx := context.Background()
		w := c.Watch(ctx, WatchOptions{})
		mark, err := w.Next(ctx)
		ok(t, err)
		events := []*wire.Event{}
		for i := range uint64(8) {
			events = append(events, &wire.Event{Type: wire.Event_EXPIRED, Revision: 1000 + i/4, Lock: "x", Token: i})
		}
		f.set(func() {
			f.service.revision = 1001
			f.service.history.events = events
			f.service.history.watches[0].push(&wire.WatchResponse{Revision: 999, Lineage: "first", Events: events[:3]})
		})
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if batch, err := w.Next(short); err == nil {
			t.Fatalf("after %v: %v", mark, batch)
		}
		f.cut("n1")
		var tokens []uint64
		for len(tokens) < 8 {
			batch := nextEvents(t, w)
			if len(batch.Events)%4 != 0 || batch.Events[0].Revision > batch.Position.Revision {
				t.Fatal("a revision in parts")
			}
			for _, e := range batch.Events {
				tokens = append(tokens, e.Token)
			}
		}
		if !slices.Equal(tokens, []uint64{0, 1, 2, 3, 4, 5, 6, 7}) {
			t.Fatal(tokens)
		}
	})
}

// TestWatchThroughEverything checks that there are no gaps and no repeats, whatever breaks.
func TestWatchThroughEverything(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			virtual(t, 3, func(t *testing.T, f *fake, c *Client) {
				ctx := context.Background()
				s := f.session(c)
				all, one := c.Watch(ctx, WatchOptions{}), c.Watch(ctx, WatchOptions{Name: "x1"})
				begin := []Position{}
				for _, w := range []*Watcher{all, one} {
					mark, err := w.Next(ctx)
					ok(t, err)
					begin = append(begin, mark.Position)
				}
				f.set(func() { f.intercept = mischief(f, rand.New(rand.NewPCG(seed, 9))) })
				stop, moved := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(moved)
					moveLeader(f, stop, 300*time.Millisecond)
				}()
				for i := range 60 {
					hold, err := s.Lock(ctx, fmt.Sprint("x", i%3))
					ok(t, err)
					time.Sleep(20 * time.Millisecond)
					ok(t, hold.Unlock(ctx))
				}
				close(stop)
				<-moved
				f.set(func() { f.intercept = nil })
				time.Sleep(5 * time.Second)
				last := mustLock(t, s, "x1")
				for i, w := range []*Watcher{all, one} {
					var got []Event
					for len(got) == 0 || got[len(got)-1].Token != last.Token() {
						got = append(got, nextEvents(t, w).Events...)
					}
					var want []*wire.Event
					for _, e := range f.service.history.events {
						if e.GetRevision() > begin[i].Revision && (i == 0 || e.GetLock() == "x1") {
							want = append(want, e)
						}
					}
					if want := story(eventsOf(want)); !slices.Equal(story(got), want) {
						t.Errorf("got %v, want %v", story(got), want)
					}
					w.Close()
				}
				synctest.Wait()
				if n := f.count(watchRequests); n < 10 {
					t.Errorf("begun only %d times: this proves little", n)
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				if len(c.watchers)+len(c.watching) != 0 {
					t.Error("the client keeps what was closed")
				}
			})
		})
	}
}
