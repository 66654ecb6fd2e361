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

// progress is how often a watch without events says that it is alive.
const progress = 5 * time.Second

// Watch sends the events that the request names, in order and without gaps, and blocks
// until it ends. Every node can do it: the events are those that it has applied.
//
// The first answer comes at once, if only to say from where on it watches; while
// nothing happens one comes every five seconds. Events come some hundreds at a time, as
// fast as send returns: they are shared, read-only. The last answer is COMPACTED if
// the events asked for are not, or no longer, in memory, and UNAVAILABLE if the node
// stops; Watch then returns nil. It returns ctx's error when that ends, and send's if
// it fails, without a last word; ErrInvalid and ErrTooMany before the first answer, and
// ErrNotLeader or ErrUnavailable if this node has not applied the revision yet and cannot
// prove that there is none, and ErrUnavailable if it has not caught up since its start.
//
// Whoever resumes after an answer's revision misses nothing, and gets nothing twice: the
// events of one revision come in one answer. Only if they have more than a mebibyte they
// come in several, which all but the last resume before that revision.
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

// reached returns ErrInvalid if the revision to watch after does not exist yet. This node may
// merely be behind: so it is said on a proof of leadership only.
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

// FutureRevision is the error of a watch from a revision that does not exist yet. It is
// ErrInvalid.
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

// follow sends until the watch ends.
func (r *Replica) follow(ctx context.Context, w *watch, send func(*wire.WatchResponse) error) error {
	idle := time.NewTimer(progress)
	defer idle.Stop()
	mark := true // the first answer comes at once
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

// answer sends what the watch has to tell, with mark even if that is nothing, but not its last
// word, and then has it rest.
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
	// A watch rests after an answer restFactor times as long as that took, times the number of
	// busy watches. So all together take a third of a processor, however many wake up for the
	// same events. A rest below leastRest is not worth a timer; longestRest bounds by how much
	// an event may be delayed.
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

// recorder is the machine as raft sees it: what is applied becomes history, and some of
// it is hashed. Raft calls it from one goroutine.
type recorder struct {
	*fsm.Replicated
	history *history
	hashes  *hashes
	catchUp *catchUp
	states  *peerStates
	// awaited says whether somebody on this node may wait for the entry that is applied.
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

// Restore begins the history anew, at the snapshot.
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
