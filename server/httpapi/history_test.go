package httpapi

import (
	"context"
	"sync"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const lineage = "first"

// history is a fake of the node's event log. It keeps the last events, and each watch reads them at its own
// pace.
type history struct {
	mu     sync.Mutex // guards the fields below
	bound  int
	events []*wire.Event
	floor  uint64 // watches may start after this revision
	news   chan struct{}
}

func newHistory() *history { return &history{bound: 1000, news: make(chan struct{})} }

func (h *history) add(events ...*wire.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, events...)
	if over := len(h.events) - h.bound; over > 0 {
		h.floor = h.events[over-1].GetRevision()
		h.events = h.events[over:]
	}
	close(h.news)
	h.news = make(chan struct{})
}

// next returns the events after a revision. known is false if they were already dropped.
func (h *history) next(after uint64) (events []*wire.Event, oldest uint64, known bool, news chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events {
		if e.GetRevision() > after {
			events = append(events, e)
		}
	}
	return events, h.floor, after >= h.floor, h.news
}

func (h *history) last() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.events) == 0 {
		return h.floor
	}
	return h.events[len(h.events)-1].GetRevision()
}

func (h *history) watch(ctx context.Context, req *wire.WatchRequest, send func(*wire.WatchResponse) error) error {
	after := req.GetAfterRevision()
	if after == 0 {
		after = h.last()
	}
	say := func(resp *wire.WatchResponse) error {
		resp.Lineage, resp.Revision = lineage, after
		return send(resp)
	}
	begun := false
	for {
		events, oldest, known, news := h.next(after)
		if !known || req.GetLineage() != "" && req.GetLineage() != lineage {
			return say(&wire.WatchResponse{Status: wire.Status_COMPACTED, Oldest: oldest, Message: "too old"})
		}
		if !begun || len(events) > 0 {
			if begun {
				after = events[len(events)-1].GetRevision()
			} else {
				events = nil
			}
			if err := say(&wire.WatchResponse{Status: wire.Status_OK, Events: events}); err != nil {
				return err
			}
			begun = true
			continue
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
