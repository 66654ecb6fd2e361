package eventlog

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// Bounds of the applied events that a node keeps.
	maxLoggedEvents = 1 << 16
	maxLoggedBytes  = 16 << 20
	// pageEvents is the number of events in a page. Finding an event means skipping those before it in its
	// page.
	pageEvents = 1 << 6
	// eventBytes is the size of an event in an answer, without its texts.
	eventBytes = 320
	// MaxWatches bounds the watches of a node.
	MaxWatches = 10_000
	// An answer to a watch ends with the revision in which it reaches watchBytes, about 200 events, but once
	// it reaches revisionBytes it ends within a revision.
	watchBytes    = 64 << 10
	revisionBytes = 1 << 20
	// scanAtOnce bounds the events that one read scans, since the others wait for the lock meanwhile, above
	// all the goroutine that applies entries.
	scanAtOnce = 2048
)

// Log contains the latest events that a node has applied, in order. Watches read it at their own pace, and
// nothing waits for them: a watch whose next event has been dropped ends with COMPACTED. Positions count events
// since the log was created. All methods are safe for concurrent use.
type Log struct {
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
	ring        [maxLoggedEvents/pageEvents + 1][]byte
	page        []byte
	first, next uint64
	// forgotten is the size of the dropped part of the oldest page, bytes that of all pages.
	forgotten, bytes int
	closed           bool

	// busy counts the watches that are reading, sending, or pausing after that; see rest.
	busy atomic.Int64
	// turn is held by the watch that reads. It keeps thousands of watches from queueing for mu, in front of Record, for
	// which the state machine waits.
	turn chan struct{}

	watchIndex
}

// New returns an empty log.
func New() *Log {
	return &Log{limit: maxLoggedEvents, limitBytes: maxLoggedBytes, turn: make(chan struct{}, 1), watchIndex: newWatchIndex()}
}

// Record appends the events of an entry, after which the state machine is at that revision. If the lineage
// has changed, the log starts over.
func (l *Log) Record(events []*wire.Event, revision uint64, lineage string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lineage != l.lineage {
		l.begin(revision, lineage)
		return
	}
	l.revision = revision
	for _, e := range events {
		l.put(e)
	}
}

// Reset drops everything: the state has been replaced by one at that revision, and the events in between are
// unknown.
func (l *Log) Reset(revision uint64, lineage string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin(revision, lineage)
}

func (l *Log) begin(revision uint64, lineage string) {
	l.lineage, l.revision, l.oldest = lineage, revision, revision
	clear(l.ring[:])
	l.next += pageEvents - l.next%pageEvents // continue on a new page
	l.first, l.forgotten, l.bytes, l.page = l.next, 0, 0, l.page[:0]
	l.all(func(w *Watch) {
		w.cut = true
		w.trigger()
	})
}

// Close ends every watch.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.all((*Watch).trigger)
}

func (l *Log) put(e *wire.Event) {
	if l.next-l.first >= l.limit {
		l.drop()
	}
	before := len(l.page)
	l.page = pack(l.page, e)
	l.bytes += len(l.page) - before
	*l.pageOf(l.next) = l.page
	l.next++
	for l.bytes > l.limitBytes && l.first < l.next-1 {
		l.drop()
	}
	if l.next%pageEvents == 0 {
		*l.pageOf(l.next - 1) = bytes.Clone(l.page)
		l.page = l.page[:0]
	}
	l.matching(e, func(w *Watch) {
		if !w.behind {
			w.behind, w.next = true, l.next-1
			w.trigger()
		}
	})
}

// drop drops the oldest event, and its page if that was the last event there.
func (l *Log) drop() {
	page := l.pageOf(l.first)
	event, rest := cut((*page)[l.forgotten:])
	l.oldest, l.forgotten = packed(event).revision(), len(*page)-len(rest)
	if l.first++; l.first%pageEvents == 0 {
		l.bytes -= len(*page)
		*page, l.forgotten = nil, 0
	}
}

func (l *Log) pageOf(position uint64) *[]byte {
	return &l.ring[position/pageEvents%uint64(len(l.ring))]
}

// from returns an event and those after it in its page, packed.
func (l *Log) from(position uint64) []byte {
	rest := *l.pageOf(position)
	for range position % pageEvents {
		_, rest = cut(rest)
	}
	return rest
}

func (l *Log) revisionAt(position uint64) uint64 {
	event, _ := cut(l.from(position))
	return packed(event).revision()
}

// size returns about how much memory an event takes, in bytes.
func size(e *wire.Event) int {
	n := eventBytes + len(e.Lock) + len(e.Reason) + len(e.Identity) + proto.Size(e.Audit)
	for _, name := range e.Locks {
		n += 16 + len(name)
	}
	return n
}

// Watch starts a watch. If it cannot, it returns a response that is the watch's only one, or nil if there are
// too many watches.
func (l *Log) Watch(req *wire.WatchRequest, visible func(*wire.Event) *wire.Event) (*Watch, *wire.WatchResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	after, lineage := req.GetAfterRevision(), req.GetLineage()
	switch {
	case l.closed:
		return nil, l.unavailable()
	case lineage != l.lineage && (lineage != "" || after != 0):
		return nil, l.compacted("the revision is of another history: a backup was restored since")
	case after != 0 && after < l.oldest:
		return nil, l.compacted("the events after that revision are no longer in this node's memory")
	case l.watches >= MaxWatches:
		return nil, nil
	}
	w := &Watch{name: req.GetName(), prefix: req.GetPrefix(), session: req.GetSessionId(), audit: req.GetAudit(), after: after, next: l.next, wake: make(chan struct{}, 1), visible: visible}
	if after != 0 {
		w.next = l.first + uint64(sort.Search(int(l.next-l.first), func(i int) bool { return l.revisionAt(l.first+uint64(i)) > after }))
		w.behind = w.next < l.next
	}
	l.enter(w)
	return w, nil
}

// Future reports whether the request refers to this lineage and to a revision after the present one.
func (l *Log) Future(req *wire.WatchRequest) (present uint64, future bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revision, !l.closed && req.GetLineage() == l.lineage && req.GetAfterRevision() > l.revision
}

// End removes a watch.
func (l *Log) End(w *Watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(w)
}

// Read returns the next response for the watch. It has events, or the revision up to which there are none for
// it. drained reports that there is nothing more at present.
func (l *Log) Read(w *Watch) (resp *wire.WatchResponse, drained bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case w.cut:
		return l.compacted("the state was replaced by a snapshot or a backup"), true
	case w.behind && w.next < l.first:
		return l.compacted("the watch was read too slowly: its next events are no longer in this node's memory"), true
	case l.closed:
		return l.unavailable(), true
	}
	resp = &wire.WatchResponse{Lineage: l.lineage, Status: wire.Status_OK, Events: l.collect(w)}
	resp.Revision = l.revision
	if w.behind {
		// If the answer ended within a revision, a client that resumes from it needs all events of that
		// revision again.
		resp.Revision = l.revisionAt(w.next) - 1
	}
	resp.Revision = max(resp.Revision, w.after)
	return resp, !w.behind
}

// collect returns the watch's next events, as many as fit into one answer.
func (l *Log) collect(w *Watch) (events []*wire.Event) {
	taken := 0
	var event, rest []byte
	for scanned := 0; w.behind; scanned++ {
		if len(rest) == 0 {
			rest = l.from(w.next)
		}
		event, rest = cut(rest)
		u := packed(event).unpack()
		if scanned >= scanAtOnce || taken >= watchBytes {
			if whole := len(events) == 0 || events[len(events)-1].Revision != u.numbers[revisionNumber]; whole || taken >= revisionBytes {
				return events
			}
		}
		if u.numbers[revisionNumber] > w.after && w.concerns(&u) {
			if e := w.seen(u.event()); e != nil {
				events = append(events, e)
				taken += size(e)
			}
		}
		w.next++
		w.behind = w.next < l.next
	}
	return events
}

// seen returns an event as the watcher may see it, or nil.
func (w *Watch) seen(e *wire.Event) *wire.Event {
	if w.visible == nil {
		return e
	}
	if e = w.visible(e); e == nil || !w.selects(e) {
		return nil
	}
	return e
}

// selects reports whether the watch is about an event as the watcher sees it. A name that is hidden selects nothing.
func (w *Watch) selects(e *wire.Event) bool {
	switch {
	case w.name != "":
		return e.Lock == w.name || slices.Contains(e.Locks, w.name)
	case w.prefix != "":
		return strings.HasPrefix(e.Lock, w.prefix) || slices.ContainsFunc(e.Locks, func(name string) bool { return strings.HasPrefix(name, w.prefix) })
	}
	return true
}

// Size returns the number of watches and the number of events.
func (l *Log) Size() (watches, events uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(l.watches), l.next - l.first
}

func (l *Log) compacted(why string) *wire.WatchResponse {
	return &wire.WatchResponse{Status: wire.Status_COMPACTED, Oldest: l.oldest, Revision: l.revision, Lineage: l.lineage,
		Message: why + ": read the state and watch from its revision"}
}

func (l *Log) unavailable() *wire.WatchResponse {
	return &wire.WatchResponse{Status: wire.Status_UNAVAILABLE, Revision: l.revision, Lineage: l.lineage,
		Message: "this node is stopping: resume the watch on another node"}
}

// FutureRevision returns the error for a watch from a revision that does not exist yet. It is status.ErrInvalid.
func FutureRevision(after, present uint64) error {
	return fmt.Errorf("%w: after_revision %d lies in the future, the present revision is %d: watch after that one, or after 0 from now on", status.ErrInvalid, after, present)
}
