package replica

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// progress is how often a watch without events sends an answer.
const progress = 5 * time.Second

// Watch sends the events that the request selects, in order and without gaps, until the watch ends. It works
// on every node: the events are those that the node has applied.
//
// The first answer is sent immediately, if only to report the revision from which the watch runs. While there
// are no events, an answer is sent every five seconds. Events come up to some hundreds at a time, as fast as
// send returns. They are shared between watches and must not be changed. The last answer is COMPACTED if the
// requested events are not, or no longer, in memory, and UNAVAILABLE if the node stops; Watch then returns
// nil. It returns without a last answer when ctx ends, with its error, or when send fails, with that error.
//
// Before the first answer, Watch returns ErrInvalid or ErrTooMany; ErrNotLeader or ErrUnavailable if this
// node has not applied the revision yet and cannot prove that it does not exist; or ErrUnavailable if the
// node has not caught up since its start.
//
// A client that resumes from an answer's revision misses no event and gets none twice, because all events of
// a revision come in one answer. If they exceed a mebibyte, they come in several answers. All of these except
// the last carry the preceding revision, so a client that resumes from one gets all events of the revision
// again.
func (r *Replica) Watch(ctx context.Context, req *wire.WatchRequest, send func(*wire.WatchResponse) error) error {
	if err := validWatch(req); err != nil {
		return err
	}
	if err := r.caughtUp(ctx); err != nil {
		return err
	}
	if err := r.reached(ctx, req); err != nil {
		return err
	}
	w, last := r.history.watch(req)
	if last != nil {
		return r.lastWord(last, send)
	}
	if w == nil {
		return fmt.Errorf("%w: %d watches on this node: use another one, or watch a prefix instead of many names", ErrTooMany, maxWatches)
	}
	defer r.history.end(w)
	return r.follow(ctx, w, send)
}

// reached returns ErrInvalid if the revision to watch from does not exist yet. This node may merely lag
// behind, so that takes a proof of leadership.
func (r *Replica) reached(ctx context.Context, req *wire.WatchRequest) error {
	if _, future := r.history.future(req); !future {
		return nil
	}
	proved := make(chan *wire.Result, 1)
	r.Prove(func(res *wire.Result) { proved <- res })
	select {
	case res := <-proved:
		if res.GetStatus() == wire.Status_UNCERTAIN { // leadership was lost meanwhile
			return ErrNotLeader
		}
		if err := asError(res); err != nil {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	if present, future := r.history.future(req); future {
		return FutureRevision(req.GetAfterRevision(), present)
	}
	return nil
}

// FutureRevision returns the error for a watch from a revision that does not exist yet. It is ErrInvalid.
func FutureRevision(after, present uint64) error {
	return fmt.Errorf("%w: after_revision %d lies in the future, the present revision is %d: watch after that one, or after 0 from now on", ErrInvalid, after, present)
}

func validWatch(req *wire.WatchRequest) error {
	given := 0
	for _, named := range []bool{req.GetName() != "", req.GetPrefix() != "", req.GetSessionId() != 0} {
		if named {
			given++
		}
	}
	if given > 1 {
		return fmt.Errorf("%w: a watch takes one of name, prefix and session_id", ErrInvalid)
	}
	if req.GetName() != "" {
		if err := wire.ValidName(req.Name); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	return nil
}

// follow sends answers until the watch ends.
func (r *Replica) follow(ctx context.Context, w *watch, send func(*wire.WatchResponse) error) error {
	idle := time.NewTimer(progress)
	defer idle.Stop()
	mark := true // the first answer is sent immediately
	for ctx.Err() == nil {
		resp, drained, err := r.answer(ctx, w, mark, send)
		switch {
		case err != nil:
			return err
		case resp.Status != wire.Status_OK:
			return r.lastWord(resp, send)
		case len(resp.Events) > 0 || mark && drained:
			mark = false
			idle.Reset(progress)
		}
		if !drained {
			continue
		}
		select {
		case <-w.wake:
		case <-idle.C:
			mark = true
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// answer sends the next answer of the watch, unless it is the last one, and then pauses the watch. It sends
// an answer without events only if mark is set.
func (r *Replica) answer(ctx context.Context, w *watch, mark bool, send func(*wire.WatchResponse) error) (resp *wire.WatchResponse, drained bool, err error) {
	busy, begun := r.busyWatches.Add(1), time.Now()
	defer r.busyWatches.Add(-1)
	resp, drained = r.history.read(w)
	if resp.Status != wire.Status_OK || len(resp.Events) == 0 && !(mark && drained) {
		return resp, drained, nil
	}
	if err = send(resp); err == nil {
		restWatch(ctx, time.Since(begun), busy)
	}
	return resp, drained, err
}

const (
	// After an answer, a watch pauses for restFactor times the time that the answer took, times the number of
	// busy watches. So all watches together take at most a third of one processor, however many wake up for
	// the same events. A pause below leastRest is not worth a timer. longestRest bounds the delay of an
	// event.
	restFactor  = 2
	leastRest   = time.Millisecond
	longestRest = 500 * time.Millisecond
)

func restWatch(ctx context.Context, took time.Duration, busy int64) {
	rest := min(min(took, longestRest)*restFactor*time.Duration(busy), longestRest)
	if busy == 1 || rest < leastRest {
		return
	}
	enough := time.NewTimer(rest)
	defer enough.Stop()
	select {
	case <-enough.C:
	case <-ctx.Done():
	}
}

func (r *Replica) lastWord(resp *wire.WatchResponse, send func(*wire.WatchResponse) error) error {
	r.metrics.watchEnds.WithLabelValues(strings.ToLower(resp.Status.String())).Inc()
	return send(resp)
}

// recorder is the state machine as raft sees it: applied events go to the event log, and the states at hash
// points are hashed. Raft calls it on one goroutine.
type recorder struct {
	*fsm.Replicated
	history *history
	hashes  *hashes
	catchUp *catchUp
	states  *peerStates
	// awaited reports whether anything on this node may wait for the result of the entry that is being
	// applied.
	awaited func() bool
}

func (c recorder) Apply(entry *raft.Log) any {
	response := c.Replicated.Apply(entry)
	c.catchUp.applied.Store(entry.Index)
	applied, ok := response.(*fsm.Applied)
	if ok && len(applied.Results) > 0 {
		revision, lineage, term := c.position()
		c.history.record(applied.Events, revision, lineage)
		c.states.applied(term)
	}
	if ok && applied.HashPoint {
		c.hashes.point(entry.Index, c.Fork())
	}
	if ok && !c.awaited() {
		c.Recycle(applied)
		return nil
	}
	return response
}

// Restore implements raft.FSM. The event log starts over at the snapshot.
func (c recorder) Restore(snapshot io.ReadCloser) error {
	err := c.Replicated.Restore(snapshot)
	if err == nil {
		revision, lineage, term := c.position()
		c.history.reset(revision, lineage)
		c.states.applied(term)
	}
	return err
}

func (c recorder) position() (revision uint64, lineage string, term uint64) {
	c.View(func(m *fsm.Machine) { revision, lineage, term = m.Revision(), m.Lineage(), m.Term() })
	return revision, lineage, term
}
