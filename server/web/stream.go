package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// Two procedures answer with more than one message. Callers that speak Connect's or
// gRPC's streams get those; who posts plain JSON gets what curl can show: a line for each
// answer of a watch, and the bytes of a snapshot as they are.

// errAstray ends a watch on a node that has lost its cluster.
var errAstray = errors.New("this node knows no leader, and may miss what happens elsewhere")

// watch sends events as fast as send takes them. This node answers it itself, leader or
// not: every node applies every event, and a watch here goes on when another one is
// elected. It ends with a last word, or an error before the first.
func (s *Server) watch(ctx context.Context, req *wire.WatchRequest, send func(*wire.WatchResponse) error) error {
	leave, err := s.enterWatch(ctx)
	if err != nil {
		return err
	}
	defer leave()
	running, stop := context.WithCancel(ctx)
	defer stop()
	c, hurried := callOf(ctx), make(chan struct{})
	calm := context.AfterFunc(s.life, func() {
		defer close(hurried)
		stop()
		c.hurry()
	})
	defer func() {
		if !calm() {
			<-hurried // it must not touch the answer of a request that is over
		}
	}()
	w := &watch{server: s, send: send}
	err = w.end(ctx, s.watchOnce(running, req, w))
	if w.said != nil {
		c.outcome = w.said.GetStatus().String()
	}
	return err
}

// watch is one that is being answered.
type watch struct {
	server *Server
	send   func(*wire.WatchResponse) error
	// said is the latest answer.
	said *wire.WatchResponse
	// astray: no leader was known when nothing had happened for a while.
	astray bool
}

// say passes an answer on. A node that is cut off would say for ever that nothing
// happens: twice without a leader is enough.
func (w *watch) say(resp *wire.WatchResponse) error {
	quiet := w.said != nil && len(resp.GetEvents()) == 0 && resp.GetStatus() == wire.Status_OK
	alone := quiet && w.server.replica.Leader().GetId() == ""
	if alone && w.astray {
		return errAstray
	}
	w.astray = alone
	if err := w.send(resp); err != nil {
		return err
	}
	w.said = resp
	return nil
}

// end says the last word, if the history has not and somebody hears it.
func (w *watch) end(ctx context.Context, err error) error {
	closing := w.server.isClosing()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return left(ctx.Err(), w.said)
	case closing && w.said == nil:
		return failure(wire.Status_UNAVAILABLE, "this node is stopping: watch at another one")
	case closing:
		return w.lastWord("this node is stopping: watch on at another one")
	case errors.Is(err, errAstray):
		return w.lastWord(err.Error() + ": watch on at another one")
	case w.said == nil && connect.CodeOf(err) == connect.CodeUnknown: // not worded yet
		return w.server.refusalOf(err)
	}
	return err
}

func (w *watch) lastWord(message string) error {
	w.said = &wire.WatchResponse{
		Revision: w.said.GetRevision(), Lineage: w.said.GetLineage(), Status: wire.Status_UNAVAILABLE, Message: message,
	}
	return w.send(w.said)
}

// left words the end of the caller's own patience.
func left(err error, said *wire.WatchResponse) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return connect.NewError(connect.CodeDeadlineExceeded, fmt.Errorf("the request's own deadline passed; watch on after revision %d", said.GetRevision()))
	}
	return connect.NewError(connect.CodeCanceled, err)
}

// enterWatch takes a place among the watches of the caller's connection.
func (s *Server) enterWatch(ctx context.Context) (leave func(), err error) {
	conn := connectionOf(ctx)
	if conn == nil {
		return func() {}, nil
	}
	most := s.cfg.Limits.MaxWatchesPerConnection
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if conn.watches >= most {
		return nil, failure(wire.Status_RESOURCE_EXHAUSTED, fmt.Sprintf("max_watches_per_connection: this connection has %d watches already", most))
	}
	conn.watches++
	return func() {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		conn.watches--
	}, nil
}

// snapshot sends the state in pieces. A stale one is this node's own, and is described first.
func (s *Server) snapshot(ctx context.Context, req *wire.SaveSnapshotRequest, describe func(*wire.StaleSnapshot) error, send func([]byte) error) error {
	if !req.GetStale() && !s.replica.Serving() {
		return errElsewhere
	}
	leave, err := s.enter(ctx, s.queues.Snapshots)
	if err != nil {
		return err
	}
	defer leave()
	sent := &pieces{send: send}
	if req.GetStale() {
		err = s.replica.SaveStaleSnapshot(ctx, req, describe, sent)
	} else {
		err = s.replica.SaveSnapshot(ctx, req, sent)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return gaveUp(ctx.Err())
	case sent.any:
		return failure(wire.Status_UNAVAILABLE, "the snapshot broke off, what came of it is of no use: "+err.Error())
	}
	return s.refusalOf(err)
}

// pieces is a stream as a file to write.
type pieces struct {
	send func([]byte) error
	any  bool
}

func (p *pieces) Write(piece []byte) (int, error) {
	if err := p.send(piece); err != nil {
		return 0, err
	}
	p.any = true
	return len(piece), nil
}

// plainly serves callers that post JSON by plain, and others by streamed.
func (s *Server) plainly(streamed http.Handler, plain func(w http.ResponseWriter, r *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isJSON(r) {
			streamed.ServeHTTP(w, r)
			return
		}
		begun := &beginning{ResponseWriter: w}
		switch err := note(r.Context(), plain(begun, r)); {
		case err == nil:
		case begun.done:
			panic(http.ErrAbortHandler) // no more can be said than by breaking off
		default:
			_ = s.errors.Write(w, r, err)
		}
	})
}

// beginning knows whether an answer has begun.
type beginning struct {
	http.ResponseWriter
	done bool
}

// Unwrap leads http.ResponseController to what is beneath.
func (b *beginning) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b *beginning) Write(p []byte) (int, error) {
	n, err := b.ResponseWriter.Write(p)
	b.done = b.done || n > 0 || err == nil
	return n, err
}

// lines answers a watch with a line of JSON each time.
func (s *Server) lines(w http.ResponseWriter, r *http.Request) error {
	var req wire.WatchRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	flush := http.NewResponseController(w)
	return s.watch(r.Context(), &req, func(resp *wire.WatchResponse) error {
		line, err := jsonCodec{}.Marshal(resp)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
		return flush.Flush()
	})
}

// headerStale describes a stale backup whose bytes follow.
const headerStale = "Quorumlock-Stale-Snapshot"

// bytes answers with the snapshot itself. If it breaks off, so does the connection.
func (s *Server) bytes(w http.ResponseWriter, r *http.Request) error {
	req := &wire.SaveSnapshotRequest{}
	if err := decode(r, req); err != nil {
		return err
	}
	describe := func(about *wire.StaleSnapshot) error {
		text, err := jsonCodec{}.Marshal(about)
		w.Header().Set(headerStale, string(text))
		return err
	}
	return s.snapshot(r.Context(), req, describe, func(piece []byte) error {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, err := w.Write(piece)
		return err
	})
}

func decode(r *http.Request, m proto.Message) error {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = jsonCodec{}.Unmarshal(body, m)
	}
	if err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	return nil
}
