package replica

import (
	"bytes"
	"sort"
	"sync"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// Bounds of the applied events that a node keeps.
	historyEvents = 1 << 16
	historyBytes  = 16 << 20
	// pageEvents is the number of events in a page. Finding an event means skipping those before it in its
	// page.
	pageEvents = 1 << 6
	// eventBytes is the size of an event in an answer, without its texts.
	eventBytes = 320
	// maxWatches bounds the watches of a node.
	maxWatches = 10_000
	// An answer to a watch ends with the revision in which it reaches watchBytes, about 200 events, but once
	// it reaches revisionBytes it ends within a revision.
	watchBytes    = 64 << 10
	revisionBytes = 1 << 20
	// scanAtOnce bounds the events that one read scans, since the others wait for the lock meanwhile, above
	// all the goroutine that applies entries.
	scanAtOnce = 2048
)

// history is the event log: the last events that this node has applied, in order. Watches read it at their
// own pace, and nothing waits for them: a watch whose next event has been dropped ends with COMPACTED.
// Positions count events since the node was opened.
type history struct {
	// limit bounds the events, limitBytes their packed size.
	limit      uint64
	limitBytes int

	mu sync.Mutex
	// lineage and revision are those of the state machine after the entry of the last event.
	lineage  string
	revision uint64
	// oldest is the first revision after which no event is missing here.
	oldest uint64
	// ring holds the pages, each with packed events one after the other. The oldest and the newest page may
	// be incomplete. The newest shares the memory of page, where it is being filled.
	ring        [historyEvents/pageEvents + 1][]byte
	page        []byte
	first, next uint64
	// forgotten is the size of the dropped part of the oldest page, bytes that of all pages.
	forgotten, bytes int
	closed           bool

	interest
}

func newHistory() *history {
	return &history{limit: historyEvents, limitBytes: historyBytes, interest: newInterest()}
}

// record appends the events of an entry, after which the state machine is at that revision. If the lineage
// has changed, the log starts over.
func (h *history) record(events []*wire.Event, revision uint64, lineage string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lineage != h.lineage {
		h.begin(revision, lineage)
		return
	}
	h.revision = revision
	for _, e := range events {
		h.put(e)
	}
}

// reset drops everything: the state has been replaced by one at that revision, and the events in between are
// unknown.
func (h *history) reset(revision uint64, lineage string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begin(revision, lineage)
}

func (h *history) begin(revision uint64, lineage string) {
	h.lineage, h.revision, h.oldest = lineage, revision, revision
	clear(h.ring[:])
	h.next += pageEvents - h.next%pageEvents // continue on a new page
	h.first, h.forgotten, h.bytes, h.page = h.next, 0, 0, h.page[:0]
	h.all(func(w *watch) {
		w.cut = true
		w.poke()
	})
}

// close ends every watch.
func (h *history) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.all((*watch).poke)
}

func (h *history) put(e *wire.Event) {
	if h.next-h.first >= h.limit {
		h.drop()
	}
	before := len(h.page)
	h.page = pack(h.page, e)
	h.bytes += len(h.page) - before
	*h.pageOf(h.next) = h.page
	h.next++
	for h.bytes > h.limitBytes && h.first < h.next-1 {
		h.drop()
	}
	if h.next%pageEvents == 0 {
		*h.pageOf(h.next - 1) = bytes.Clone(h.page)
		h.page = h.page[:0]
	}
	h.concerned(e, func(w *watch) {
		if !w.behind {
			w.behind, w.next = true, h.next-1
			w.poke()
		}
	})
}

// drop drops the oldest event, and its page if that was the last event there.
func (h *history) drop() {
	page := h.pageOf(h.first)
	event, rest := cut((*page)[h.forgotten:])
	h.oldest, h.forgotten = packed(event).revision(), len(*page)-len(rest)
	if h.first++; h.first%pageEvents == 0 {
		h.bytes -= len(*page)
		*page, h.forgotten = nil, 0
	}
}

func (h *history) pageOf(position uint64) *[]byte {
	return &h.ring[position/pageEvents%uint64(len(h.ring))]
}

// from returns an event and those after it in its page, packed.
func (h *history) from(position uint64) []byte {
	rest := *h.pageOf(position)
	for range position % pageEvents {
		_, rest = cut(rest)
	}
	return rest
}

func (h *history) revisionAt(position uint64) uint64 {
	event, _ := cut(h.from(position))
	return packed(event).revision()
}

// size returns about how much memory an event takes, in bytes.
func size(e *wire.Event) int {
	n := eventBytes + len(e.Lock) + len(e.Reason)
	for _, name := range e.Locks {
		n += 16 + len(name)
	}
	return n
}

// watch starts a watch. If it cannot, it returns an answer that is the watch's only one, or nil if there are
// too many watches.
func (h *history) watch(req *wire.WatchRequest) (*watch, *wire.WatchResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	after, lineage := req.GetAfterRevision(), req.GetLineage()
	switch {
	case h.closed:
		return nil, h.unavailable()
	case lineage != h.lineage && (lineage != "" || after != 0):
		return nil, h.compacted("the revision is of another history: a backup was restored since")
	case after != 0 && after < h.oldest:
		return nil, h.compacted("the events after that revision are no longer in this node's memory")
	case h.watches >= maxWatches:
		return nil, nil
	}
	w := &watch{name: req.GetName(), prefix: req.GetPrefix(), session: req.GetSessionId(), after: after, next: h.next, wake: make(chan struct{}, 1)}
	if after != 0 {
		w.next = h.first + uint64(sort.Search(int(h.next-h.first), func(i int) bool { return h.revisionAt(h.first+uint64(i)) > after }))
		w.behind = w.next < h.next
	}
	h.enter(w)
	return w, nil
}

// future reports whether the request refers to this lineage and to a revision after the present one.
func (h *history) future(req *wire.WatchRequest) (present uint64, future bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.revision, !h.closed && req.GetLineage() == h.lineage && req.GetAfterRevision() > h.revision
}

// end removes a watch.
func (h *history) end(w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leave(w)
}

// read returns the next answer for the watch. It has events, or the revision up to which there are none for
// it. drained reports that there is nothing more at present.
func (h *history) read(w *watch) (resp *wire.WatchResponse, drained bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case w.cut:
		return h.compacted("the state was replaced by a snapshot or a backup"), true
	case w.behind && w.next < h.first:
		return h.compacted("the watch was read too slowly: its next events are no longer in this node's memory"), true
	case h.closed:
		return h.unavailable(), true
	}
	resp = &wire.WatchResponse{Lineage: h.lineage, Status: wire.Status_OK, Events: h.collect(w)}
	resp.Revision = h.revision
	if w.behind {
		// If the answer ended within a revision, a client that resumes from it needs all events of that
		// revision again.
		resp.Revision = h.revisionAt(w.next) - 1
	}
	resp.Revision = max(resp.Revision, w.after)
	return resp, !w.behind
}

// collect returns the watch's next events, as many as fit into one answer.
func (h *history) collect(w *watch) (events []*wire.Event) {
	taken := 0
	var event, rest []byte
	for scanned := 0; w.behind; scanned++ {
		if len(rest) == 0 {
			rest = h.from(w.next)
		}
		event, rest = cut(rest)
		u := packed(event).unpack()
		if scanned >= scanAtOnce || taken >= watchBytes {
			if whole := len(events) == 0 || events[len(events)-1].Revision != u.numbers[revisionNumber]; whole || taken >= revisionBytes {
				return events
			}
		}
		if u.numbers[revisionNumber] > w.after && w.concerns(&u) {
			e := u.event()
			events = append(events, e)
			taken += size(e)
		}
		w.next++
		w.behind = w.next < h.next
	}
	return events
}

// extent returns the number of watches and the number of events.
func (h *history) extent() (watches, events uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return uint64(h.watches), h.next - h.first
}

func (h *history) compacted(why string) *wire.WatchResponse {
	return &wire.WatchResponse{Status: wire.Status_COMPACTED, Oldest: h.oldest, Revision: h.revision, Lineage: h.lineage,
		Message: why + ": read the state and watch from its revision"}
}

func (h *history) unavailable() *wire.WatchResponse {
	return &wire.WatchResponse{Status: wire.Status_UNAVAILABLE, Revision: h.revision, Lineage: h.lineage,
		Message: "this node is stopping: watch on at another one"}
}
