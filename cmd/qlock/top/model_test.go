package top

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/quorumlock/quorumlock/client"
	"github.com/quorumlock/quorumlock/internal/wirecall"
	"github.com/quorumlock/quorumlock/test/bubble"
	"github.com/quorumlock/quorumlock/transport/wire"
)

func event(lock string, revision uint64) *wire.Event {
	return &wire.Event{Type: wire.Event_GRANTED, Lock: lock, Revision: revision, SessionId: 9, HoldId: revision}
}

// TestManyEventsCauseFewReads has a thousand events arrive in each of forty frames: the page and the overview are read
// at most once per frame.
func TestManyEventsCauseFewReads(t *testing.T) {
	f := example()
	s := newScreen(t, f, 80, 24)
	for frame := range uint64(40) {
		for i := range uint64(1_000) {
			s.happen(event("orders/42", 1_000*frame+i))
		}
		s.pass(refresh / 2)
	}
	if n := f.reads["contended"]; n < 18 || n > 21 {
		t.Errorf("%d reads of the page in 5 s", n)
	}
	if n := f.reads["status"]; n < 18 || n > 21 {
		t.Errorf("%d reads of the overview in 5 s", n)
	}
	if n := len(s.m.events); n != keptEvents {
		t.Errorf("%d events are kept", n)
	}
}

// TestOnlyEventsOfThePage checks that an event of another lock does not cause a read, and one of the page's does.
func TestOnlyEventsOfThePage(t *testing.T) {
	f := example()
	s := newScreen(t, f, 80, 24)
	s.press("enter")
	s.happen(event("other", 1), &wire.Event{Type: wire.Event_SESSION_OPENED, SessionId: 4})
	s.pass(time.Second)
	if f.reads["lock"] != 1 {
		t.Errorf("%d reads after events of others", f.reads["lock"])
	}
	s.happen(&wire.Event{Type: wire.Event_GRANTED, Lock: "a", Locks: []string{"a", "orders/42"}})
	s.pass(time.Second)
	if f.reads["lock"] != 2 {
		t.Errorf("%d reads after an event of the lock", f.reads["lock"])
	}
	s.pass(heartbeatInterval)
	if f.reads["lock"] != 3 {
		t.Errorf("%d reads after an interval without events", f.reads["lock"])
	}
}

// TestSlowReadsAreRare has reads take half a second: after each, the screen pauses ten times as long.
func TestSlowReadsAreRare(t *testing.T) {
	f := example()
	f.took = 500 * time.Millisecond
	s := newScreen(t, f, 80, 24)
	began := s.clock
	for i := uint64(1); s.clock.Sub(began) < time.Minute; i++ {
		s.happen(event("orders/42", i))
		s.pass(refresh)
	}
	if n := f.reads["contended"]; n < 8 || n > 14 {
		t.Errorf("%d reads in a minute", n)
	}
}

// TestOutdatedIsMarked has the cluster fail and come back. In the meantime the last answer is grey, with its time, and
// its ages do not grow.
func TestOutdatedIsMarked(t *testing.T) {
	f := example()
	s := newScreen(t, f, 80, 24)
	s.pass(2 * time.Second)
	s.shows("1m12s", "All is well")
	f.err, f.staleErr = client.ErrUnavailable, client.ErrUnavailable
	s.pass(10 * time.Second)
	s.shows("as of 12:03:04", "1m10s", "NO NODE ANSWERS", "still trying")
	if grey := "\x1b[2mpool"; !strings.Contains(s.m.View().Content, grey) {
		t.Errorf("what is outdated is not grey: %q", s.m.View().Content)
	}
	f.err, f.staleErr = nil, nil
	s.pass(10 * time.Second)
	s.shows("All is well", "1m10s")
	s.hides("as of", "still trying")
	if strings.Contains(s.m.View().Content, "\x1b[2mpool") {
		t.Error("what was read again is grey")
	}
}

// TestFailedReadsAreRepeatedSoon checks that a failure that took long does not delay the next attempt.
func TestFailedReadsAreRepeatedSoon(t *testing.T) {
	f := example()
	s := newScreen(t, f, 80, 24)
	f.took, f.err, f.staleErr = 2*time.Second, client.ErrUnavailable, client.ErrUnavailable
	s.pass(heartbeatInterval)
	f.took, f.err, f.staleErr = 0, nil, nil
	s.pass(retryInterval)
	s.shows("All is well")
	s.hides("as of")
}

// TestSilenceIsMarked checks that an answer counts as outdated while the next one takes long.
func TestSilenceIsMarked(t *testing.T) {
	s := newScreen(t, example(), 80, 24)
	s.clock = s.clock.Add(heartbeatInterval)
	if s.m.reads() == nil { // the commands do not run
		t.Fatal("nothing is read")
	}
	s.hides("as of")
	s.clock = s.clock.Add(silence + 1)
	s.shows("as of 12:03:04", "waiting for an answer since 12:03:09")
}

// TestOtherErrorsAreShown checks that an error that is not an outage is shown, escaped.
func TestOtherErrorsAreShown(t *testing.T) {
	f := example()
	f.err = client.ErrPermissionDenied
	s := newScreen(t, f, 80, 24)
	s.shows("connecting", "permission denied")
	f.err = errBroken
	s.pass(10 * time.Second)
	s.shows(`broken\x1b[2J`)
}

// TestLeaderChange checks that a leader change is a line that goes away.
func TestLeaderChange(t *testing.T) {
	s := newScreen(t, example(), 80, 24)
	s.hides("leads now")
	pages["leader"](s)
	s.shows("n3 leads now, after n2; term 8")
	s.pass(noticeTime)
	s.hides("leads now")
}

// TestAnswerForAnotherPrefix has an answer arrive after the prefix was changed.
func TestAnswerForAnotherPrefix(t *testing.T) {
	f := example()
	s := newScreen(t, f, 80, 24)
	s.clock = s.clock.Add(heartbeatInterval)
	p := s.m.shown()
	late := s.m.start(&p.state().read, p.load())
	s.press("/", "p", "o", "enter")
	s.shows("prefix po", "pool")
	s.hides("orders/42")
	s.run(late)
	s.shows("prefix po", "pool")
	s.hides("orders/42")
	if q := f.queries[len(f.queries)-2]; q != (Query{Prefix: "po", Limit: shownLocks}) {
		t.Errorf("asked for %+v", q)
	}
}

// TestTyping checks the keys while a prefix is typed, and that nothing is taken that no name can contain.
func TestTyping(t *testing.T) {
	s := newScreen(t, example(), 80, 24)
	s.press("/", "q", "j", "鍵", "backspace", "space")
	s.m.Update(tea.PasteMsg{Content: "a\x1b[2J"})
	s.m.Update(tea.PasteMsg{Content: "/b"})
	s.m.Update(tea.PasteMsg{Content: strings.Repeat("x", maxPrefix)})
	s.shows("prefix: qj/b▏")
	s.press("esc")
	s.hides("prefix:")
	s.press("/", "z", "enter")
	s.shows("Nobody waits for a lock with that prefix.")
	s.press("esc")
	s.shows("orders/42")
	if s.press("q"); !s.quit {
		t.Error("q does not quit")
	}
}

// TestSelectionStays checks that the selected lock stays selected when others come and go, unless it is the first one.
func TestSelectionStays(t *testing.T) {
	f := example()
	s := newScreen(t, f, 80, 24)
	s.press("down", "down")
	f.contended = append(f.contended, contendedLock("new", 100, 0, nil, nil))
	s.pass(heartbeatInterval)
	s.press("enter")
	s.shows("lock pool")
	s.press("esc", "home")
	f.contended = append(f.contended, contendedLock("newer", 200, 0, nil, nil))
	s.pass(heartbeatInterval)
	s.press("enter")
	s.shows("lock newer")
}

// TestDrillingIn goes from a lock to its holder, to another lock of the holder, and back.
func TestDrillingIn(t *testing.T) {
	s := newScreen(t, example(), 80, 24)
	s.press("enter", "enter")
	s.shows("session 9", "It has 2 holds and 1 wait.")
	s.press("end", "enter")
	s.shows(`lock orders/\\ \x1b[2J`)
	s.press("esc", "esc", "esc", "esc")
	s.shows("the longest queue first")
}

// TestPause checks that a paused page stays as it is, and continues without a gap.
func TestPause(t *testing.T) {
	s := newScreen(t, example(), 80, 24)
	pages["paused"](s)
	s.shows("PAUSED", "302  queued")
	s.hides("305  forced")
	s.press("p")
	s.shows("305  forced", "302  queued", "304  expired")
	s.hides("PAUSED", "events may be missing")
}

// TestHealth checks the sentence about the cluster.
func TestHealth(t *testing.T) {
	five := []*wire.NodeStatus{node("n1", true), node("n2", false), node("n3", false), node("n4", false), {Id: "n5", Voter: true}}
	alarmed, expiring := node("n1", true), node("n1", true)
	alarmed.Alarms = []*wire.Alarm{{Message: "the disk\x1b[2J is slow"}}
	expiring.CertificateExpiresUnixMs = noon.Add(24 * time.Hour).UnixMilli()
	for want, s := range map[string]*wire.StatusResponse{
		"NO LEADER: no lock":                      {NodeId: "n3"},
		"A backup is overdue":                     {LeaderId: "n1", BackupSchedule: &wire.BackupSchedule{Overdue: true}},
		"GRANTS ARE SUSPENDED":                    {LeaderId: "n1", GrantsSuspended: true},
		"THE NODES DIFFER":                        {LeaderId: "n1", DifferingIndex: 8, AgreedIndex: 7},
		"AT RISK: 3 of 5 voters":                  {LeaderId: "n1", Nodes: append(five[:3:3], five[4], five[4])},
		`1 alarm: n1: the disk\x1b[2J is slow`:    {LeaderId: "n1", Nodes: []*wire.NodeStatus{alarmed}},
		"but n5 cannot be reached":                {LeaderId: "n1", Nodes: five},
		"certificate of n1 expires soon":          {LeaderId: "n1", Nodes: []*wire.NodeStatus{expiring}},
		"All is well: the only voter is up.":      {LeaderId: "n1", Nodes: five[:1]},
		"All is well: 4 of 4 voters are up.":      {LeaderId: "n1", Nodes: five[:4]},
		"if one more fails, no lock can be grant": {LeaderId: "n1", Nodes: append(five[:2:2], five[4])},
	} {
		if got, _ := health(s, false, noon); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestSparkline checks that the bars fit into the width, and that the greatest sample is visible in each.
func TestSparkline(t *testing.T) {
	s := Samples{5 * time.Second, []uint64{0, 0, 8, 0, 4, 0}}
	for width, want := range map[int]string{6: "▁▁█▁▅▁", 3: "▁█▅", 4: "▁█▅", 1: "█", 0: "▁▁█▁▅▁"} {
		if got := s.sparkline(width); got != want {
			t.Errorf("width %d: %s, want %s", width, got, want)
		}
	}
	for rate, s := range map[string]Samples{"not measured yet": {}, "0/s": {time.Second, []uint64{9, 0}}, "0.4/s": {5 * time.Second, []uint64{2}}, "1,234/s": {time.Second, []uint64{1_234}}} {
		if got := s.rate(); got != rate {
			t.Errorf("%s, want %s", got, rate)
		}
	}
}

// TestFeed has a watch end: the next one starts, and the gap is marked, once.
func TestFeed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := example()
		watches := []*fakeWatch{{batches: make(chan wirecall.Batch)}, {batches: make(chan wirecall.Batch)}}
		f.watches <- watches[0]
		f.watches <- watches[1]
		events, done := &feed{now: time.Now}, make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(done)
			events.run(ctx, f)
		}()
		watches[0].batches <- wirecall.Batch{}
		watches[0].batches <- wirecall.Batch{Events: []*wire.Event{event("a", 1), event("b", 2)}}
		close(watches[0].batches)
		watches[1].batches <- wirecall.Batch{Events: []*wire.Event{event("c", 9)}}
		watches[1].batches <- wirecall.Batch{} // the events before have been added
		cancel()
		<-done
		arrivals, gap := events.take()
		var got []string
		for _, a := range arrivals {
			got = append(got, a.event.GetLock())
		}
		if !slices.Equal(got, []string{"a", "b", "", "c"}) || !gap || !watches[0].closed || !watches[1].closed {
			t.Errorf("arrived %q, a gap: %v, closed: %v", got, gap, watches)
		}
		if again, gap := events.take(); len(again) > 0 || gap {
			t.Errorf("taken twice: %v, %v", again, gap)
		}
	})
}

// TestFeedIsBounded checks that events nobody takes are dropped, the oldest first.
func TestFeedIsBounded(t *testing.T) {
	f := &feed{now: time.Now}
	for i := range uint64(3 * keptEvents) {
		f.add([]*wire.Event{event("a", i)})
	}
	arrivals, gap := f.take()
	if len(arrivals) != keptEvents || !gap || arrivals[0].event.GetRevision() != 2*keptEvents {
		t.Errorf("%d events from %d on, a gap: %v", len(arrivals), arrivals[0].event.GetRevision(), gap)
	}
}

// TestOnce checks the single frame: with the leader, with a node that has none, and without any.
func TestOnce(t *testing.T) {
	for _, test := range []struct {
		err, staleErr error
		shows         string
		leads         bool
	}{
		{nil, nil, "pool                   4", true},
		{client.ErrUnavailable, nil, "not known: no answer yet", false},
		{client.ErrUnavailable, client.ErrUnavailable, "", false},
	} {
		f := example()
		f.err, f.staleErr, f.reads = test.err, test.staleErr, map[string]int{}
		frame, leads, err := Once(t.Context(), f, time.Second, 80, 24)
		if !strings.Contains(frame, test.shows) || leads != test.leads || (err != nil) != (frame == "") {
			t.Errorf("%v: leads %v, %v\n%s", test.err, leads, err, frame)
		}
		if strings.ContainsRune(frame, '\x1b') || strings.Count(frame, "\n") > 24 {
			t.Errorf("%v: %q", test.err, frame)
		}
	}
	f := example()
	f.reads = map[string]int{}
	for i := range 200 {
		f.contended = append(f.contended, &wire.ContendedLock{Name: fmt.Sprintf("%0200d", i)})
	}
	if frame, _, _ := Once(t.Context(), f, time.Second, 80, 24); strings.Count(frame, "\n") != 24 {
		t.Errorf("%d lines", strings.Count(frame, "\n"))
	}
	if frame, _, _ := Once(t.Context(), f, time.Second, 0, 0); strings.Count(frame, "\n") != 211 || !strings.Contains(frame, fmt.Sprintf("%0200d", 7)) {
		t.Errorf("not all rows:\n%s", frame)
	}
}

// TestDeadlock checks that a deadlock is looked for only when a request has waited for some time, and not with each
// read of the lock.
func TestDeadlock(t *testing.T) {
	f := example()
	f.deadlocks = deadlocks()
	s := newScreen(t, f, 80, 24)
	s.press("G", "enter") // the lock with a wait of 70 s in its queue, in no deadlock
	s.shows("lock closed")
	s.hides("Deadlock")
	s.press("esc", "home", "enter")
	s.shows("Deadlock: 3 owners wait in a circle", "refund (session 9) waits for pool", "an owner that is not shown waits for a lock")
	searched := f.reads["deadlocks"]
	for range 8 {
		s.happen(&wire.Event{Type: wire.Event_QUEUED, Lock: "orders/42"})
		s.pass(500 * time.Millisecond)
	}
	if n := f.reads["deadlocks"]; n != searched {
		t.Errorf("%d searches within 4 seconds", n-searched)
	}
	s.shows("Deadlock")
	f.deadlocks = nil
	s.pass(searchInterval)
	s.hides("Deadlock")
	f.deadlocks = deadlocks()
	for _, q := range f.locks["orders/42"].GetQueue() {
		q.WaitingMs = 10
	}
	searched = f.reads["deadlocks"]
	s.pass(2 * searchInterval)
	s.hides("Deadlock")
	if n := f.reads["deadlocks"]; n != searched {
		t.Error("a search although nobody has waited for long")
	}
}
