package client

import (
	"context"
	"log/slog"

	"github.com/quorumlock/quorumlock/transport/wire"
)

const (
	// watchAhead bounds the events that wait in a watcher for Next. With more the watch
	// is ended on the node, and begun again where it stopped once they are read.
	watchAhead = 4096
)

// Position is a place in the cluster's history. Revisions of different lineages have
// nothing to do with each other: a restored backup begins a new one.
type Position struct {
	Lineage  string
	Revision uint64
}

// WatchOptions say what to watch: at most one of Name, Prefix and SessionID; without any,
// everything.
type WatchOptions struct {
	Name      string
	Prefix    string
	SessionID uint64
	// After is where to begin: with what happened after it. The zero Position begins now,
	// that is, at the Position of the first Batch. Those of GetLock and of batches serve.
	After Position
}

// Batch is what happened next.
type Batch struct {
	// Events are in order, those of one revision together. Without any the batch is a
	// progress mark: nothing that is watched happened up to Position.
	Events []*wire.Event
	// Position is where to go on, here or in another process.
	Position Position
}

// Watcher follows what happens to locks, without gaps and without repeats, also when the
// connection breaks or the leader moves. It never ends silently: Next says why.
type Watcher struct {
	client *Client
	what   WatchOptions
	wake   chan struct{} // one token: there is something for Next
	stop   func() bool   // does not wait for the ctx's end any more

	// Guarded by the client's mutex.
	at      Position      // of what has arrived last
	cut     []*wire.Event // of a revision that has not arrived whole
	batches []Batch       // that Next has not taken yet
	events  int           // in them
	call    *call         // that begins the watch; nil while one is under way, and while it pauses
	conn    *conn         // on which the watch is under way
	id      uint64        // its request there
	err     error         // why it has ended
}

// Watch begins to watch. The watcher goes on until ctx ends, Close is called or Next
// returns an error. It begins by itself; the first Batch is a mark and says where.
func (c *Client) Watch(ctx context.Context, what WatchOptions) *Watcher {
	w := &Watcher{client: c, what: what, at: what.After, wake: make(chan struct{}, 1)}
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

// Next waits for the next batch. It is for one goroutine at a time. Its error is final
// unless it is that of ctx: ErrCompacted if what comes next is not in memory any more (then
// read the state, and watch from its revision), ErrClosed after Close, ErrClientClosed,
// ErrInvalidArgument (also for a position of the future),
// ErrResourceExhausted for too many watches of one client, or the end
// of the ctx that Watch was given.
func (w *Watcher) Next(ctx context.Context) (Batch, error) {
	for {
		if batch, ok, err := w.take(); ok || err != nil {
			return batch, err
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return Batch{}, stopped(ctx, nil)
		}
	}
}

// take is the next batch there is.
func (w *Watcher) take() (batch Batch, ok bool, err error) {
	c := w.client
	c.mu.Lock()
	defer c.unlock()
	if len(w.batches) == 0 {
		return Batch{}, false, w.err
	}
	batch = w.batches[0]
	w.batches = w.batches[1:]
	w.events -= len(batch.Events)
	if len(w.batches) == 0 {
		w.batches = nil
		if w.err == nil && w.conn == nil && w.call == nil {
			w.begin() // it had to pause
			c.submit(w.call)
		}
	}
	return batch, true, nil
}

// Close ends the watch. What Next has not returned yet it still returns, then ErrClosed.
func (w *Watcher) Close() {
	w.client.mu.Lock()
	defer w.client.unlock()
	w.fail(errWatchClosed)
}

// errWatchClosed is what Next returns after Close.
var errWatchClosed error = &reason{"quorumlock: watch closed", []error{ErrClosed}}

// begin makes the request that begins the watch, or goes on with it.
func (w *Watcher) begin() {
	k := &call{kind: kindWatch}
	k.request.Body = &wire.Request_Watch{Watch: &wire.WatchRequest{
		Name: w.what.Name, Prefix: w.what.Prefix, SessionId: w.what.SessionID,
		AfterRevision: w.at.Revision, Lineage: w.at.Lineage,
	}}
	k.after = func() { w.answered(k) }
	w.call = k
}

// answered books the answer to the request that began the watch.
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

// arrived books what the node says next.
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
		w.fail(&StatusError{r.GetStatus(), r.GetMessage()})
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

// append has Next return what has arrived. A mark replaces the one before. Nodes may cut
// an answer within the events of one revision; whoever resumes after it gets them again.
// So they wait until their revision is whole, and are forgotten if the connection breaks.
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
	batch := Batch{Events: events, Position: w.at}
	if last := len(w.batches) - 1; last >= 0 && len(events) == 0 {
		w.batches[last].Position = w.at
	} else {
		w.batches = append(w.batches, batch)
		w.events += len(events)
	}
	w.tell()
}

func (w *Watcher) tell() {
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
			w.client.endWatch(k.request.Id) // it may be under way by then
		}
	}
	delete(w.client.watchers, w)
	w.tell()
}

// detach leaves a watch that is under way, and tells the node unless it knows.
func (w *Watcher) detach(tell bool) {
	if w.conn == nil {
		return
	}
	c := w.client
	delete(c.watching, w.id)
	if tell && w.conn == c.conn {
		c.endWatch(w.id)
	}
	w.conn, w.cut = nil, nil
}

// endWatch tells the node that nobody listens any more.
func (c *Client) endWatch(id uint64) {
	if c.closed {
		return
	}
	k := &call{kind: kindEndWatch}
	k.request.Body = &wire.Request_EndWatch{EndWatch: &wire.EndWatch{RequestId: id}}
	c.submit(k)
}

// rewatch goes on elsewhere with what was watched on a connection that has ended.
func (c *Client) rewatch(cn *conn) {
	for w := range c.watchers {
		if w.conn == cn {
			w.detach(false)
			w.begin()
			c.prepare(w.call)
			c.place(w.call)
		}
	}
}

func compacted(r *wire.WatchResponse, message string) error {
	return &CompactedError{Oldest: r.GetOldest(), Lineage: r.GetLineage(), Message: message}
}
