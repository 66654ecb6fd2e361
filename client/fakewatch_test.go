package client

import (
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// fakeHistory records events from the first watch on.
type fakeHistory struct {
	events   []*wire.Event
	watches  []*fakeWatch
	on       bool
	flushing bool
	lineage  string
	oldest   uint64 // events up to this revision are gone
}

type fakeWatch struct {
	cn   *fakeConn
	id   uint64
	req  *wire.WatchRequest
	sent uint64 // revision up to which events were sent
}

func (v *service) watch(cn *fakeConn, req *wire.Request) *wire.Response {
	h, w := &v.history, req.GetWatch()
	if !h.on {
		h.on, h.lineage = true, "first"
	}
	after := w.GetAfterRevision()
	if after == 0 {
		after = v.revision
	}
	if w.GetLineage() != "" && w.GetLineage() != h.lineage || after < h.oldest {
		return &wire.Response{
			Result: &wire.Result{Status: wire.Status_COMPACTED, Message: "gone"},
			Body:   &wire.Response_Watch{Watch: &wire.WatchResponse{Status: wire.Status_COMPACTED, Oldest: h.oldest, Lineage: h.lineage}},
		}
	}
	watch := &fakeWatch{cn: cn, id: req.GetId(), req: w, sent: after}
	time.AfterFunc(0, func() {
		v.f.set(func() {
			h.watches = append(h.watches, watch)
			v.deliver(watch, true)
		})
	})
	return respond(status(wire.Status_OK))
}

func (v *service) endWatch(cn *fakeConn, id uint64) {
	v.history.watches = slices.DeleteFunc(v.history.watches, func(w *fakeWatch) bool { return w.cn == cn && w.id == id })
}

// emit sends an event once the command is done.
func (v *service) emit(what wire.Event_Type, k *claim) {
	h := &v.history
	if !h.on {
		return
	}
	h.events = append(h.events, &wire.Event{
		Type: what, Revision: v.revision, Lock: k.locks[0].GetName(), SessionId: k.session.id, Owner: k.owner,
		Seq: k.seq, HoldId: k.id, Token: k.token, Mode: k.locks[0].GetMode(),
	})
	if h.flushing {
		return
	}
	h.flushing = true
	time.AfterFunc(0, func() {
		v.f.set(func() {
			h.flushing = false
			for _, w := range h.watches {
				v.deliver(w, false)
			}
		})
	})
}

// deliver pushes the events that a watch has not received yet, in responses of a few events that are cut when
// full.
func (v *service) deliver(w *fakeWatch, always bool) {
	h := &v.history
	var events []*wire.Event
	for _, e := range h.events {
		if e.GetRevision() > w.sent && w.matches(e) {
			events = append(events, e)
		}
	}
	w.sent = v.revision
	for len(events) > 3 {
		w.push(&wire.WatchResponse{
			Status: wire.Status_OK, Revision: events[3].GetRevision() - 1, Lineage: h.lineage, Events: events[:3],
		})
		events = events[3:]
	}
	if always || len(events) > 0 {
		w.push(&wire.WatchResponse{Status: wire.Status_OK, Revision: v.revision, Lineage: h.lineage, Events: events})
	}
}

func (w *fakeWatch) push(resp *wire.WatchResponse) {
	w.cn.push(&wire.Push{Body: &wire.Push_Watch{Watch: &wire.WatchPush{RequestId: w.id, Response: resp}}})
}

func (w *fakeWatch) matches(e *wire.Event) bool {
	return (w.req.GetName() == "" || w.req.GetName() == e.GetLock()) &&
		strings.HasPrefix(e.GetLock(), w.req.GetPrefix()) &&
		(w.req.GetSessionId() == 0 || w.req.GetSessionId() == e.GetSessionId())
}
