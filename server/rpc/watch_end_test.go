package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/transport/wire"
)

// TestFinalStatusOfAWatch checks the final message of a watch for each way it can end.
func TestFinalStatusOfAWatch(t *testing.T) {
	broken := errors.New("the history is gone")
	again := errors.New("the watch ended: watch again, after the last revision")
	none := errors.New("")
	for _, test := range []struct {
		name     string
		err      error // returned by the event log
		cause    error // why the watch was cancelled
		shutdown bool  // the connection said goodbye with SHUTDOWN
		ended    bool  // the connection has ended
		said     wire.Status_Code
		want     error
	}{
		{name: "the history ends", want: again},
		{name: "the history fails", err: broken, want: broken},
		{name: "the history has said it", err: broken, said: wire.Status_COMPACTED, want: none},
		{name: "the client ended it", cause: errUnwatched, want: none},
		{name: "another leads", cause: errDeposed, want: errDeposed},
		{name: "another leads, and the history fails", err: broken, cause: errDeposed, want: errDeposed},
		{name: "another leads while the node shuts down", cause: errDeposed, shutdown: true, want: errDeposed},
		{name: "the node shuts down", shutdown: true, ended: true, want: errLeaving},
		{name: "the history fails while the node shuts down", err: broken, shutdown: true, want: broken},
		{name: "the connection has ended", ended: true, want: none},
	} {
		c, reader := bare(t, serve(t, nil))
		w, refused := c.enterWatch(&wire.Request{Id: 5})
		if refused != nil {
			t.Fatal(refused)
		}
		w.answered, w.said = true, &wire.WatchResponse{Revision: 7, Lineage: lineage, Status: cmp.Or(test.said, wire.Status_OK)}
		if test.cause != nil {
			w.cancel(test.cause)
		}
		if test.shutdown {
			c.end(wire.Goodbye_SHUTDOWN, "")
		}
		if test.ended {
			c.cancel(nil)
		}
		w.end(test.err)
		if test.want != none {
			last := reader.push().GetWatch()
			if r := last.GetResponse(); last.GetRequestId() != 5 || r.GetMessage() != test.want.Error() || r.GetStatus() != wire.Status_UNAVAILABLE ||
				r.GetRevision() != 7 || r.GetLineage() != lineage {
				t.Errorf("%s: %v", test.name, last)
			}
		} else if n := c.out.Queued(); n != 0 {
			t.Errorf("%s: %d bytes are said", test.name, n)
		}
		c.leaveWatch(w)
		if c.busy() {
			t.Errorf("%s: the connection keeps the watch", test.name)
		}
	}
}

// TestRefusalOfAWatch checks the answer to a watch that ended before it started.
func TestRefusalOfAWatch(t *testing.T) {
	for _, test := range []struct {
		err  error
		want wire.Status_Code
	}{
		{nil, wire.Status_UNAVAILABLE}, {errUnwatched, wire.Status_UNAVAILABLE}, {errLeaving, wire.Status_UNAVAILABLE},
		{fmt.Errorf("wrapped: %w", context.Canceled), wire.Status_UNAVAILABLE}, {errDeposed, wire.Status_NOT_LEADER},
	} {
		if got := (&watch{}).refusal(test.err); got.GetStatus() != test.want {
			t.Errorf("%v: %v", test.err, got)
		}
	}
	if got := (&watch{}).refusal(errors.New("strange")); got.GetMessage() != "strange" {
		t.Error(got)
	}
}

// TestWatchesEndWhenAnotherLeads verifies that watches end when this node loses leadership, but not when its
// leadership is announced again.
func TestWatchesEndWhenAnotherLeads(t *testing.T) {
	p := serve(t, nil)
	c, _ := bare(t, p)
	w, _ := c.enterWatch(&wire.Request{Id: 5})
	if !p.register(c) {
		t.Fatal("not registered")
	}
	defer p.unregister(c)
	p.leaderMoved(&wire.LeaderHint{Id: self, Term: 9})
	if err := context.Cause(w.ctx); err != nil {
		t.Error("this node leads:", err)
	}
	p.leaderMoved(&wire.LeaderHint{Id: other, Term: 10})
	if err := context.Cause(w.ctx); err != errDeposed {
		t.Error("another node leads:", err)
	}
	c.leaveWatch(w)
}

func TestPieces(t *testing.T) {
	response := func(revisions ...uint64) *wire.WatchResponse {
		r := &wire.WatchResponse{Revision: 99, Lineage: "x", Status: wire.Status_COMPACTED, Oldest: 3, Message: "gone"}
		for _, revision := range revisions {
			r.Events = append(r.Events, &wire.Event{Revision: revision, Lock: "a-name-of-thirty-two-bytes------"})
		}
		return r
	}
	whole := proto.Size(response(11, 12, 13, 14))
	for _, test := range []struct {
		revisions []uint64
		limit     int
		want      string // events/revision of each piece
	}{
		{nil, 1, "0/99"},
		{[]uint64{11}, 1, "1/99"},
		{[]uint64{11, 12}, 1, "1/11 1/99"},
		{[]uint64{11, 11}, 1, "1/10 1/99"},
		{[]uint64{11, 11, 11, 12}, 1, "1/10 1/10 1/11 1/99"},
		{[]uint64{11, 12, 13}, 1, "1/11 1/12 1/99"},
		{[]uint64{11, 12, 13, 14}, whole, "4/99"},
		{[]uint64{11, 12, 13, 14}, whole - 1, "2/12 2/99"},
		{[]uint64{11, 12, 12, 14}, whole - 1, "2/11 2/99"},
	} {
		got, at := "", 0
		all := pieces(response(test.revisions...), test.limit)
		for i, piece := range all {
			got += fmt.Sprintf(" %d/%d", len(piece.GetEvents()), piece.GetRevision())
			for _, e := range piece.GetEvents() {
				if e.GetRevision() != test.revisions[at] {
					t.Errorf("%v: event %d is of %d", test.revisions, at, e.GetRevision())
				}
				at++
			}
			last := i == len(all)-1
			if piece.GetLineage() != "x" || (piece.GetStatus() == wire.Status_COMPACTED) != last || (piece.GetOldest() == 3) != last || (piece.GetMessage() == "gone") != last ||
				!last && piece.GetStatus() != wire.Status_OK {
				t.Errorf("%v: piece %d is %v", test.revisions, i, piece)
			}
		}
		if got != " "+test.want || at != len(test.revisions) {
			t.Errorf("%v in %d bytes: %s, want %s", test.revisions, test.limit, got, test.want)
		}
	}
}
