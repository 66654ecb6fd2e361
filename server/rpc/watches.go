package rpc

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// watchRoom bounds how many bytes of a connection's outbox its watches fill. It is far below the outbox's own
// bound: watch events can wait, and answers should not queue behind many of them.
const watchRoom = 256 << 10

// Reasons for this port to end a watch.
var (
	errUnwatched = errors.New("the client ended the watch")
	errDeposed   = errors.New("this node no longer leads: resume the watch at the leader")
	errLeaving   = errors.New(shutdownMessage)
)

// watch is one watch of a connection. Its goroutine reads the node's event log at the client's pace. Events
// that the client has not read stay in the event log until they are dropped there, and then the client is
// notified.
type watch struct {
	conn   *conn
	req    *wire.Request
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when nothing more will be sent
	leave  func()        // frees the watch's place in the quota

	// Used by the watch's goroutine only.
	answered bool // the request was answered; later messages are pushes
	said     *wire.WatchResponse
}

// watch starts a watch. Only the leader accepts watches, since only it has everything that the client may
// have seen on other nodes.
func (c *conn) watch(req *wire.Request, body *wire.WatchRequest) {
	w, refused := c.enterWatch(req)
	if refused != nil {
		c.respond(req, refused)
		return
	}
	if !c.srv.leads() { // checked after entering, so that no change of leader is missed
		c.leaveWatch(w)
		c.respond(req, failure(wire.Status_NOT_LEADER, ""))
		return
	}
	c.running.Go(func() {
		defer c.leaveWatch(w)
		w.end(c.srv.cfg.Replica.Watch(w.ctx, body, c.caller.Event, w.send))
	})
}

func (s *Server) leads() bool { return s.cfg.Replica.Leader().GetId() == s.cfg.NodeID }

func (c *conn) enterWatch(req *wire.Request) (*watch, *wire.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.srv.cfg.Limits.MaxWatchesPerConnection
	switch {
	case c.watches[req.GetId()] != nil:
		return nil, failure(wire.Status_INVALID_ARGUMENT, fmt.Sprintf("a watch has the id %d already: give each its own", req.GetId()))
	case len(c.watches) >= most:
		return nil, failure(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("max_watches_per_connection: this connection has %d watches already", most))
	}
	leave, refused := c.quota.Watch()
	if refused != nil {
		return nil, refused
	}
	if err := c.memory.Reserve(watchBytes); err != nil {
		leave()
		return nil, failure(wire.Status_RESOURCE_EXHAUSTED, err.Error())
	}
	w := &watch{conn: c, req: req, done: make(chan struct{}), leave: leave}
	w.ctx, w.cancel = context.WithCancelCause(c.ctx)
	c.watches[req.GetId()] = w
	return w, nil
}

func (c *conn) leaveWatch(w *watch) {
	w.cancel(nil)
	w.leave()
	c.memory.Release(watchBytes)
	c.mu.Lock()
	delete(c.watches, w.req.GetId())
	c.mu.Unlock()
	close(w.done)
}

// endRequest ends a watch, and answers once no more of its messages will follow, or the wait of an acquire of a lease.
func (c *conn) endRequest(req *wire.Request, body *wire.EndRequest) {
	c.mu.Lock()
	w := c.watches[body.GetRequestId()]
	c.mu.Unlock()
	if w == nil {
		if c.endLeaseWait(body.GetRequestId()) {
			c.respond(req, &wire.Result{Status: wire.Status_OK})
			return
		}
		c.respond(req, failure(wire.Status_NOT_FOUND, fmt.Sprintf("this connection has no watch or lease's acquire %d, or no longer", body.GetRequestId())))
		return
	}
	w.cancel(errUnwatched)
	c.running.Go(func() {
		<-w.done
		c.respond(req, &wire.Result{Status: wire.Status_OK})
	})
}

// endWatches is called when another node may be leader.
func (c *conn) endWatches() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.watches {
		w.cancel(errDeposed)
	}
}

// send sends events of the event log. It blocks until the outbox has room.
func (w *watch) send(resp *wire.WatchResponse) error {
	for _, piece := range pieces(resp, w.conn.srv.cfg.Limits.MaxFrameBytes-responseRoom) {
		if err := w.conn.out.SendWithin(w.ctx, w.frame(piece), min(watchRoom, w.conn.srv.cfg.Limits.MaxOutboxBytes/4)); err != nil {
			return err
		}
		w.said = piece
		if !w.answered {
			w.answered = true
			w.conn.arrivals.answered(w.req.GetId())
			<-w.conn.slots
		}
	}
	return nil
}

// frame returns an answer for the first response and pushes for all others. A watch that ends before it
// started is answered with the reason.
func (w *watch) frame(resp *wire.WatchResponse) *wire.ServerFrame {
	if w.answered {
		return &wire.ServerFrame{Frame: &wire.ServerFrame_Push{Push: &wire.Push{
			Body: &wire.Push_Watch{Watch: &wire.WatchPush{RequestId: w.req.GetId(), Response: resp}},
		}}}
	}
	return responseFrame(&wire.Response{
		Id: w.req.GetId(), Result: failure(resp.GetStatus(), resp.GetMessage()), Body: &wire.Response_Watch{Watch: resp},
	})
}

// end sends the final message, unless the event log has already sent it or the client is not interested.
func (w *watch) end(err error) {
	if w.ctx.Err() != nil {
		err = context.Cause(w.ctx)
		if w.conn.ctx.Err() != nil && w.conn.saidGoodbye(wire.Goodbye_SHUTDOWN) {
			err = errLeaving
		}
	}
	switch {
	case !w.answered:
		w.conn.respond(w.req, w.refusal(err))
	case errors.Is(err, errUnwatched), w.said.GetStatus() != wire.Status_OK:
	case errors.Is(err, errLeaving):
		_ = w.conn.out.Send(w.frame(w.lastWord(err))) // best effort: the goodbye reports it as well
	case w.conn.ctx.Err() == nil:
		if err == nil {
			err = errors.New("the watch ended: watch again, after the last revision")
		}
		w.conn.noteSendError(w.conn.out.SendWithin(w.conn.ctx, w.frame(w.lastWord(err)), w.conn.srv.cfg.Limits.MaxOutboxBytes))
	}
}

func (w *watch) refusal(err error) *wire.Result {
	switch {
	case errors.Is(err, errDeposed):
		return failure(wire.Status_NOT_LEADER, "")
	case err == nil, errors.Is(err, errUnwatched), errors.Is(err, errLeaving), errors.Is(err, context.Canceled):
		return failure(wire.Status_UNAVAILABLE, "the watch ended before it began")
	}
	return refusal(err)
}

func (w *watch) lastWord(err error) *wire.WatchResponse {
	return &wire.WatchResponse{
		Revision: w.said.GetRevision(), Lineage: w.said.GetLineage(),
		Status: wire.Status_UNAVAILABLE, Message: err.Error(),
	}
}

// pieces splits a response that does not fit into one frame. Each piece has the revision to resume after. A
// piece that ends between events of the same command has the revision before it, so that a client that
// resumes there gets these events twice rather than not at all.
func pieces(resp *wire.WatchResponse, limit int) []*wire.WatchResponse {
	if proto.Size(resp) <= limit || len(resp.GetEvents()) < 2 {
		return []*wire.WatchResponse{resp}
	}
	half := len(resp.GetEvents()) / 2
	first := &wire.WatchResponse{Events: resp.GetEvents()[:half], Lineage: resp.GetLineage(), Status: wire.Status_OK}
	rest := &wire.WatchResponse{
		Events: resp.GetEvents()[half:], Revision: resp.GetRevision(), Lineage: resp.GetLineage(),
		Status: resp.GetStatus(), Oldest: resp.GetOldest(), Message: resp.GetMessage(),
	}
	first.Revision = first.GetEvents()[half-1].GetRevision()
	if next := rest.GetEvents()[0].GetRevision(); next == first.GetRevision() {
		first.Revision = next - 1
	}
	return append(pieces(first, limit), pieces(rest, limit)...)
}
