package forward

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/quorumlock/quorumlock/server/httpapi/apierror"
	"github.com/quorumlock/quorumlock/server/httpapi/response"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// Serve gets the answer to a request that this node left to the leader. If this node has become the leader
// meanwhile, it answers the request itself.
func (f *Forwarder) Serve(w *response.Writer, r Request) {
	if r.Header.Get(HeaderFrom) != "" {
		f.moved(w, r)
		return
	}
	deadline := time.Now().Add(f.cfg.Wait)
	reason := "no leader is known"
	for {
		started := time.Now()
		leader, here := f.Await(r.Context(), deadline)
		switch {
		case f.cfg.Life.Err() != nil:
			f.giveUp(w, r, errStopping.Error())
			return
		case here:
			if f.serveHere(w, r); !w.Forward {
				return
			}
			reason = "leadership keeps changing"
		case leader == "":
			f.giveUp(w, r, reason)
			return
		default:
			err := f.try(w, r, leader)
			if err == nil {
				return
			}
			w.Uncertain = w.Uncertain || !(errors.Is(err, errMoved) || errors.Is(err, ErrUnreached))
			if !again(err, r.Procedure) {
				f.giveUp(w, r, "the connection to the leader was lost: "+err.Error())
				return
			}
			reason = err.Error()
		}
		if waited := time.Since(started); waited > f.cfg.Wait {
			// That leader had the request for long, perhaps queued: restart the search.
			deadline = time.Now().Add(f.cfg.Wait)
		}
		f.Pause(r.Context())
	}
}

// Await waits until a leader is known. It returns another node's id, or here if this node leads. At the
// deadline, or when ctx or the node's life ends, it returns neither.
func (f *Forwarder) Await(ctx context.Context, deadline time.Time) (leader string, here bool) {
	ctx, stop := context.WithDeadline(ctx, deadline)
	defer stop()
	for {
		if f.cfg.Replica.Serving() {
			leader, here = "", true
		} else {
			leader, here = f.leader(), false
		}
		switch {
		case ctx.Err() != nil:
			return "", false
		case here || leader != "" || f.cfg.Life.Err() != nil:
			return leader, here
		}
		f.Pause(ctx)
	}
}

// leader returns the id of another node that leads, empty if none is known.
func (f *Forwarder) leader() string {
	if id := f.cfg.Replica.Leader().GetId(); id != f.cfg.NodeID {
		return id
	}
	return ""
}

// Pause waits until the leader should be looked up again, or ctx or the node's life ends.
func (f *Forwarder) Pause(ctx context.Context) {
	timer := time.NewTimer(pollEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-f.cfg.Life.Done():
	}
}

func (f *Forwarder) serveHere(w *response.Writer, r Request) {
	w.Reset()
	here := r.Request
	Rewind(here, r.Body)
	r.Handler.ServeHTTP(w, here)
}

// Rewind sets the request's body to be read from the start.
func Rewind(r *http.Request, body []byte) {
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
}

// moved answers the node that forwarded a request, which then tries the next leader.
func (f *Forwarder) moved(w *response.Writer, r Request) {
	status, value := wire.Status_NOT_LEADER, Unchanged
	if w.Uncertain {
		status, value = wire.Status_UNCERTAIN, InDoubt
	}
	w.Reset()
	w.Header().Set(HeaderMoved, value)
	f.fail(w, r, status, "")
}

// giveUp answers without a leader. If something may have been done, the status is UNCERTAIN, unless the caller was
// dismissed.
func (f *Forwarder) giveUp(w *response.Writer, r Request, reason string) {
	if gone := f.cfg.Dismissal(r.Context()); gone != nil {
		w.Reset()
		f.write(w, r, gone)
		return
	}
	status, message := wire.Status_UNAVAILABLE, "nothing was done: "+reason+"; send the request again"
	switch {
	case !w.Uncertain || readOnly[r.Procedure]:
	case once[r.Procedure]:
		status, message = wire.Status_UNCERTAIN, reason+"; the outcome is unknown"
	default:
		status, message = wire.Status_UNCERTAIN, reason+"; send the same request again, to any node"
	}
	w.Reset()
	f.fail(w, r, status, message)
}

func (f *Forwarder) fail(w *response.Writer, r Request, status wire.Status_Code, message string) {
	f.write(w, r, apierror.New(status, message))
}

func (f *Forwarder) write(w *response.Writer, r Request, err error) {
	w.Outcome = apierror.Status(err).String()
	_ = f.cfg.Errors.Write(w, r.Request, err)
}
