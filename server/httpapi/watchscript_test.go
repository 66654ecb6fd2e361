package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quorumlock/quorumlock/server/httpapi/forward"
	"github.com/quorumlock/quorumlock/server/httpapi/response"
	"github.com/quorumlock/quorumlock/server/status"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// watching is a watch whose messages the test determines.
type watching struct {
	*stage
	a *asked
	w *step
}

func (st *stage) watching(body string, change ...func(*http.Request)) *watching {
	st.t.Helper()
	a := st.ask("LockService/Watch", body, change...)
	return &watching{st, a, st.expect("Watch")}
}

// word returns a watch message with the given number of events, whose revisions end with its own.
func word(revision uint64, events int) *wire.WatchResponse {
	resp := &wire.WatchResponse{Status: wire.Status_OK, Revision: revision, Lineage: lineage}
	for i := range events {
		resp.Events = append(resp.Events, &wire.Event{Type: wire.Event_RESIZED, Revision: revision - uint64(events-1-i)})
	}
	return resp
}

func (w *watching) send(resp *wire.WatchResponse) {
	w.t.Helper()
	time.Sleep(lineEvery) // so that it is a line at once
	if err := w.w.send(resp); err != nil {
		w.t.Fatal(err)
	}
}

// said requires n lines, the last of which contains all of has.
func (w *watching) said(n int, has ...string) {
	w.t.Helper()
	lines := w.a.lines()
	if len(lines) != n {
		w.t.Fatalf("%d lines, want %d: %v", len(lines), n, lines)
	}
	for _, part := range has {
		if !strings.Contains(lines[n-1], part) {
			w.t.Errorf("no %s in %s", part, lines[n-1])
		}
	}
}

// TestWatchSendsEachAnswerAtOnce verifies that each message is a line that is flushed immediately, in order,
// and that the last one ends the stream.
func TestWatchSendsEachAnswerAtOnce(t *testing.T) {
	play(t, func(st *stage) {
		w := st.watching(`{"prefix":"p/","afterRevision":"6","lineage":"first"}`)
		if got := fmt.Sprint(w.w.request); !strings.Contains(got, "p/") || !strings.Contains(got, "6") || !strings.Contains(got, "first") {
			t.Errorf("asked for %s", got)
		}
		w.said(0)
		for i := range 5 {
			w.send(word(uint64(10+i), i))
			w.said(i+1, fmt.Sprintf(`"revision":"%d"`, 10+i), `"status":"OK"`, `"lineage":"first"`)
			if w.a.flushed != i+1 {
				t.Errorf("%d lines, flushed %d times", i+1, w.a.flushed)
			}
			if left := time.Until(w.a.writeUntil); left != st.s.cfg.Limits.WatchTimeout {
				t.Errorf("a line may be left unread for %v", left)
			}
			time.Sleep(2 * st.s.cfg.Limits.WatchTimeout) // nothing is unread, so this has no effect
		}
		if got := w.a.sent.Get("Content-Type"); got != "application/x-ndjson" {
			t.Errorf("content type %s", got)
		}
		w.a.waits()
		w.send(&wire.WatchResponse{Status: wire.Status_COMPACTED, Oldest: 99, Revision: 14, Lineage: lineage})
		w.w.returns(nil, nil)
		w.a.reply()
		w.said(6, `"status":"COMPACTED"`, `"oldest":"99"`)
		if w.a.aborted || !strings.Contains(st.get("/metrics"), `LockService/Watch",status="COMPACTED"} 1`) {
			t.Error("a last word is no end, or is not counted")
		}
	})
}

// TestLinesWaitForOneAnother verifies that lines with few events have a distance, unless they are the last, and that others
// do not wait.
func TestLinesWaitForOneAnother(t *testing.T) {
	play(t, func(st *stage) {
		w := st.watching(`{}`)
		w.send(word(3, 1))
		for lines, next := range []*wire.WatchResponse{word(4, 1), word(5, fewEvents+1), word(6, fewEvents)} {
			if err := w.w.send(next); err != nil {
				t.Fatal(err)
			}
			if len(next.GetEvents()) <= fewEvents {
				time.Sleep(lineEvery - 1)
				w.said(lines + 1)
				time.Sleep(time.Nanosecond)
			}
			synctest.Wait()
			w.said(lines + 2)
		}
		w.w.returns(nil, nil)
		w.a.reply()
	})
}

// TestWatchThatFails verifies that an error before the first message is returned as an error, and a later one
// breaks the connection.
func TestWatchThatFails(t *testing.T) {
	for _, said := range []int{0, 1} {
		play(t, func(st *stage) {
			w := st.watching(`{}`)
			for range said {
				w.send(word(3, 0))
			}
			w.w.returns(nil, fmt.Errorf("%w: because", status.ErrInvalid))
			got := w.a.reply()
			if w.a.aborted != (said > 0) {
				t.Errorf("after %d answers: aborted %v, %s", said, w.a.aborted, got.body)
			}
			if said == 0 {
				got.refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
			}
		})
	}
	play(t, func(st *stage) { // the caller's connection breaks
		w := st.watching(`{}`)
		w.send(word(3, 0))
		w.a.fail = errBroken
		time.Sleep(lineEvery)
		if err := w.w.send(word(4, 1)); !errors.Is(err, errBroken) {
			t.Errorf("the replica goes on for nobody: %v", err)
		}
		w.w.returns(nil, errBroken)
		if w.a.reply(); !w.a.aborted {
			t.Error("not broken off")
		}
	})
}

// TestWatchCrossesTheStop verifies that when the node stops, every watch is told where to continue, whatever
// it was doing, and its caller has a second to read that.
func TestWatchCrossesTheStop(t *testing.T) {
	for said := range 3 {
		for _, together := range []bool{false, true} {
			play(t, func(st *stage) {
				w := st.watching(`{}`)
				for i := range said {
					w.send(word(uint64(20+i), 1))
				}
				time.Sleep(lineEvery)
				st.stop()
				lines, last := said, 19+said
				if together {
					if err := w.w.send(word(29, 1)); err != nil {
						t.Fatal(err)
					}
					lines, last = said+1, 29
				}
				synctest.Wait()
				if left := time.Until(w.a.writeUntil); w.w.ctx.Err() == nil || left != response.StopTimeout {
					t.Errorf("stopped: %v; the caller has %v", w.w.ctx.Err(), left)
				}
				w.w.returns(nil, w.w.ctx.Err())
				got := w.a.reply()
				if lines == 0 {
					got.refused(http.StatusServiceUnavailable, wire.Status_UNAVAILABLE)
					return
				}
				w.said(lines+1, `"status":"UNAVAILABLE"`, fmt.Sprintf(`"revision":"%d"`, last), `"lineage":"first"`, "stopping")
			})
		}
	}
}

// TestWatchEndsWithItsCaller verifies that a watch ends with its caller or at its deadline, and then says
// where to continue.
func TestWatchEndsWithItsCaller(t *testing.T) {
	for _, said := range []int{0, 1} {
		play(t, func(st *stage) {
			w := st.watching(`{}`)
			for range said {
				w.send(word(3, 0))
			}
			w.a.hangUp()
			synctest.Wait()
			if w.w.ctx.Err() == nil {
				t.Error("the replica goes on for nobody")
			}
			w.w.returns(nil, w.w.ctx.Err())
			w.a.reply()
			w.said(1, map[int]string{0: `"code":"canceled"`, 1: `"revision":"3"`}[said])
		})
	}
}

// TestWatchOfANodeWithoutALeaderEnds verifies that two consecutive messages without a leader end a watch.
// Events and a known leader in between restart the count.
func TestWatchOfANodeWithoutALeaderEnds(t *testing.T) {
	play(t, func(st *stage) {
		w := st.watching(`{}`)
		st.c.lead("")
		w.send(word(1, 0)) // the first message has the start position
		w.send(word(1, 0))
		w.send(word(2, 1)) // an event restarts the count
		w.send(word(2, 0))
		st.c.lead("n2")
		w.send(word(2, 0))
		st.c.lead("")
		w.send(word(2, 0))
		w.said(6)
		err := w.w.send(word(2, 0))
		if !errors.Is(err, errNoLeader) {
			t.Fatalf("sent: %v", err)
		}
		w.w.returns(nil, err)
		w.a.reply()
		w.said(7, `"status":"UNAVAILABLE"`, `"revision":"2"`, "no leader", "resume the watch on another node")
		if w.a.aborted {
			t.Error("broken off")
		}
	})
	play(t, func(st *stage) { // a final message is passed on
		w := st.watching(`{}`)
		st.c.lead("")
		w.send(word(1, 0))
		w.send(word(1, 0))
		w.send(&wire.WatchResponse{Status: wire.Status_COMPACTED})
		w.w.returns(nil, nil)
		w.a.reply()
		w.said(3, "COMPACTED")
	})
}

// TestWatchesOfAConnectionAreBounded verifies the bound on watches per connection, and that a place is free
// again when its watch ends.
func TestWatchesOfAConnectionAreBounded(t *testing.T) {
	const most = 3
	play(t, func(st *stage) {
		var open []*watching
		for range most {
			open = append(open, st.watching(`{}`))
		}
		for range 2 {
			message := st.ask("LockService/Watch", `{}`).reply().refused(http.StatusTooManyRequests, wire.Status_RESOURCE_EXHAUSTED)
			if !strings.Contains(message, "max_watches_per_connection") || !strings.Contains(message, fmt.Sprint(most)) {
				t.Errorf("says %q", message)
			}
		}
		first := st.conn
		st.conn = st.connect()
		elsewhere := st.watching(`{}`)
		_ = st.conn.Close()
		st.conn = first
		open[0].w.returns(nil, nil)
		open[1].w.returns(nil, errBroken)
		open[2].a.hangUp()
		open[2].w.returns(nil, errBroken)
		for i := range open {
			open[i] = st.watching(`{}`)
		}
		st.ask("LockService/Watch", `{}`).reply().refused(http.StatusTooManyRequests, wire.Status_RESOURCE_EXHAUSTED)
		for _, w := range append(open, elsewhere) {
			w.w.returns(nil, nil)
		}
		if !first.BeginWatch(1) {
			t.Error("a watch is left at the end")
		}
	}, limits(func(l *Limits) { l.MaxWatchesPerConnection = most }))
}

// TestWatchOfAFollowerThatIsBehind verifies that a follower that is behind asks the leader whether the
// revision exists, catches up, and then watches. After the first message, an error is returned instead.
func TestWatchOfAFollowerThatIsBehind(t *testing.T) {
	for _, failing := range []error{status.ErrNotLeader, status.ErrUnavailable} {
		play(t, func(st *stage) {
			st.open("ann")
			present := st.s.revision()
			st.follow("n2")
			body := fmt.Sprintf(`{"afterRevision":%d,"lineage":"first"}`, present+3)
			w := st.watching(body)
			w.w.returns(nil, failing)
			asked := st.sentOn()
			if asked.r.URL.Path != "/quorumlock.v1.LockService/VerifyToken" || asked.r.Header.Get(forward.HeaderFrom) != "n1" {
				t.Errorf("asked the leader for %s, %v", asked.r.URL, asked.r.Header)
			}
			asked.with(503, "{}") // it asks again
			time.Sleep(pollEvery)
			asked = st.sentOn()
			asked.verified(t, present+3)
			time.Sleep(10 * pollEvery)
			st.none()
			for range 3 {
				st.open("bob" + fmt.Sprint(st.s.revision()))
			}
			time.Sleep(pollEvery)
			w.w = st.expect("Watch")
			w.send(word(present+3, 0))
			w.w.returns(nil, failing)
			if w.a.reply(); !w.a.aborted {
				t.Error("it began again")
			}
			w.said(1)
			st.none()
		})
	}
}

// verified answers a node that asks the leader for the current revision.
func (f *forwarded) verified(t *testing.T, revision uint64) {
	t.Helper()
	data, err := proto.Marshal(&wire.VerifyTokenResponse{Revision: revision})
	if err != nil {
		t.Fatal(err)
	}
	f.with(http.StatusOK, string(data), "Content-Type", "application/proto")
}

func TestWatchOfAFollowerThatStaysBehind(t *testing.T) {
	for how, want := range map[string]wire.Status_Code{
		"future": wire.Status_INVALID_ARGUMENT, "behind": wire.Status_UNAVAILABLE, "no leader": wire.Status_UNAVAILABLE, "elected": wire.Status_INVALID_ARGUMENT,
	} {
		play(t, func(st *stage) {
			present := st.s.revision() + 1
			st.follow("n2")
			a := st.ask("LockService/Watch", fmt.Sprintf(`{"afterRevision":%d}`, present+3))
			st.expect("Watch").returns(nil, status.ErrNotLeader)
			asked := st.sentOn()
			revision := present + 3
			switch how {
			case "future":
				revision--
			case "no leader":
				st.c.lead("")
			case "elected":
				st.c.lead("n1")
			}
			if how == "no leader" || how == "elected" {
				asked.fails(forward.ErrUnreached)
			} else {
				asked.verified(t, revision)
			}
			if how == "elected" {
				time.Sleep(pollEvery)
				st.expect("Prove").apply().answer()
			}
			started := time.Now()
			<-a.done
			if waited := time.Since(started); (how == "behind" || how == "no leader") != (waited > st.s.cfg.Limits.LeaderWait/2) || waited > st.s.cfg.Limits.LeaderWait {
				t.Errorf("%s: waited %v", how, waited)
			}
			message := a.reply().refused(httpOf[want], want)
			if want == wire.Status_INVALID_ARGUMENT && !strings.Contains(message, fmt.Sprintf("the present revision is %d", st.presentOr(revision, how))) {
				t.Errorf("%s: %q", how, message)
			}
		})
	}
}

// presentOr returns the current revision as known to the leader.
func (st *stage) presentOr(remote uint64, how string) uint64 {
	if how == "elected" {
		return st.s.revision()
	}
	return remote
}
