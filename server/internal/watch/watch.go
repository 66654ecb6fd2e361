package watch

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock/server/eventlog"
	"github.com/quorumlock/quorumlock/server/internal/catchup"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Watcher serves the watches of a node. All fields are required. It is safe for concurrent use.
type Watcher struct {
	EventLog *eventlog.Log
	CatchUp  *catchup.Tracker
	// Prove calls done with OK once a proof of leadership that is newer than the call has been applied here.
	Prove func(done func(*wire.Result))
	// Stops is closed when the node begins to stop.
	Stops <-chan struct{}
	// Ends counts the watches that the node ended, by their last status.
	Ends *prometheus.CounterVec
}

// Watch sends the events that the request selects, in order and without gaps, until the watch ends. It works
// on every node: the events are those that the node has applied.
//
// The first answer is sent immediately, if only to report the revision from which the watch runs. While there
// are no events, an answer is sent every five seconds. Events come up to some hundreds at a time, as fast as
// send returns. visible returns an event as the caller may see it, nil if it may not; a nil function shows everything.
// The last answer is COMPACTED if the
// requested events are not, or no longer, in memory, and UNAVAILABLE if the node stops; Watch then returns
// nil. It returns without a last answer when ctx ends, with its error, or when send fails, with that error.
//
// Before the first answer, Watch returns status.ErrInvalid or status.ErrTooMany; status.ErrNotLeader or status.ErrUnavailable if this
// node has not applied the revision yet and cannot prove that it does not exist; or status.ErrUnavailable if the
// node has not caught up since its start.
//
// A client that resumes from an answer's revision misses no event and gets none twice, because all events of
// a revision come in one answer. If they exceed a mebibyte, they come in several answers. All of these except
// the last carry the preceding revision, so a client that resumes from one gets all events of the revision
// again.
func (w *Watcher) Watch(ctx context.Context, req *wire.WatchRequest, visible func(*wire.Event) *wire.Event, send func(*wire.WatchResponse) error) error {
	if err := validWatch(req); err != nil {
		return err
	}
	if err := w.CatchUp.Wait(ctx, w.Stops); err != nil {
		return err
	}
	if err := w.reached(ctx, req); err != nil {
		return err
	}
	one, last := w.EventLog.Watch(req, visible)
	if last != nil {
		return w.sendFinal(last, send)
	}
	if one == nil {
		return fmt.Errorf("%w: %d watches on this node: use another one, or watch a prefix instead of many names", status.ErrTooMany, eventlog.MaxWatches)
	}
	defer w.EventLog.End(one)
	final, err := w.EventLog.Serve(ctx, one, send)
	if err != nil {
		return err
	}
	return w.sendFinal(final, send)
}

// reached returns status.ErrInvalid if the revision to watch from does not exist yet. This node may merely lag
// behind, so that takes a proof of leadership.
func (w *Watcher) reached(ctx context.Context, req *wire.WatchRequest) error {
	if _, future := w.EventLog.Future(req); !future {
		return nil
	}
	proved := make(chan *wire.Result, 1)
	w.Prove(func(res *wire.Result) { proved <- res })
	select {
	case res := <-proved:
		if res.GetStatus() == wire.Status_UNCERTAIN { // leadership was lost meanwhile
			return status.ErrNotLeader
		}
		if err := status.Err(res); err != nil {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	if present, future := w.EventLog.Future(req); future {
		return eventlog.FutureRevision(req.GetAfterRevision(), present)
	}
	return nil
}

func validWatch(req *wire.WatchRequest) error {
	given := 0
	for _, named := range []bool{req.GetName() != "", req.GetPrefix() != "", req.GetSessionId() != 0, req.GetAudit()} {
		if named {
			given++
		}
	}
	if given > 1 {
		return fmt.Errorf("%w: a watch takes one of name, prefix, session_id and audit", status.ErrInvalid)
	}
	if req.GetName() != "" {
		if err := wire.ValidName(req.Name); err != nil {
			return fmt.Errorf("%w: %w", status.ErrInvalid, err)
		}
	}
	return nil
}

func (w *Watcher) sendFinal(resp *wire.WatchResponse, send func(*wire.WatchResponse) error) error {
	w.Ends.WithLabelValues(strings.ToLower(resp.Status.String())).Inc()
	return send(resp)
}
