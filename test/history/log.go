package history

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Never is the time of what has not happened.
const Never = time.Duration(math.MaxInt64)

// Log collects what clients do. It is safe for concurrent use. All times are those of one
// clock that never jumps, since the log's beginning.
type Log struct {
	now   func() time.Duration
	begin time.Time

	mu      sync.Mutex // guards what follows, and every record in it
	records []Record
	conns   uint64
}

// New begins a log. now tells the time since the beginning; nil is the time since this
// call, on CLOCK_MONOTONIC or, in a synctest bubble, the bubble's.
func New(now func() time.Duration) *Log {
	if now == nil {
		begin := time.Now()
		now = func() time.Duration { return time.Since(begin) }
	}
	return &Log{now: now, begin: time.Now().Add(-now())}
}

// Now is the time since the log began.
func (l *Log) Now() time.Duration { return l.now() }

func (l *Log) add(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
}

// Fault books that a client saw what must not be, in words.
func (l *Log) Fault(format string, args ...any) {
	l.add(Record{Fault: &Fault{At: l.now(), Text: fmt.Sprintf(format, args...)}})
}

// Mark books that something happened to the whole: Healed, or a text for people.
func (l *Log) Mark(what string) { l.add(Record{Mark: &Mark{At: l.now(), What: what}}) }

// Grant books a hold from now on, unless h.Granted says since when.
func (l *Log) Grant(h Hold) *Held {
	if h.Granted == 0 {
		h.Granted = l.now()
	}
	h.Ended, h.Released = Never, false
	l.add(Record{Hold: &h})
	return &Held{log: l, hold: &h}
}

// Held is a hold that lasts, for the application to say what becomes of it. It is safe
// for concurrent use.
type Held struct {
	log  *Log
	hold *Hold // guarded by the log's mutex
}

// Follow ends the hold with its context.
func (h *Held) Follow(ctx context.Context) { context.AfterFunc(ctx, h.End) }

// End books that the application does not count on the hold any more: its context has
// ended, or its release is about to be asked for. The first call decides.
func (h *Held) End() {
	at := h.log.now()
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	h.hold.Ended = min(h.hold.Ended, at)
}

// Acknowledge books that the release was acknowledged.
func (h *Held) Acknowledge() {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	h.hold.Released = true
}

// Become books that the hold has another mode and token from now on. It is called after an
// upgrade was granted, and before a downgrade is asked for. Of a hold that has ended it
// books nothing.
func (h *Held) Become(mode wire.Mode, token, revision uint64) {
	at := h.log.now()
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	if h.hold.Ended != Never {
		return
	}
	next := *h.hold
	h.hold.Ended = at
	next.Locks = slices.Clone(next.Locks)
	for i := range next.Locks {
		next.Locks[i].Mode = mode
	}
	next.Asked, next.Granted, next.Token, next.Revision = at, at, token, revision
	h.hold = &next
	h.log.records = append(h.log.records, Record{Hold: &next})
}

// History is a copy of what was booked so far. What has no answer by now is unknown.
func (l *Log) History() *History {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &History{Begin: l.begin, Records: make([]Record, len(l.records))}
	for i, r := range l.records {
		h.Records[i] = r.clone()
	}
	return h
}
