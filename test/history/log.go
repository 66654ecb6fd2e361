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

// Log records what clients do. It is safe for concurrent use. All times are measured on one monotonic clock
// since the log's beginning.
type Log struct {
	now   func() time.Duration
	begin time.Time

	mu      sync.Mutex // guards the fields below, and every record
	records []Record
	conns   uint64
	scripts map[string]KeyAction // of Redis clients, by their hash
}

// New begins a log. now returns the time since the beginning; nil means the time since this call, on
// CLOCK_MONOTONIC or, in a synctest bubble, on the bubble's clock.
func New(now func() time.Duration) *Log {
	if now == nil {
		begin := time.Now()
		now = func() time.Duration { return time.Since(begin) }
	}
	return &Log{now: now, begin: time.Now().Add(-now()), scripts: map[string]KeyAction{}}
}

// Now returns the time since the log began.
func (l *Log) Now() time.Duration { return l.now() }

func (l *Log) add(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
}

// Fault records a violation that a client observed.
func (l *Log) Fault(format string, args ...any) {
	l.add(Record{Fault: &Fault{At: l.now(), Text: fmt.Sprintf(format, args...)}})
}

// Mark records something that happened to the cluster as a whole: Healed, or a text for people.
func (l *Log) Mark(what string) { l.add(Record{Mark: &Mark{At: l.now(), What: what}}) }

// Grant records a hold, from h.Granted or, if that is 0, from now on.
func (l *Log) Grant(h Hold) *Held {
	if h.Granted == 0 {
		h.Granted = l.now()
	}
	h.Ended, h.Released = Never, false
	l.add(Record{Hold: &h})
	return &Held{log: l, hold: &h}
}

// Held is a hold in progress. The application reports its changes. It is safe for concurrent use.
type Held struct {
	log  *Log
	hold *Hold // guarded by the log's mutex
	over bool  // whether End was called
}

// Follow ends the hold with its context.
func (h *Held) Follow(ctx context.Context) { context.AfterFunc(ctx, h.End) }

// End records that the application does not rely on the hold any more: its context has ended, or its release
// is about to be requested. Only the first call has an effect.
func (h *Held) End() {
	at := h.log.now()
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	h.hold.Ended, h.over = min(h.hold.Ended, at), true
}

// LastsUntil records until when the application may rely on the hold at most. A later call may prolong a hold that is
// not over by End.
func (h *Held) LastsUntil(at time.Duration) {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	if !h.over {
		h.hold.Ended = at
	}
}

// Acknowledge records that the release was acknowledged.
func (h *Held) Acknowledge() {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	h.hold.Released = true
}

// Become records that the hold has another mode and token from now on. It must be called after an upgrade was
// granted, and before a downgrade is requested. It has no effect on a hold that has ended.
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

// History returns a copy of the records so far. Operations without an answer are unknown.
func (l *Log) History() *History {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &History{Begin: l.begin, Records: make([]Record, len(l.records))}
	for i, r := range l.records {
		h.Records[i] = r.clone()
	}
	return h
}
