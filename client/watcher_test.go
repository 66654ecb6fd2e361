package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// started returns an active watch of a client whose goroutine does not run.
func started(t *testing.T) (*Client, *Watcher) {
	c, _ := opened(t)
	w := c.Watch(context.Background(), WatchOptions{Name: "x"})
	k := w.call
	c.answered(c.conn, k, respond(status(wire.Status_OK)))
	c.flight.remove(k)
	c.byID.remove(k)
	return c, w
}

func eventsAt(revisions ...uint64) (events []*wire.Event) {
	for _, r := range revisions {
		events = append(events, &wire.Event{Revision: r})
	}
	return events
}

// TestAppend checks that each event arrives once, whole by revision, and that progress marks replace each
// other.
func TestAppend(t *testing.T) {
	type arrival struct {
		revision uint64
		events   []uint64
	}
	for name, test := range map[string]struct {
		at       uint64 // position of the watch
		arrivals []arrival
		batches  [][]uint64
		position uint64
		cut      int
	}{
		"a mark":               {0, []arrival{{5, nil}}, [][]uint64{nil}, 5, 0},
		"two marks":            {0, []arrival{{5, nil}, {6, nil}}, [][]uint64{nil}, 6, 0},
		"an older mark":        {0, []arrival{{6, nil}, {5, nil}}, [][]uint64{nil}, 6, 0},
		"events":               {0, []arrival{{6, []uint64{5, 6}}}, [][]uint64{{5, 6}}, 6, 0},
		"a mark behind events": {0, []arrival{{6, []uint64{5, 6}}, {9, nil}}, [][]uint64{{5, 6}}, 9, 0},
		"events behind a mark": {0, []arrival{{5, nil}, {6, []uint64{6}}}, [][]uint64{nil, {6}}, 6, 0},
		"events twice":         {5, []arrival{{7, []uint64{4, 5, 6, 7}}}, [][]uint64{{6, 7}}, 7, 0},
		"nothing but repeats":  {7, []arrival{{7, []uint64{6, 7}}}, [][]uint64{nil}, 7, 0},
		"from the beginning":   {0, []arrival{{7, []uint64{0, 7}}}, [][]uint64{{0, 7}}, 7, 0},
		"part of a revision":   {3, []arrival{{5, []uint64{4, 6}}}, [][]uint64{{4}}, 5, 1},
		"only a part":          {3, []arrival{{5, []uint64{6, 6}}}, nil, 5, 2},
		"part and rest":        {3, []arrival{{5, []uint64{4, 6}}, {6, []uint64{6}}}, [][]uint64{{4}, {6, 6}}, 6, 0},
		"part, more of it":     {3, []arrival{{5, []uint64{6}}, {5, []uint64{6}}, {7, []uint64{7}}}, [][]uint64{{6, 6, 7}}, 7, 0},
	} {
		bubble.Test(t, func(t *testing.T) {
			_, w := started(t)
			w.at = Position{"l", test.at}
			for _, a := range test.arrivals {
				w.arrived(&wire.WatchResponse{Status: wire.Status_OK, Revision: a.revision, Lineage: "l", Events: eventsAt(a.events...)})
			}
			var got [][]uint64
			count := 0
			for _, batch := range w.batches {
				var revisions []uint64
				for _, e := range batch.events {
					revisions = append(revisions, e.GetRevision())
				}
				got = append(got, revisions)
				count += len(revisions)
			}
			if !slices.EqualFunc(got, test.batches, slices.Equal) || w.at.Revision != test.position || len(w.cut) != test.cut || w.events != count {
				t.Errorf("%s: %v at %v with %d cut, want %v", name, got, w.at, len(w.cut), test.batches)
			}
			if last := len(w.batches) - 1; last >= 0 && test.cut == 0 && w.batches[last].position != w.at {
				t.Errorf("%s: the last batch is at %v", name, w.batches[last].position)
			}
			if (len(w.wake) == 1) != (len(test.batches) > 0) {
				t.Errorf("%s: Next is woken: %v", name, len(w.wake) == 1)
			}
		})
	}
}

// TestWatchArrivals checks which responses end a watch and which make it continue elsewhere, and that the
// node is notified of the end unless it knows.
func TestWatchArrivals(t *testing.T) {
	for name, test := range map[string]struct {
		said      *wire.WatchResponse
		want      error
		told      bool // the node is notified
		elsewhere bool
	}{
		"a mark":            {&wire.WatchResponse{Status: wire.Status_OK, Lineage: "l"}, nil, false, false},
		"without a status":  {&wire.WatchResponse{Lineage: "l"}, nil, false, false},
		"compacted":         {&wire.WatchResponse{Status: wire.Status_COMPACTED, Oldest: 7}, ErrCompacted, false, false},
		"another history":   {&wire.WatchResponse{Status: wire.Status_OK, Lineage: "m"}, ErrCompacted, true, false},
		"not the leader":    {&wire.WatchResponse{Status: wire.Status_NOT_LEADER}, nil, false, true},
		"unavailable":       {&wire.WatchResponse{Status: wire.Status_UNAVAILABLE}, nil, false, true},
		"too many watches":  {&wire.WatchResponse{Status: wire.Status_RESOURCE_EXHAUSTED}, ErrResourceExhausted, false, false},
		"more than is read": {&wire.WatchResponse{Status: wire.Status_OK, Lineage: "l", Revision: 9, Events: eventsAt(make([]uint64, watchAhead+1)...)}, nil, true, false},
		"as much as that":   {&wire.WatchResponse{Status: wire.Status_OK, Lineage: "l", Revision: 9, Events: eventsAt(make([]uint64, watchAhead)...)}, nil, false, false},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, w := started(t)
			w.at.Lineage = "l"
			w.arrived(test.said)
			ends := c.flight.n
			if !errors.Is(w.err, test.want) || (w.err == nil) != (test.want == nil) || (ends == 1) != test.told {
				t.Errorf("%s: ended with %v, the node is told: %v", name, w.err, ends == 1)
			}
			goesOn := test.want == nil && !test.told && !test.elsewhere
			if (w.conn != nil) != goesOn || (c.watching[w.id] == w) != goesOn || (w.call != nil) != test.elsewhere {
				t.Errorf("%s: it is under way: %v, begun anew: %v", name, w.conn != nil, w.call != nil)
			}
			if test.elsewhere && w.call.list != &c.stalled {
				t.Errorf("%s: it is not begun anew after a while", name)
			}
			if _, kept := c.watchers[w]; kept == (test.want != nil) {
				t.Errorf("%s: the watcher is kept: %v", name, kept)
			}
		})
	}
}

// TestDetach checks that ending a watch notifies the node only on the watch's own connection.
func TestDetach(t *testing.T) {
	for name, test := range map[string]struct {
		deliver bool
		change  func(c *Client)
		told    bool
	}{
		"told":               {true, func(*Client) {}, true},
		"not told":           {false, func(*Client) {}, false},
		"another connection": {true, func(c *Client) { c.conn = &conn{} }, false},
		"closed":             {true, func(c *Client) { c.closed = true }, false},
	} {
		bubble.Test(t, func(t *testing.T) {
			c, w := started(t)
			w.cut = eventsAt(3)
			cn, id := c.conn, w.id
			test.change(c)
			w.detach(test.deliver)
			if w.conn != nil || w.cut != nil || c.watching[id] != nil {
				t.Errorf("%s: it is under way", name)
			}
			c.conn = cn
			if told := c.flight.n+c.urgent.n > 0; told != test.told || told && c.flight.head.request.GetEndRequest().GetRequestId() != id {
				t.Errorf("%s: the node is told: %v", name, told)
			}
			w.detach(true)
			if c.flight.n > 1 {
				t.Errorf("%s: told twice", name)
			}
		})
	}
}

// TestWatcherEndsBeforeItsWatch checks that a watcher that ends before its request was answered also ends
// the watch on the node, if the request was sent.
func TestWatcherEndsBeforeItsWatch(t *testing.T) {
	for _, sent := range []bool{true, false} {
		bubble.Test(t, func(t *testing.T) {
			c, _ := opened(t)
			c.conn.leads = sent
			w := c.Watch(context.Background(), WatchOptions{})
			k := w.call
			if (k.list == &c.flight) != sent {
				t.Fatal("the test proves nothing")
			}
			w.Close()
			w.Close()
			ends := 0
			for _, k := range slices.Concat(c.flight.all(), c.urgent.all()) {
				if end := k.request.GetEndRequest(); end != nil {
					ends++
				}
			}
			if !k.finished || w.call != nil || (ends == 1) != sent || len(c.watchers) != 0 || !errors.Is(w.err, ErrClosed) {
				t.Errorf("sent %v: over %v, %d ends, %v", sent, k.finished, ends, w.err)
			}
			if w.answered(k); w.conn != nil || len(c.watching) != 0 {
				t.Errorf("sent %v: the answer begins it", sent)
			}
		})
	}
}

// TestRewatch checks that the watches of an ended connection resume where they stopped.
func TestRewatch(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, w := started(t)
		w.at = Position{"l", 5}
		c.rewatch(&conn{})
		if w.conn == nil || w.call != nil {
			t.Error("another connection has ended")
		}
		cn := c.conn
		c.conn = nil
		c.rewatch(cn)
		at := w.call.request.GetWatch()
		if w.conn != nil || len(c.watching) != 0 || w.call.list != &c.ready || at.GetAfterRevision() != 5 || at.GetLineage() != "l" || at.GetName() != "x" {
			t.Errorf("it goes on with %v", at)
		}
	})
}

// TestPausedWatchGoesOn checks that a watch paused for a slow reader resumes once the buffered events are
// read.
func TestPausedWatchGoesOn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, w := started(t)
		w.arrived(&wire.WatchResponse{Status: wire.Status_OK, Lineage: "l", Revision: 9, Events: eventsAt(make([]uint64, watchAhead+1)...)})
		w.batches = append(w.batches, batch{position: w.at})
		if _, ok, err := w.take(); !ok || err != nil || w.call != nil || w.events != 0 {
			t.Errorf("begun anew %v with a batch to be read, %v", w.call != nil, err)
		}
		if _, ok, err := w.take(); !ok || err != nil || w.call == nil || w.call.list != &c.flight || w.batches != nil {
			t.Errorf("not begun anew, %v", err)
		}
		if _, ok, err := w.take(); ok || err != nil {
			t.Errorf("something comes out of nothing, %v", err)
		}
		w.batches = []batch{{position: w.at}}
		w.Close()
		if _, ok, err := w.take(); !ok || err != nil || w.call != nil {
			t.Errorf("after Close: %v, begun anew %v", err, w.call != nil)
		}
		if _, ok, err := w.take(); ok || !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestWhatMattersToObservers checks which events may have changed the leader: all except some kinds, and
// only later ones.
func TestWhatMattersToObservers(t *testing.T) {
	never := map[wire.Event_Type]bool{
		wire.Event_QUEUED: true, wire.Event_CANCELLED: true, wire.Event_WANTED: true, wire.Event_REVOKED: true,
		wire.Event_EXTENDED: true, wire.Event_DELAY_ENDED: true,
	}
	o := &observer{seen: 10}
	for number := range wire.Event_Type_name {
		what := wire.Event_Type(number)
		for revision, later := range map[uint64]bool{9: false, 10: false, 11: true} {
			events := []*wire.Event{{Type: wire.Event_QUEUED, Revision: 99}, {Type: what, Revision: revision}}
			if got := o.matters(events); got != (later && !never[what]) {
				t.Errorf("%v at %d matters: %v", what, revision, got)
			}
		}
	}
	if o.matters(nil) {
		t.Error("nothing matters")
	}
}

// TestObserverPauses checks that attempts to observe back off, and end with the ctx or the client.
func TestObserverPauses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c, _ := still(t)
		o := &observer{client: c, retries: 20}
		started, longest := time.Now(), time.Duration(0)
		for range 30 {
			at := time.Now()
			if !o.pause(context.Background()) {
				t.Fatal("it gives up")
			}
			longest = max(longest, time.Since(at))
		}
		if took := time.Since(started); o.retries != 50 || took < 30*observeMost/4 || longest > observeMost+time.Millisecond {
			t.Errorf("%d retries in %v", o.retries-20, took)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if o.pause(ended) {
			t.Error("it goes on after its ctx")
		}
		c.endUse()
		if o.pause(context.Background()) {
			t.Error("it goes on after the client")
		}
	})
}
