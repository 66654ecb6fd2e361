package client

import (
	"context"
	"log/slog"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// watchAhead bounds the events buffered for Next. Beyond that the watch is ended on the node, and
	// resumed at the same position once they have been read.
	watchAhead = 4096
)

// Position is a place in the cluster's event log. Revisions of different lineages are unrelated: restoring
// a backup starts a new lineage.
type Position struct {
	Lineage  string
	Revision uint64
}

// WatchOptions selects what to watch: at most one of Name, Prefix and SessionID; with none of them,
// everything.
type WatchOptions struct {
	Name      string
	Prefix    string
	SessionID uint64
	// After is the position after which the watch starts. The zero Position starts now, which is the
	// Position of the first Batch. Use the position of an earlier Batch, or of a lock that package admin has read.
	After Position
}

// Batch is a group of consecutive events.
type Batch struct {
	// Events are in order; the events of one revision are never split. A batch without events is a progress
	// mark: nothing that is watched happened up to Position.
	Events []Event
	// Position is where to resume, in this process or another.
	Position Position
}

// Watcher follows lock events without gaps and without repeats, across broken connections and changes of
// leader. It never ends silently: Next returns why it ended.
type Watcher struct {
	client *Client
	what   WatchOptions
	audit  bool          // watches audit records instead
	wake   chan struct{} // holds one token when there is something for Next
	stop   func() bool   // stops waiting for the end of ctx

	// Guarded by the client's mutex.
	at      Position      // position of the last events received
	cut     []*wire.Event // events of a revision that has not fully arrived
	batches []batch       // batches not yet returned by Next
	events  int           // number of events in batches
	call    *call         // the request that starts the watch; nil while it is active or paused
	conn    *conn         // the connection on which the watch is active; nil if it is not
	id      uint64        // request id of the watch on conn
	err     error         // why the watcher has ended
}

// Watch starts a watch, which runs until ctx ends, Close is called or Next returns an error. The first
// Batch is a progress mark that reports where the watch starts.
func (c *Client) Watch(ctx context.Context, what WatchOptions) *Watcher {
	return c.startWatcher(ctx, &Watcher{what: what})
}

func (c *Client) startWatcher(ctx context.Context, w *Watcher) *Watcher {
	w.client, w.at, w.wake = c, w.what.After, make(chan struct{}, 1)
	c.mu.Lock()
	defer c.unlock()
	w.stop = context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.unlock()
		w.fail(stopped(ctx, nil))
	})
	if c.closed {
		w.fail(ErrClientClosed)
		return w
	}
	c.watchers[w] = struct{}{}
	w.begin()
	if err := checkTexts(&w.call.request); err != nil {
		w.fail(err)
		return w
	}
	c.submit(w.call)
	return w
}

// Next waits for the next batch. It must not be called concurrently. An error is final unless it is that of
// ctx: ErrCompacted if the next events are no longer in memory (read the state, and watch from its
// revision), ErrClosed after Close, ErrClientClosed, ErrInvalidArgument (also for a position in the
// future), ErrResourceExhausted if one client has too many watches, or the end of the ctx passed to Watch.
func (w *Watcher) Next(ctx context.Context) (Batch, error) {
	b, err := w.next(ctx)
	if err != nil {
		return Batch{}, err
	}
	return Batch{Events: eventsOf(b.events), Position: b.position}, nil
}

// batch is a Batch in wire format.
type batch struct {
	events   []*wire.Event
	position Position
}

// next is Next in wire format.
func (w *Watcher) next(ctx context.Context) (batch, error) {
	for {
		if b, ok, err := w.take(); ok || err != nil {
			return b, err
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return batch{}, stopped(ctx, nil)
		}
	}
}

// take returns the next batch if there is one.
func (w *Watcher) take() (b batch, ok bool, err error) {
	c := w.client
	c.mu.Lock()
	defer c.unlock()
	if len(w.batches) == 0 {
		return batch{}, false, w.err
	}
	b = w.batches[0]
	w.batches = w.batches[1:]
	w.events -= len(b.events)
	if len(w.batches) == 0 {
		w.batches = nil
		if w.err == nil && w.conn == nil && w.call == nil {
			w.begin() // it was paused
			c.submit(w.call)
		}
	}
	return b, true, nil
}

// Close ends the watch. Next still returns the batches already received, and then ErrClosed.
func (w *Watcher) Close() {
	w.client.mu.Lock()
	defer w.client.unlock()
	w.fail(errWatchClosed)
}

// errWatchClosed is returned by Next after Close.
var errWatchClosed error = &reason{"quorumlock: watch closed", []error{ErrClosed}}

// begin creates the request that starts or resumes the watch.
func (w *Watcher) begin() {
	k := &call{kind: kindWatch}
	k.request.Body = &wire.Request_Watch{Watch: &wire.WatchRequest{
		Name: w.what.Name, Prefix: w.what.Prefix, SessionId: w.what.SessionID, Audit: w.audit,
		AfterRevision: w.at.Revision, Lineage: w.at.Lineage,
	}}
	k.after = func() { w.answered(k) }
	w.call = k
}

// answered processes the answer to the request that started the watch.
func (w *Watcher) answered(k *call) {
	if w.call != k {
		return
	}
	w.call = nil
	first := k.response.GetWatch()
	switch {
	case k.err == nil:
		w.conn, w.id = w.client.conn, k.request.Id
		w.client.watching[w.id] = w
		if first != nil {
			w.arrived(first)
		}
	case k.response.GetResult().GetStatus() == wire.Status_COMPACTED:
		w.fail(compacted(first, k.response.GetResult().GetMessage()))
	default:
		w.fail(k.err)
	}
}

// arrived processes the next response of the node.
func (w *Watcher) arrived(r *wire.WatchResponse) {
	switch r.GetStatus() {
	case wire.Status_OK, wire.Status_UNSPECIFIED:
	case wire.Status_COMPACTED:
		w.detach(false)
		w.fail(compacted(r, r.GetMessage()))
		return
	case wire.Status_UNAVAILABLE, wire.Status_NOT_LEADER:
		w.detach(false)
		w.client.note(slog.LevelDebug, "watch goes on elsewhere", "message", r.GetMessage())
		w.begin()
		w.client.prepare(w.call)
		w.client.again(w.call)
		return
	default:
		w.detach(false)
		w.fail(&StatusError{Status(r.GetStatus()), r.GetMessage()})
		return
	}
	if w.at.Lineage != "" && r.GetLineage() != w.at.Lineage {
		w.detach(true)
		w.fail(compacted(r, "the cluster has begun a new history"))
		return
	}
	w.append(r)
	if w.events > watchAhead {
		w.detach(true)
	}
}

// append adds a response to what Next returns. A progress mark replaces the one before. A node may split
// the events of one revision between responses, and a watch that resumes after that revision receives them
// all again. Events are therefore held back until their revision is complete, and are dropped if the
// connection breaks.
func (w *Watcher) append(r *wire.WatchResponse) {
	events := append(w.cut, r.GetEvents()...)
	w.cut = nil
	for len(events) > 0 && w.at.Revision != 0 && events[0].GetRevision() <= w.at.Revision {
		events = events[1:]
	}
	w.at = Position{r.GetLineage(), max(w.at.Revision, r.GetRevision())}
	whole := len(events)
	for whole > 0 && events[whole-1].GetRevision() > w.at.Revision {
		whole--
	}
	if whole < len(events) {
		w.cut = append(w.cut, events[whole:]...)
		if whole == 0 {
			return
		}
		events = events[:whole]
	}
	if last := len(w.batches) - 1; last >= 0 && len(events) == 0 {
		w.batches[last].position = w.at
	} else {
		w.batches = append(w.batches, batch{events, w.at})
		w.events += len(events)
	}
	w.deliver()
}

func (w *Watcher) deliver() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// fail ends the watcher for good.
func (w *Watcher) fail(err error) {
	if w.err != nil {
		return
	}
	w.err = err
	w.stop()
	w.detach(true)
	if k := w.call; k != nil {
		w.call = nil
		w.client.finish(k)
		if k.list == &w.client.flight {
			w.client.endRequest(k.request.Id) // the watch may be active when the answer arrives
		}
	}
	delete(w.client.watchers, w)
	w.deliver()
}

// detach leaves an active watch. If notify is set, it notifies the node.
func (w *Watcher) detach(notify bool) {
	if w.conn == nil {
		return
	}
	c := w.client
	delete(c.watching, w.id)
	if notify && w.conn == c.conn {
		c.endRequest(w.id)
	}
	w.conn, w.cut = nil, nil
}

// endRequest tells the node to end a watch, or the wait of an acquire of a lease.
func (t *requestTable) endRequest(id uint64) {
	if t.client.closed {
		return
	}
	k := &call{kind: kindEnd}
	k.request.Body = &wire.Request_EndRequest{EndRequest: &wire.EndRequest{RequestId: id}}
	t.submit(k)
}

// rewatch resumes the watches of an ended connection on the next one.
func (t *requestTable) rewatch(cn *conn) {
	for w := range t.watchers {
		if w.conn == cn {
			w.detach(false)
			w.begin()
			t.prepare(w.call)
			t.place(w.call)
		}
	}
}

func compacted(r *wire.WatchResponse, message string) error {
	return &CompactedError{Oldest: r.GetOldest(), Lineage: r.GetLineage(), Message: message}
}
