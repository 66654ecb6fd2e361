package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/httpapi/callers"
	"github.com/quorumlock/quorumlock/server/httpapi/jsoncodec"
	"github.com/quorumlock/quorumlock/server/httpapi/response"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Two procedures answer with more than one message. Clients that use Connect or gRPC streams get those.
// Clients that post plain JSON get what curl can show: one line per message of a watch, and the raw bytes of
// a snapshot.

// errNoLeader ends a watch on a node that is cut off from its cluster.
var errNoLeader = errors.New("this node knows no leader, and may miss events")

// watch sends events as fast as send accepts them. Leader or not, this node answers it itself: every node
// applies every event, so the watch survives a change of leader. It ends with a final message, or with an
// error if none was sent.
func (s *Server) watch(ctx context.Context, req *wire.WatchRequest, send func(*wire.WatchResponse) error) error {
	leave, err := callers.BeginWatch(ctx, s.cfg.Limits.MaxWatchesPerConnection)
	if err != nil {
		return err
	}
	defer leave()
	running, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.life, stop)()
	answer, shortened := response.Of(ctx), make(chan struct{})
	detach := context.AfterFunc(running, func() { // for a caller that has to go, or a node that stops
		defer close(shortened)
		answer.ShortenDeadline()
	})
	defer func() {
		if !detach() {
			<-shortened // ShortenDeadline must not use the answer of a finished request
		}
	}()
	w := &watch{server: s, send: send}
	err = w.end(ctx, s.watchOnce(running, req, w))
	if w.last != nil {
		answer.Outcome = w.last.GetStatus().String()
	}
	return err
}

// watch is a watch in progress.
type watch struct {
	server *Server
	send   func(*wire.WatchResponse) error
	// last is the last message sent.
	last *wire.WatchResponse
	// leaderless is set if no leader was known when the last message was due.
	leaderless bool
}

// deliver sends a message. A node that is cut off would report forever that nothing happens, so it returns
// errNoLeader when two consecutive empty messages find no leader.
func (w *watch) deliver(resp *wire.WatchResponse) error {
	quiet := w.last != nil && len(resp.GetEvents()) == 0 && resp.GetStatus() == wire.Status_OK
	alone := quiet && w.server.replica.Leader().GetId() == ""
	if alone && w.leaderless {
		return errNoLeader
	}
	w.leaderless = alone
	if err := w.send(resp); err != nil {
		return err
	}
	w.last = resp
	return nil
}

// end sends the final message, unless the event log has sent it or the caller is gone.
func (w *watch) end(ctx context.Context, err error) error {
	closing := w.server.isClosing()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return watchContextError(ctx.Err(), w.last)
	case closing && w.last == nil:
		return apierror.New(wire.Status_UNAVAILABLE, "this node is stopping: watch on another node")
	case closing:
		return w.finish("this node is stopping: resume the watch on another node")
	case errors.Is(err, errNoLeader):
		return w.finish(err.Error() + ": resume the watch on another node")
	case w.last == nil && connect.CodeOf(err) == connect.CodeUnknown: // not yet converted
		return w.server.refusalOf(err)
	}
	return err
}

func (w *watch) finish(message string) error {
	w.last = &wire.WatchResponse{
		Revision: w.last.GetRevision(), Lineage: w.last.GetLineage(), Status: wire.Status_UNAVAILABLE, Message: message,
	}
	return w.send(w.last)
}

// watchContextError converts the end of the caller's context to an error.
func watchContextError(err error, last *wire.WatchResponse) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return connect.NewError(connect.CodeDeadlineExceeded, fmt.Errorf("the request's deadline passed; resume the watch after revision %d", last.GetRevision()))
	}
	return connect.NewError(connect.CodeCanceled, err)
}

// snapshot sends the state in pieces. A stale snapshot is this node's own state and is described first.
func (s *Server) snapshot(ctx context.Context, req *wire.SaveSnapshotRequest, describe func(*wire.StaleSnapshot) error, send func([]byte) error) error {
	if !req.GetStale() && !s.replica.Serving() {
		return errNotLeader
	}
	leave, err := s.enter(ctx, s.queues.Snapshots)
	if err != nil {
		return err
	}
	defer leave()
	sent := &chunks{send: send}
	if req.GetStale() {
		err = s.replica.SaveStaleSnapshot(ctx, req, describe, sent)
	} else {
		err = s.replica.SaveSnapshot(ctx, req, sent)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return contextError(ctx.Err())
	case sent.any:
		return apierror.New(wire.Status_UNAVAILABLE, "the snapshot is incomplete, discard it: "+err.Error())
	}
	return s.refusalOf(err)
}

// chunks is an io.Writer that sends each write as a message.
type chunks struct {
	send func([]byte) error
	any  bool
}

func (p *chunks) Write(piece []byte) (int, error) {
	if err := p.send(piece); err != nil {
		return 0, err
	}
	p.any = true
	return len(piece), nil
}

// plainJSON handles requests with plain JSON by plain, and all others by streamed.
func (s *Server) plainJSON(streamed http.Handler, plain func(w http.ResponseWriter, r *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !jsoncodec.IsJSON(r.Header) {
			streamed.ServeHTTP(w, r)
			return
		}
		switch err := record(r.Context(), plain(w, r)); {
		case err == nil:
		case response.Of(r.Context()).Code != 0:
			panic(http.ErrAbortHandler) // the response has begun, so only a broken connection can signal an error
		default:
			_ = s.errors.Write(w, r, err)
		}
	})
}

// lineEvery is the least time between two lines of a watch with few events each. Every line costs the node a message, an
// encoding and a write, whatever the number of its events: what happens while one waits is in the next.
const lineEvery = 80 * time.Millisecond

// fewEvents are the events of a line that may wait. A caller that catches up gets lines with more.
const fewEvents = 64

// writeLines answers a watch with one line of JSON per message.
func (s *Server) writeLines(w http.ResponseWriter, r *http.Request) error {
	var req wire.WatchRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	var last *wire.WatchResponse
	var sent time.Time
	send := func(resp *wire.WatchResponse) error {
		if last = resp; resp.GetStatus() == wire.Status_OK && len(resp.GetEvents()) <= fewEvents {
			if err := waitUntil(r.Context(), sent.Add(lineEvery)); err != nil {
				return err
			}
		}
		sent = time.Now()
		return writeLine(w, resp)
	}
	err := s.watch(r.Context(), &req, send)
	gone := callers.Dismissal(r.Context())
	if err == nil || gone == nil || last == nil {
		return err
	}
	// Lines have no trailer that could name the reason.
	answer := response.Of(r.Context())
	answer.ChargeNothing()
	answer.Outcome = apierror.Name(gone)
	return send(&wire.WatchResponse{
		Revision: last.GetRevision(), Lineage: last.GetLineage(), Status: apierror.Status(gone), Message: apierror.Message(gone),
	})
}

// waitUntil waits until a time, unless the caller goes.
func waitUntil(ctx context.Context, at time.Time) error {
	left := time.Until(at)
	if left <= 0 {
		return nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func writeLine(w http.ResponseWriter, resp *wire.WatchResponse) error {
	line, err := jsoncodec.Codec{}.Marshal(resp)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	if _, err := w.Write(append(line, '\n')); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

// headerStale describes the stale backup in the body.
const headerStale = "Quorumlock-Stale-Snapshot"

// writeBytes answers with the bytes of the snapshot. On an error after the first piece, the connection is cut.
func (s *Server) writeBytes(w http.ResponseWriter, r *http.Request) error {
	req := &wire.SaveSnapshotRequest{}
	if err := decode(r, req); err != nil {
		return err
	}
	describe := func(about *wire.StaleSnapshot) error {
		text, err := jsoncodec.Codec{}.Marshal(about)
		w.Header().Set(headerStale, string(text))
		return err
	}
	return s.snapshot(r.Context(), req, describe, func(piece []byte) error {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, err := w.Write(piece)
		return err
	})
}

// decode reads a request that no handler of connect reads, and checks it like those.
func decode(r *http.Request, m proto.Message) error {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = jsoncodec.Codec{}.Unmarshal(body, m)
	}
	if err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	return callers.Check(r.Context(), m)
}
