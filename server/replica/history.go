package replica

import (
	"bytes"
	"sort"
	"sync"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// The bounds of what a node keeps of the events that it has applied.
	historyEvents = 1 << 16
	historyBytes  = 16 << 20
	// pageEvents are in one page of the history. To find one, those before it are skipped.
	pageEvents = 1 << 6
	// eventBytes is what an event in an answer takes, but for its texts.
	eventBytes = 320
	// maxWatches bounds those of one node.
	maxWatches = 10_000
	// An answer to a watch ends after so many bytes, which are about 200 events, with the
	// revision that it is in; but within that revision, if the answer has become too long.
	watchBytes    = 64 << 10
	revisionBytes = 1 << 20
	// scanAtOnce bounds how long a watch that looks for its events keeps others waiting,
	// first of all the machine.
	scanAtOnce = 2048
)

// history is the last events that this node has applied, in order. Watches read it at
// their own pace: nothing waits for them, and whoever falls behind its beginning is told
// so. Positions count events since the node was opened.
type history struct {
	// limit is of events, limitBytes of their bytes.
	limit      uint64
	limitBytes int

	mu sync.Mutex
	// lineage and revision are those of the machine after the last event's entry.
	lineage  string
	revision uint64
	// oldest is the first revision after which nothing is missing here.
	oldest uint64
	// ring are the pages, of packed events one behind the other; the oldest and the newest
	// may have less than all of theirs. The newest is the beginning of page.
	ring        [historyEvents/pageEvents + 1][]byte
	page        []byte
	first, next uint64
	// forgotten is how much of the oldest page is no longer told, bytes what all have.
	forgotten, bytes int
	closed           bool

	interest
}

func newHistory() *history {
	return &history{limit: historyEvents, limitBytes: historyBytes, interest: newInterest()}
}

// record takes in what an entry did, after which the machine is at that revision. A
// machine of another lineage has begun anew.
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

// reset forgets everything: the machine has been replaced by one at that revision, and
// nobody knows what happened on the way.
func (h *history) reset(revision uint64, lineage string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begin(revision, lineage)
}

func (h *history) begin(revision uint64, lineage string) {
	h.lineage, h.revision, h.oldest = lineage, revision, revision
	clear(h.ring[:])
	h.next += pageEvents - h.next%pageEvents // a page of its own
	h.first, h.forgotten, h.bytes, h.page = h.next, 0, 0, h.page[:0]
	h.all(func(w *watch) {
		w.cut = true
		w.poke()
	})
}

// close gives every watch its last word.
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

// drop forgets the oldest event, and its page with the last one there.
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

// from is an event and those behind it in its page.
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

// size is about what an event takes in memory.
func size(e *wire.Event) int {
	n := eventBytes + len(e.Lock) + len(e.Reason)
	for _, name := range e.Locks {
		n += 16 + len(name)
	}
	return n
}

// watch begins one, or says at once that it cannot: with an answer that is its only and
// last, or nil if there are too many of them.
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

// future reports whether the request is about this history and names a revision beyond the
// present one.
func (h *history) future(req *wire.WatchRequest) (present uint64, future bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.revision, !h.closed && req.GetLineage() == h.lineage && req.GetAfterRevision() > h.revision
}

// end forgets a watch.
func (h *history) end(w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leave(w)
}

// read is what the watch has to say next. It has events, or says up to where nothing
// happened; drained means that there is no more just now.
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
		// If the answer was cut within a revision, all of that has to be told again to
		// whoever resumes here.
		resp.Revision = h.revisionAt(w.next) - 1
	}
	resp.Revision = max(resp.Revision, w.after)
	return resp, !w.behind
}

// collect takes the watch's next events, as many as go into one answer.
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

// extent is how many watches there are, and how many events.
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
