package notify

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/fsm"
	"github.com/quorumlock/quorumlock/transport/wire"
)

// received are the pushes that a connection got.
type received []*wire.Push

func (s *received) Push(p *wire.Push) { *s = append(*s, p) }

// openNotifier returns an open notifier with an empty state machine.
func openNotifier() *Notifier {
	m := fsm.New(1)
	h := New(func(f func(*fsm.Machine)) { f(m) })
	h.Open()
	return h
}

// told returns a summary of a push.
func told(p *wire.Push) string {
	switch {
	case p.GetOutcome() != nil:
		o := p.GetOutcome()
		return fmt.Sprintf("%d: outcome %v seq %d hold %d token %d count %d name %s message %q", p.SessionId, o.Status, o.Seq, o.HoldId, o.Token, o.Count, o.Name, o.Message)
	case p.GetLost() != nil:
		return fmt.Sprintf("%d: lost %v", p.SessionId, p.GetLost().Reason)
	case p.GetHoldLost() != nil:
		l := p.GetHoldLost()
		return fmt.Sprintf("%d: hold %d %d lost %v %q", p.SessionId, l.HoldId, l.Token, l.Reason, l.Message)
	case p.GetHoldNotice() != nil:
		n := p.GetHoldNotice()
		return fmt.Sprintf("%d: notice %d %d wanted %v revoked %q %d", p.SessionId, n.HoldId, n.Token, n.Wanted, n.GetRevocation().GetReason(), n.GetRevocation().GetGraceMs())
	case p.GetLeader() != nil:
		return fmt.Sprintf("%d: leader %q", p.SessionId, p.GetLeader().GetId())
	}
	return "nothing"
}

// TestEventsReachTheirSession publishes each kind of event to two connected sessions.
func TestEventsReachTheirSession(t *testing.T) {
	for name, c := range map[string]struct {
		event   *wire.Event
		push    string // "" means none
		awaited string // the status that an await of the request gets
	}{
		"granted at once": {&wire.Event{Type: wire.Event_GRANTED, Token: 9}, "", ""},
		"granted": {&wire.Event{Type: wire.Event_GRANTED, Waited: true, Token: 9},
			`1: outcome GRANTED seq 4 hold 5 token 9 count 1 name l message ""`, "GRANTED"},
		"upgraded": {&wire.Event{Type: wire.Event_GRANTED, Waited: true, Upgrade: true, Token: 9},
			`1: outcome GRANTED seq 4 hold 5 token 9 count 1 name l message ""`, "GRANTED"},
		"timed out": {&wire.Event{Type: wire.Event_CANCELLED, Status: wire.Status_TIMEOUT, Reason: "r"},
			`1: outcome TIMEOUT seq 4 hold 0 token 0 count 0 name l message ""`, "TIMEOUT"},
		"not held any more": {&wire.Event{Type: wire.Event_CANCELLED, Status: wire.Status_NOT_HELD, Reason: "r"},
			`1: outcome NOT_HELD seq 4 hold 0 token 0 count 0 name l message "r"`, "NOT_HELD"},
		"ended with its session": {&wire.Event{Type: wire.Event_CANCELLED, Status: wire.Status_SESSION_LOST}, "", "SESSION_LOST"},
		"hold expired":           {&wire.Event{Type: wire.Event_EXPIRED, Token: 9, Reason: "r"}, `1: hold 5 9 lost EXPIRED "r"`, ""},
		"hold of a lost session": {&wire.Event{Type: wire.Event_EXPIRED, Status: wire.Status_SESSION_LOST}, "", ""},
		"forced":                 {&wire.Event{Type: wire.Event_FORCED, Token: 9, Reason: "r"}, `1: hold 5 9 lost FORCED "r"`, ""},
		"wanted":                 {&wire.Event{Type: wire.Event_WANTED, Token: 9}, `1: notice 5 9 wanted true revoked "" 0`, ""},
		"revoked":                {&wire.Event{Type: wire.Event_REVOKED, Token: 9, Reason: "r", MaxHoldMs: 7}, `1: notice 5 9 wanted false revoked "r" 7`, ""},
		"session expired":        {&wire.Event{Type: wire.Event_SESSION_EXPIRED}, "1: lost EXPIRED", ""},
		"restored":               {&wire.Event{Type: wire.Event_SESSION_EXPIRED, Restored: true}, "1: lost RESTORED", ""},
		"session forced":         {&wire.Event{Type: wire.Event_SESSION_CLOSED, Reason: "gone"}, "1: lost FORCED", ""},
		"session closed":         {&wire.Event{Type: wire.Event_SESSION_CLOSED}, "1: lost CLOSED", ""},
		"released":               {&wire.Event{Type: wire.Event_RELEASED}, "", ""},
		"queued":                 {&wire.Event{Type: wire.Event_QUEUED}, "", ""},
	} {
		h, mine, other := openNotifier(), received{}, received{}
		h.Bind(1, &mine)
		h.Bind(2, &other)
		awaited := ""
		h.Await(1, 4, func(result *wire.Result) { awaited += result.Status.String() })
		h.Await(1, 3, func(*wire.Result) { t.Errorf("%s: told about another request", name) })
		h.Await(2, 4, func(*wire.Result) { t.Errorf("%s: told another session", name) })
		c.event.SessionId, c.event.Seq, c.event.HoldId, c.event.Lock = 1, 4, 5, "l"
		h.Publish([]*wire.Event{c.event})
		var pushes []string
		for _, p := range mine {
			pushes = append(pushes, told(p))
		}
		if got := strings.Join(pushes, "; "); got != c.push || awaited != c.awaited || len(other) != 0 {
			t.Errorf("%s: pushed %s, want %s; awaited %q, want %q; to others %v", name, got, c.push, awaited, c.awaited, other)
		}
		if ended := strings.HasPrefix(c.push, "1: lost"); ended != (h.sinks[1] == nil) {
			t.Errorf("%s: bound afterwards: %v", name, ended)
		}
		if again := h.awaits[request{1, 4}] != nil; again != (c.awaited == "") {
			t.Errorf("%s: awaited afterwards: %v", name, again)
		}
	}
}

// TestBindingsMoveToTheNextConnection verifies that a newer connection takes a session over from an older one, but not
// from itself.
func TestBindingsMoveToTheNextConnection(t *testing.T) {
	h, first, second := openNotifier(), &received{}, &received{}
	h.Bind(1, first)
	h.Bind(1, first)
	if len(*first) != 0 {
		t.Errorf("bound again it gets %s", told((*first)[0]))
	}
	h.Bind(1, second)
	if len(*first) != 1 || told((*first)[0]) != "1: lost SUPERSEDED" || len(*second) != 0 {
		t.Errorf("taken over: %v, %v", *first, *second)
	}
	if h.Unbind(1, first); h.sinks[1] != second {
		t.Error("the older connection has unbound the newer one")
	}
	if h.Unbind(1, second); len(h.sinks) != 0 {
		t.Error("still bound")
	}
	h.push(&wire.Push{SessionId: 1})
}

// TestWithdrawnAwaits has two callers await a request and cancel one after the other.
func TestWithdrawnAwaits(t *testing.T) {
	h := openNotifier()
	var answered []string
	caller := func(name string) (cancel func()) {
		return h.Await(1, 4, func(*wire.Result) { answered = append(answered, name) })
	}
	withdraw, _ := caller("first"), caller("second")
	withdraw()
	h.Publish([]*wire.Event{{Type: wire.Event_GRANTED, Waited: true, SessionId: 1, Seq: 4}})
	if !slices.Equal(answered, []string{"second"}) {
		t.Errorf("answered %v", answered)
	}
	caller("third")()
	if len(h.awaits) != 0 {
		t.Errorf("left behind: %v", h.awaits)
	}
}

// TestNotifierEndsWithTheLeadership ends a notifier with a binding and an await, and awaits again afterwards.
func TestNotifierEndsWithTheLeadership(t *testing.T) {
	h, sink := openNotifier(), &received{}
	h.Bind(1, sink)
	var answers []wire.Status_Code
	note := func(result *wire.Result) { answers = append(answers, result.Status) }
	h.Await(1, 4, note)
	h.Close(&wire.LeaderHint{Id: "n2"})
	h.Await(1, 5, note)()
	if want := []wire.Status_Code{wire.Status_UNCERTAIN, wire.Status_NOT_LEADER}; !slices.Equal(answers, want) {
		t.Errorf("answered %v, want %v", answers, want)
	}
	h.Bind(2, sink)
	if len(*sink) != 2 || told((*sink)[0]) != `1: leader "n2"` || told((*sink)[1]) != `2: leader ""` {
		t.Errorf("pushed %v", *sink)
	}
	if len(h.sinks)+len(h.awaits) != 0 {
		t.Errorf("left behind: %v, %v", h.sinks, h.awaits)
	}
}

// swallow is a sink that discards pushes.
type swallow struct{ pushes int }

func (s *swallow) Push(*wire.Push) { s.pushes++ }

// BenchmarkPublish measures a grant after waiting, up to the connection's sink.
func BenchmarkPublish(b *testing.B) {
	h := New(nil)
	h.Open()
	sink := &swallow{}
	h.Bind(7, sink)
	events := []*wire.Event{{Type: wire.Event_GRANTED, SessionId: 7, Seq: 3, HoldId: 5, Token: 9, Waited: true}}
	b.ReportAllocs()
	for b.Loop() {
		h.Publish(events)
	}
	if sink.pushes != b.N {
		b.Errorf("%d pushes of %d", sink.pushes, b.N)
	}
}
