package framed

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// watchRoom is how much of a connection's outbox its watches fill at most. It is far below
// the bound: what watches have to say can wait, and answers shall not wait behind much
// of it.
const watchRoom = 256 << 10

// Why a watch ends here, other than by its replica.
var (
	errUnwatched = errors.New("the client ended the watch")
	errDeposed   = errors.New("this node does not lead any more: watch at the leader, after the last revision")
	errLeaving   = errors.New(goElsewhere)
)

// watch is one watch of a connection. Its goroutine reads the node's history at the pace
// at which the client takes it: what the client does not read stays in the history until
// it is dropped there, and then the client is told so.
type watch struct {
	conn   *conn
	req    *wire.Request
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when nothing more will be said

	// Only the watch's goroutine uses these.
	answered bool // the request was; the rest are pushes
	said     *wire.WatchResponse
}

// watch begins a watch. Only the leader has everything that the client may have been told
// of elsewhere.
func (c *conn) watch(req *wire.Request, body *wire.WatchRequest) {
	w, refused := c.enterWatch(req)
	if refused != nil {
		c.respond(req, refused)
		return
	}
	if !c.srv.leads() { // after it was entered, so that no change of leader is missed
		c.leaveWatch(w)
		c.respond(req, failure(wire.Status_NOT_LEADER, ""))
		return
	}
	c.running.Go(func() {
		defer c.leaveWatch(w)
		w.end(c.srv.cfg.Replica.Watch(w.ctx, body, w.send))
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
	if err := c.memory.Reserve(watchBytes); err != nil {
		return nil, failure(wire.Status_RESOURCE_EXHAUSTED, err.Error())
	}
	w := &watch{conn: c, req: req, done: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancelCause(c.ctx)
	c.watches[req.GetId()] = w
	return w, nil
}

func (c *conn) leaveWatch(w *watch) {
	w.cancel(nil)
	c.memory.Release(watchBytes)
	c.mu.Lock()
	delete(c.watches, w.req.GetId())
	c.mu.Unlock()
	close(w.done)
}

// endWatch ends a watch and answers when nothing of it comes any more.
func (c *conn) endWatch(req *wire.Request, body *wire.EndWatch) {
	c.mu.Lock()
	w := c.watches[body.GetRequestId()]
	c.mu.Unlock()
	if w == nil {
		c.respond(req, failure(wire.Status_NOT_FOUND, fmt.Sprintf("this connection has no watch %d, or no longer", body.GetRequestId())))
		return
	}
	w.cancel(errUnwatched)
	c.running.Go(func() {
		<-w.done
		c.respond(req, &wire.Result{Status: wire.Status_OK})
	})
}

// endWatches is called when another node may lead.
func (c *conn) endWatches() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.watches {
		w.cancel(errDeposed)
	}
}

// send passes on what the history has, and waits until there is room for it.
func (w *watch) send(resp *wire.WatchResponse) error {
	for _, piece := range pieces(resp, w.conn.srv.cfg.Limits.MaxFrameBytes-responseRoom) {
		if err := w.conn.out.SendWithin(w.ctx, w.frame(piece), min(watchRoom, w.conn.srv.cfg.Limits.MaxOutboxBytes/4)); err != nil {
			return err
		}
		w.said = piece
		if !w.answered {
			w.answered = true
			<-w.conn.slots
		}
	}
	return nil
}

// frame is an answer at first and then a push. A watch that ends before it began is
// answered with the reason.
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

// end says the last word, unless the history has or nobody wants to hear it.
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
		_ = w.conn.out.Send(w.frame(w.lastWord(err))) // if there is room: the goodbye says it, too
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

// pieces parts what does not fit into one frame. Each piece says after which revision to
// resume: one that ends amid the events of a command names the revision before, so that
// who resumes there gets these events twice rather than not at all.
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
