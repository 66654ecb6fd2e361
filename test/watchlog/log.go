package watchlog

import (
	"context"
	"sync"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Lineage is the lineage of all positions.
const Lineage = "first"

// Log keeps the latest events, and each watch reads them at its own pace. Bound and Floor must not be changed while
// it is in use.
type Log struct {
	Bound int    // how many events it keeps
	Floor uint64 // watches may start after this revision

	mu     sync.Mutex // guards the fields below, and Floor
	events []*wire.Event
	added  chan struct{} // closed when events are added
}

// New returns an empty log.
func New() *Log { return &Log{Bound: 1000, added: make(chan struct{})} }

// Add appends events.
func (l *Log) Add(events ...*wire.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, events...)
	if over := len(l.events) - l.Bound; over > 0 {
		l.Floor = l.events[over-1].GetRevision()
		l.events = l.events[over:]
	}
	close(l.added)
	l.added = make(chan struct{})
}

// next returns the events after a revision. known is false if they were already dropped.
func (l *Log) next(after uint64) (events []*wire.Event, oldest uint64, known bool, added chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.GetRevision() > after {
			events = append(events, e)
		}
	}
	return events, l.Floor, after >= l.Floor, l.added
}

// Last returns the revision of the last event.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.events) == 0 {
		return l.Floor
	}
	return l.events[len(l.events)-1].GetRevision()
}

// Watch serves a watch until ctx ends or send fails. visible returns an event as the watcher may see it, or nil.
func (l *Log) Watch(ctx context.Context, req *wire.WatchRequest, visible func(*wire.Event) *wire.Event, send func(*wire.WatchResponse) error) error {
	after := req.GetAfterRevision()
	if after == 0 {
		after = l.Last()
	}
	say := func(resp *wire.WatchResponse) error {
		resp.Lineage, resp.Revision = Lineage, after
		return send(resp)
	}
	started := false
	for {
		events, oldest, known, added := l.next(after)
		if !known || req.GetLineage() != "" && req.GetLineage() != Lineage {
			return say(&wire.WatchResponse{Status: wire.Status_COMPACTED, Oldest: oldest, Message: "too old"})
		}
		if !started || len(events) > 0 {
			if started {
				after = events[len(events)-1].GetRevision()
			} else {
				events = nil
			}
			if err := say(&wire.WatchResponse{Status: wire.Status_OK, Events: seen(events, visible)}); err != nil {
				return err
			}
			started = true
			continue
		}
		select {
		case <-added:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func seen(events []*wire.Event, visible func(*wire.Event) *wire.Event) (shown []*wire.Event) {
	for _, e := range events {
		if e = visible(e); e != nil {
			shown = append(shown, e)
		}
	}
	return shown
}
