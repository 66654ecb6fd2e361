package eventlog

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestAnswersOfAWatchAreBounded verifies that an answer ends at the event that reaches the bound: between two
// revisions, and within one only if that is very long.
func TestAnswersOfAWatchAreBounded(t *testing.T) {
	const each = 1 << 10
	event := func() *wire.Event {
		e := lockEvent("x", 1)
		e.Reason = strings.Repeat("r", each-size(e))
		return e
	}
	for name, c := range map[string]struct {
		revisions, events int // of each revision
		want              int // in the first answer
	}{
		"between revisions": {watchBytes/each + 9, 1, watchBytes / each},
		"within a revision": {1, revisionBytes/each + 9, revisionBytes / each},
		"a whole revision":  {1, revisionBytes / each, revisionBytes / each},
		"at its end":        {2, watchBytes/each + 1, watchBytes/each + 1},
	} {
		h := New()
		w := begin(t, h, &wire.WatchRequest{})
		for range c.revisions {
			events := make([]*wire.Event, c.events)
			for i := range events {
				events[i] = event()
			}
			happen(h, events...)
		}
		resp, drained := h.Read(w)
		if len(resp.Events) != c.want || drained != (c.revisions*c.events == c.want) {
			t.Errorf("%s: %d events, want %d; drained %v", name, len(resp.Events), c.want, drained)
		}
	}
}

// TestWatchesLookAtSoManyEventsAtOnce verifies that one read scans at most scanAtOnce events.
func TestWatchesLookAtSoManyEventsAtOnce(t *testing.T) {
	h := New()
	w := begin(t, h, &wire.WatchRequest{SessionId: 2})
	happen(h, lockEvent("x", 2))
	for range scanAtOnce {
		happen(h, lockEvent("x", 1))
	}
	first := w.next
	if resp, drained := h.Read(w); len(resp.Events) != 1 || drained || w.next-first != scanAtOnce {
		t.Errorf("%d events after a look at %d; drained %v", len(resp.Events), w.next-first, drained)
	}
	if _, drained := h.Read(w); !drained {
		t.Error("there is more")
	}
}

// TestResumedWatchNeedsNoOlderEvents resumes after the oldest event, which is then dropped.
func TestResumedWatchNeedsNoOlderEvents(t *testing.T) {
	h := smallEventLog(16)
	for range 16 {
		happen(h, lockEvent("x", 1))
	}
	w := begin(t, h, &wire.WatchRequest{AfterRevision: 1})
	happen(h, lockEvent("x", 1))
	if resp, drained := h.Read(w); len(resp.Events) != 16 || resp.Events[0].Revision != 2 || !drained {
		t.Errorf("%v", resp)
	}
}

// TestEventLogThatBeginsAnewIsEmpty verifies that an event log that starts over keeps no memory.
func TestEventLogThatBeginsAnewIsEmpty(t *testing.T) {
	h := New()
	for range 3*pageEvents + 5 {
		happen(h, lockEvent("x", 1))
	}
	h.Reset(1_000, "here")
	kept := 0
	for _, page := range h.ring {
		kept += len(page)
	}
	if _, events := h.Size(); events != 0 || kept != 0 || h.bytes != 0 {
		t.Errorf("%d events, %d bytes, counted %d", events, kept, h.bytes)
	}
	w := begin(t, h, &wire.WatchRequest{})
	happen(h, lockEvent("x", 1))
	if resp, _ := h.Read(w); len(resp.Events) != 1 || resp.Revision != 1_001 {
		t.Errorf("%v", resp)
	}
}

// TestRevisionsOfTheFuture verifies that only revisions of this lineage after the present one are in the
// future.
func TestRevisionsOfTheFuture(t *testing.T) {
	h := New()
	h.Reset(7, "here")
	for _, c := range []struct {
		after   uint64
		lineage string
		want    bool
	}{{7, "here", false}, {8, "here", true}, {8, "there", false}, {8, "", false}, {0, "here", false}} {
		if present, future := h.Future(&wire.WatchRequest{AfterRevision: c.after, Lineage: c.lineage}); future != c.want || present != 7 {
			t.Errorf("%d of %q: %v, at %d", c.after, c.lineage, future, present)
		}
	}
	h.Close()
	if _, future := h.Future(&wire.WatchRequest{AfterRevision: 8, Lineage: "here"}); future {
		t.Error("a history that has ended has a future")
	}
}
