package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/quorumlock/quorumlock/transport/wire"
	"github.com/quorumlock/quorumlock/transport/wire/wireconnect"
)

// viewer reads the lines of a watch.
type viewer struct {
	t     *testing.T
	resp  *http.Response
	lines *bufio.Reader
	// events are the unread events of the latest line, and revision is its revision.
	events   []any
	revision string
}

func (p *port) watch(ctx context.Context, body string) *viewer {
	p.t.Helper()
	return p.watchWith(ctx, "", body)
}

// watchAs watches with a token.
func (p *port) watchAs(token, body string) *viewer {
	p.t.Helper()
	return p.watchWith(p.t.Context(), "Bearer "+token, body)
}

func (p *port) watchWith(ctx context.Context, authorization, body string) *viewer {
	p.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.addr+"/quorumlock.v1.LockService/Watch", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = resp.Body.Close() })
	return &viewer{t: p.t, resp: resp, lines: bufio.NewReaderSize(resp.Body, 1<<20)}
}

func (v *viewer) next() map[string]any {
	v.t.Helper()
	line, err := v.lines.ReadBytes('\n')
	if err != nil {
		v.t.Fatalf("%v: %q", err, line)
	}
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		v.t.Fatalf("%v: %s", err, line)
	}
	return fields
}

// event returns the next event. The number of events per line depends on how fast it is read.
func (v *viewer) event() map[string]any {
	v.t.Helper()
	for len(v.events) == 0 {
		line := v.next()
		v.events, v.revision = line["events"].([]any), line["revision"].(string)
	}
	e := v.events[0].(map[string]any)
	v.events = v.events[1:]
	return e
}

func (v *viewer) ended() {
	v.t.Helper()
	if line, err := v.lines.ReadString('\n'); err == nil {
		v.t.Errorf("after the last word: %s", line)
	}
}

func TestWatchInLines(t *testing.T) {
	c := newCluster(t)
	start(t, c, "n1")
	p := start(t, c, "n2") // a follower answers it itself
	v := p.watch(t.Context(), `{}`)
	if first := v.next(); first["lineage"] != lineage || first["status"] != "OK" || v.resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("first: %v, %v", first, v.resp.Header)
	}
	p.open("ann").send("LockService/Acquire", `"seq":1,"name":"a"`).ok()
	opened, granted := v.event(), v.event()
	if opened["type"] != "SESSION_OPENED" || granted["type"] != "GRANTED" || granted["lock"] != "a" || granted["revision"] != v.revision {
		t.Errorf("opened: %v, granted: %v, line of revision %s", opened, granted, v.revision)
	}
	c.lead("n2") // the watch continues
	c.expire(1)
	if e := v.event(); e["type"] != "EXPIRED" {
		t.Errorf("expired: %v", e)
	}
	resumed := p.watch(t.Context(), `{"afterRevision":"`+opened["revision"].(string)+`","lineage":"`+lineage+`"}`)
	resumed.next()
	if e := resumed.event(); e["type"] != "GRANTED" {
		t.Errorf("resumed: %v", e)
	}
	other := p.watch(t.Context(), `{"afterRevision":"5","lineage":"another"}`)
	if last := other.next(); last["status"] != "COMPACTED" {
		t.Errorf("another history: %v", last)
	}
	other.ended()
	if got := p.post("LockService/Watch", `{"names":[]}`); got.status != http.StatusBadRequest {
		t.Errorf("status %d: %s", got.status, got.body)
	}
}

// TestWatchFromTheFuture verifies that only the leader reports that a revision does not exist yet, since a
// follower may be behind.
func TestWatchFromTheFuture(t *testing.T) {
	c := newCluster(t)
	leader, follower := start(t, c, "n1"), start(t, c, "n2")
	leader.open("ann")
	present := leader.server.revision()
	for _, p := range []*port{leader, follower} {
		body := fmt.Sprintf(`{"afterRevision":%d,"lineage":%q}`, present+100, lineage)
		message := p.post("LockService/Watch", body).refused(http.StatusBadRequest, wire.Status_INVALID_ARGUMENT)
		if !strings.Contains(message, fmt.Sprint("the present revision is ", c.history.Last())) && !strings.Contains(message, fmt.Sprint("the present revision is ", present)) {
			t.Errorf("message %q", message)
		}
	}
	c.lead("")
	body := fmt.Sprintf(`{"afterRevision":%d,"lineage":%q}`, present+100, lineage)
	follower.post("LockService/Watch", body).refused(http.StatusServiceUnavailable, wire.Status_UNAVAILABLE)
}

func TestWatchInEveryProtocol(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1")
	for name, options := range protocols(t) {
		ctx, stop := context.WithCancel(t.Context())
		stream, err := wireconnect.NewLockServiceClient(h2c(t), "http://"+p.addr, options...).Watch(ctx, connect.NewRequest(&wire.WatchRequest{}))
		if err != nil {
			t.Fatal(name, err)
		}
		if !stream.Receive() || stream.Msg().GetLineage() != lineage {
			t.Errorf("%s: first %v, %v", name, stream.Msg(), stream.Err())
		}
		c.history.Add(&wire.Event{Type: wire.Event_RESIZED, Revision: c.history.Last() + 1})
		if !stream.Receive() || len(stream.Msg().GetEvents()) != 1 {
			t.Errorf("%s: next %v, %v", name, stream.Msg(), stream.Err())
		}
		stop()
		_ = stream.Close()
	}
}

func TestWatchesOfOneConnection(t *testing.T) {
	c := newCluster(t)
	p := start(t, c, "n1", limits(func(l *Limits) { l.MaxWatchesPerConnection = 2 }))
	client := wireconnect.NewLockServiceClient(h2c(t), "http://"+p.addr, connect.WithGRPC())
	var streams []*connect.ServerStreamForClient[wire.WatchResponse]
	for range 3 {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		stream, err := client.Watch(ctx, connect.NewRequest(&wire.WatchRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		stream.Receive()
		streams = append(streams, stream)
	}
	err := streams[2].Err()
	if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "max_watches_per_connection") {
		t.Errorf("the third: %v", err)
	}
	v := p.watch(t.Context(), `{}`) // another connection
	v.next()
	for _, s := range streams {
		_ = s.Close()
	}
}

func TestWatchEndsWithTheNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := start(t, c, "n1")
	v, unread := p.watch(t.Context(), `{}`), p.watch(t.Context(), `{}`)
	v.next()
	for range 200 { // more than the connection buffers
		c.history.Add(&wire.Event{Type: wire.Event_FORCED, Revision: c.history.Last() + 1, Reason: strings.Repeat("r", 64<<10)})
		v.next()
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	if err := p.server.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	if last := v.next(); last["status"] != "UNAVAILABLE" || last["message"] == "" || last["lineage"] != lineage {
		t.Errorf("last word: %v", last)
	}
	v.ended()
	_ = unread.resp.Body.Close()
}

// TestWatchThatIsNotReadIsCompacted verifies that a caller that does not read keeps its connection and
// finally learns what it has missed.
func TestWatchThatIsNotReadIsCompacted(t *testing.T) {
	c := newCluster(t)
	c.history.Bound = 20
	p := start(t, c, "n1")
	v := p.watch(t.Context(), `{}`)
	v.next()
	for range 2_000 { // 32 MB
		c.history.Add(&wire.Event{Type: wire.Event_FORCED, Revision: c.history.Last() + 1, Reason: strings.Repeat("r", 16<<10)})
	}
	for {
		got := v.next()
		if got["status"] == "COMPACTED" {
			break
		}
	}
	v.ended()
}

// TestWatchOfANodeWithoutALeader verifies that a node that is cut off does not report forever that nothing
// happens.
func TestWatchOfANodeWithoutALeader(t *testing.T) {
	c := newCluster(t)
	var said []*wire.WatchResponse
	w := &watch{server: start(t, c, "n1").server, send: func(r *wire.WatchResponse) error { said = append(said, r); return nil }}
	mark := &wire.WatchResponse{Status: wire.Status_OK, Revision: 9, Lineage: lineage}
	say := func(want error) {
		t.Helper()
		if err := w.deliver(mark); err != want {
			t.Fatalf("said %v: %v", said, err)
		}
	}
	say(nil)
	say(nil)
	c.lead("")
	say(nil)
	c.lead("n2")
	say(nil)
	c.lead("")
	say(nil)
	say(errNoLeader)
	if err := w.end(t.Context(), errNoLeader); err != nil {
		t.Error(err)
	}
	if last := said[len(said)-1]; last.GetStatus() != wire.Status_UNAVAILABLE || last.GetRevision() != 9 {
		t.Errorf("last word: %v", last)
	}
}
